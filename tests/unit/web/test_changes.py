"""Changes through the API: `PATCH` with its preconditions, new secrets, and every write under an idempotency key."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from agents.sealing import open_headers
from hub_app.domain.errors import OutcomeUnknown
from hub_app.domain.subscription import SealedText
from hub_app.ports import Request
from tests.fakes.clock import FakeClock
from tests.fakes.workers import ADMIN_KEY, Deployment, Reply, Worker

URL = "https://crm.example.com/in"
DAY_MS = 86_400_000
PROBLEM = "urn:streaming-hub:problem:"


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def made(hub: Deployment, worker: Worker, key: str, **more: Any) -> dict[str, Any]:
    wish = {"name": "n", "event_types": ["loan.*"], "sink": {"type": "webhook", "url": URL}, **more}
    return body(await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=wish))


async def patch(
    hub: Deployment, worker: Worker, key: str, id: str, change: object, headers: Mapping[str, str] | None = None
) -> Reply:
    return await hub.ask(worker, "PATCH", f"/v1/subscriptions/{id}", key=key, json=change, headers=headers)


async def rotate(
    hub: Deployment, worker: Worker, key: str, id: str, wish: object = None, headers: Mapping[str, str] | None = None
) -> Reply:
    return await hub.ask(worker, "POST", f"/v1/subscriptions/{id}/secret:rotate", key=key, json=wish, headers=headers)


# -- PATCH -------------------------------------------------------------------------------------------------------------
async def test_what_is_named_changes_and_the_rest_stays(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key, origin=["lender"])
    reply = await patch(hub, worker, key, one["id"], {"name": "other", "event_types": ["*"]})
    after = body(reply)
    assert (reply.status, after["name"], after["event_types"]) == (200, "other", ["*"])
    assert (after["origin"], after["verification_state"], after["revision"]) == (["lender"], "active", 3)
    assert reply.headers["ETag"] == '"3"'
    assert "secret" not in after
    read = await hub.ask(worker, "GET", f"/v1/subscriptions/{one['id']}", key=key)
    assert body(read) == after


async def test_a_changed_address_is_pending_and_the_new_one_gets_nothing(
    hub: Deployment, worker: Worker, key: str
) -> None:
    one = await made(hub, worker, key)
    sent = len(worker.sender.requests)
    reply = await patch(hub, worker, key, one["id"], {"sink": {"url": "https://other.example.com/in"}})
    after = body(reply)
    assert (after["verification_state"], after["enabled"]) == ("pending", True)
    assert after["destination"] == "https://other.example.com/in"
    assert len(worker.sender.requests) == sent
    stored = worker.subscriptions.get("t", one["id"])
    assert stored is not None
    assert not stored.receives
    await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/verify", key=key)
    assert worker.sender.requests[-1].target.host == "other.example.com"


async def test_headers_merge_and_a_mask_keeps_what_it_hides(hub: Deployment, worker: Worker, key: str) -> None:
    sink = {"type": "webhook", "url": URL, "headers": {"X-Api-Key": "canary", "X-Env": "prod", "X-Old": "1"}}
    one = await made(hub, worker, key, sink=sink)
    assert one["sink"]["headers"]["X-Api-Key"] == "***"
    change = {"sink": {"headers": {"X-Api-Key": "***", "X-Old": None, "X-New": "2"}}}
    after = body(await patch(hub, worker, key, one["id"], change))
    assert after["sink"]["headers"] == {"X-Api-Key": "***", "X-Env": "prod", "X-New": "2"}
    stored = worker.subscriptions.get("t", one["id"])
    assert stored is not None
    sealed = dict(stored.sink.headers)["X-Api-Key"]
    assert isinstance(sealed, SealedText)
    assert dict(open_headers(worker.deps.keyring, stored))["X-Api-Key"] == "canary"
    again = body(await patch(hub, worker, key, one["id"], {"sink": {"headers": {"x-api-key": "canary"}}}))
    assert again["sink"]["headers"] == {"x-api-key": "***", "X-Env": "prod", "X-New": "2"}
    before = len(hub.cluster.log)
    await patch(hub, worker, key, one["id"], {"sink": {"headers": {"x-api-key": "canary"}}})
    assert len(hub.cluster.log) == before, "the same value is no change"
    await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/verify", key=key)
    assert b"x-api-key: canary" in worker.sender.requests[-1].head
    assert all(b"canary" not in (entry.record.value or b"") for entry in hub.cluster.log)


@pytest.mark.parametrize("tag", ['"2"', "*", '"7", "2"', ' "2" '])
async def test_the_state_that_was_read_may_be_changed(hub: Deployment, worker: Worker, key: str, tag: str) -> None:
    one = await made(hub, worker, key)
    assert (await patch(hub, worker, key, one["id"], {"name": "x"}, {"If-Match": tag})).status == 200


@pytest.mark.parametrize("tag", ['"1"', "2", 'W/"2"', "", '"2"x'])
async def test_another_state_is_412_and_nothing_changes(hub: Deployment, worker: Worker, key: str, tag: str) -> None:
    one = await made(hub, worker, key)
    path = f"/v1/subscriptions/{one['id']}"
    for reply in (
        await patch(hub, worker, key, one["id"], {"name": "x"}, {"If-Match": tag}),
        await rotate(hub, worker, key, one["id"], None, {"If-Match": tag}),
        await hub.ask(worker, "DELETE", path, key=key, headers={"If-Match": tag}),
    ):
        assert (reply.status, body(reply)["type"]) == (412, PROBLEM + "stale")
        assert reply.headers["ETag"] == '"2"'
        assert "read it again" in body(reply)["errors"][0]["detail"]
    assert body(await hub.ask(worker, "GET", path, key=key))["revision"] == 2


async def test_of_changes_at_once_under_one_etag_one_wins(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    changes = [patch(hub, worker, key, one["id"], {"name": f"n{i}"}, {"If-Match": '"2"'}) for i in range(8)]
    assert sorted(reply.status for reply in await asyncio.gather(*changes)) == [200] + [412] * 7


async def test_changes_at_once_without_an_etag_all_stand(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    wishes: list[dict[str, Any]] = [{"name": "x"}, {"origin": ["a"]}, {"event_types": ["*"]}, {"enabled": False}]
    replies = await asyncio.gather(*(patch(hub, worker, key, one["id"], wish) for wish in wishes))
    assert {reply.status for reply in replies} == {200}
    after = body(await hub.ask(worker, "GET", f"/v1/subscriptions/{one['id']}", key=key))
    assert (after["name"], after["origin"], after["event_types"], after["enabled"]) == ("x", ["a"], ["*"], False)
    assert after["disabled_reason"] == "by_request"


async def test_no_change_writes_nothing(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    records = len(hub.cluster.log)
    reply = await patch(hub, worker, key, one["id"], {"name": "n"})
    assert (reply.status, body(reply)["revision"], len(hub.cluster.log)) == (200, 2, records)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"nmae": "x"}, "/nmae"),
        ({"verify": False}, "/verify"),
        ({"name": ""}, "/name"),
        ({"event_types": []}, "/event_types"),
        ({"sink": {"url": "http://127.0.0.1/"}}, "/sink/url"),
        ({"sink": {"secret": "x"}}, "/sink/secret"),
        ({"sink": {"headers": {"Host": "x"}}}, "/sink/headers/Host"),
        ({"filters": [{"operatorType": "Nope", "key": "a"}]}, "/filters/0/operatorType"),
        ({"id": "x"}, "/id"),
        ([], ""),
    ],
)
async def test_the_field_is_named(hub: Deployment, worker: Worker, key: str, change: object, pointer: str) -> None:
    one = await made(hub, worker, key)
    reply = await patch(hub, worker, key, one["id"], change)
    assert reply.status == 422
    assert pointer in [error["pointer"] for error in body(reply)["errors"]]
    assert all(error["detail"] for error in body(reply)["errors"])


# -- a new secret ------------------------------------------------------------------------------------------------------
def verifies(secret: str, request: Request) -> bool:
    headers = dict(line.split(": ", 1) for line in request.head.decode().split("\r\n") if line)
    lower = {name.lower(): value for name, value in headers.items()}
    try:
        Webhook(secret).verify(request.body, lower)
    except WebhookVerificationError:
        return False
    return True


async def test_during_a_rotation_both_secrets_verify(hub: Deployment) -> None:
    clock = FakeClock()
    worker = await hub.worker(clock=clock)
    key = await hub.key(worker, "t")
    one = await made(hub, worker, key)
    reply = await rotate(hub, worker, key, one["id"], {"overlap": "2d"})
    after = body(reply)
    assert (reply.status, after["revision"], reply.headers["ETag"]) == (200, 3, '"3"')
    assert after["secret"] != one["secret"]

    async def signed_by() -> tuple[bool, bool]:
        await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/verify", key=key)
        request = worker.sender.requests[-1]
        return verifies_at(clock, after["secret"], request), verifies_at(clock, one["secret"], request)

    assert await signed_by() == (True, True)
    assert worker.sender.requests[-1].head.decode().lower().count("v1,") == 2
    clock.advance(2 * DAY_MS - 1)
    assert await signed_by() == (True, True)
    clock.advance(1)
    assert await signed_by() == (True, False)


def verifies_at(clock: FakeClock, secret: str, request: Request) -> bool:
    """The package compares the time-stamp with the machine's clock: it is told again, with the same signatures' key."""
    head = dict(line.split(": ", 1) for line in request.head.decode().split("\r\n") if line)
    headers = {name.lower(): value for name, value in head.items()}
    wanted = Webhook(secret)
    at = datetime.fromtimestamp(int(headers["webhook-timestamp"]), UTC)
    signature = wanted.sign(headers["webhook-id"], at, request.body.decode())
    return signature in headers["webhook-signature"].split(" ")


async def test_the_public_package_verifies_either_secret(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    after = body(await rotate(hub, worker, key, one["id"]))
    await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/verify", key=key)
    request = worker.sender.requests[-1]
    assert verifies(one["secret"], request)
    assert verifies(after["secret"], request)
    assert not verifies("whsec_" + "A" * 43 + "=", request)


async def test_no_overlap_ends_the_old_one_at_once(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    after = body(await rotate(hub, worker, key, one["id"], {"overlap": "0s"}))
    assert after["previous_secret_until"] is None
    await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/verify", key=key)
    assert verifies(after["secret"], worker.sender.requests[-1])
    assert not verifies(one["secret"], worker.sender.requests[-1])


@pytest.mark.parametrize("overlap", ["8d", "-1s", "", "1w", 5, None])
async def test_an_overlap_has_a_form(hub: Deployment, worker: Worker, key: str, overlap: object) -> None:
    one = await made(hub, worker, key)
    reply = await rotate(hub, worker, key, one["id"], {"overlap": overlap})
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (422, "/overlap")
    assert "0s to 7d" in body(reply)["errors"][0]["detail"]


async def test_without_a_kek_nothing_rotates(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    heir = await hub.worker(keks=())
    hub.cluster.give("t", heir)
    reply = await rotate(hub, heir, key, one["id"])
    assert (reply.status, body(reply)["type"]) == (503, PROBLEM + "no-key")
    assert body(await hub.ask(heir, "GET", f"/v1/subscriptions/{one['id']}", key=key))["revision"] == 2


async def test_a_new_secret_is_seen_nowhere_else(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    secret = body(await rotate(hub, worker, key, one["id"], None, {"Idempotency-Key": "r"}))["secret"]
    bare = secret.removeprefix("whsec_")
    assert all(bare not in repr(entry) for entry in hub.cluster.log)
    assert bare.encode() not in (await hub.ask(worker, "GET", "/v1/subscriptions", key=key)).body
    assert bare not in repr(worker.subscriptions.get("t", one["id"]))


# -- idempotency -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("moved", [False, True])
async def test_each_write_is_done_once(hub: Deployment, worker: Worker, key: str, moved: bool) -> None:
    one = await made(hub, worker, key)
    path = f"/v1/subscriptions/{one['id']}"
    asks: list[tuple[str, str, object]] = [
        ("PATCH", path, {"name": "x"}),
        ("POST", f"{path}/secret:rotate", {"overlap": "1h"}),
        ("POST", f"{path}/verify", None),
        ("DELETE", path, None),
    ]
    for number, (method, asked, wish) in enumerate(asks):
        again = {"Idempotency-Key": f"k-{number}", "If-Match": "*"}
        first = await hub.ask(worker, method, asked, key=key, json=wish, headers=again)
        assert (first.status // 100, "Idempotency-Replayed" in first.headers) == (2, False), first
        if moved:
            hub.cluster.give("t", await hub.worker())
        records, probes = len(hub.cluster.log), sum(len(w.sender.requests) for w in hub.cluster.workers)
        second = await hub.ask(worker, method, asked, key=key, json=wish, headers=again)
        assert (second.status, second.headers.get("Idempotency-Replayed")) == (first.status, "true")
        if method != "POST" or not asked.endswith("verify"):
            assert second.json == first.json
        assert len(hub.cluster.log) == records
        assert sum(len(w.sender.requests) for w in hub.cluster.workers) == probes


async def test_another_request_under_the_key_is_422(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    path, again = f"/v1/subscriptions/{one['id']}", {"Idempotency-Key": "k"}
    await patch(hub, worker, key, one["id"], {"name": "x"}, again)
    for reply in (
        await patch(hub, worker, key, one["id"], {"name": "y"}, again),
        await rotate(hub, worker, key, one["id"], None, again),
        await hub.ask(worker, "POST", f"{path}/verify", key=key, headers=again),
        await hub.ask(worker, "DELETE", path, key=key, headers=again),
    ):
        assert (reply.status, body(reply)["type"]) == (422, PROBLEM + "idempotency-reuse")


async def test_the_same_change_twice_at_once_is_one(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    again = {"Idempotency-Key": "k"}
    replies = await asyncio.gather(*(rotate(hub, worker, key, one["id"], None, again) for _ in range(6)))
    assert {reply.status for reply in replies} == {200}
    assert len({body(reply)["secret"] for reply in replies}) == 1
    assert {body(reply)["revision"] for reply in replies} == {3}


async def test_a_change_whose_answer_was_lost_is_found_again(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    worker.write_fails = OutcomeUnknown
    again = {"Idempotency-Key": "k", "If-Match": '"2"'}
    lost = await patch(hub, worker, key, one["id"], {"name": "x"}, again)
    assert (lost.status, "may have been made" in body(lost)["detail"]) == (503, True)
    worker.write_fails = None
    worker.catch_up()
    reply = await patch(hub, worker, key, one["id"], {"name": "x"}, again)
    assert (reply.status, body(reply)["revision"]) == (200, 3)


async def test_an_api_key_is_made_once_and_shown_once(hub: Deployment, worker: Worker) -> None:
    again = {"Idempotency-Key": "k"}
    path = "/admin/tenants/t/keys"
    wish = {"scopes": ["manage"]}
    one = await hub.ask(worker, "POST", path, key=ADMIN_KEY, json=wish, headers=again)
    two = await hub.ask(worker, "POST", path, key=ADMIN_KEY, json=wish, headers=again)
    assert (one.status, two.status, two.headers["Idempotency-Replayed"]) == (201, 201, "true")
    assert body(two) == {**body(one), "key": None}
    other = await hub.ask(worker, "POST", path, key=ADMIN_KEY, json={"scopes": ["receive"]}, headers=again)
    assert (other.status, body(other)["type"]) == (422, PROBLEM + "idempotency-reuse")
    elsewhere = await hub.ask(worker, "POST", "/admin/tenants/u/keys", key=ADMIN_KEY, json=wish, headers=again)
    assert body(elsewhere)["id"] != body(one)["id"]
    place = one.headers["Location"]
    for replayed in (None, "true"):
        gone = await hub.ask(worker, "DELETE", place, key=ADMIN_KEY, headers={"Idempotency-Key": "d"})
        assert (gone.status, gone.headers.get("Idempotency-Replayed")) == (204, replayed)
    after = await hub.ask(worker, "POST", path, key=ADMIN_KEY, json=wish, headers=again)
    assert (after.status, body(after)["type"]) == (409, PROBLEM + "deleted")


async def test_after_its_time_an_idempotency_key_makes_another_api_key(hub: Deployment) -> None:
    clock = FakeClock()
    worker = await hub.worker(clock=clock)
    ids = set()
    for _ in range(3):
        reply = await hub.ask(
            worker,
            "POST",
            "/admin/tenants/t/keys",
            key=ADMIN_KEY,
            json={"scopes": ["manage"]},
            headers={"Idempotency-Key": "k"},
        )
        assert (reply.status, body(reply)["key"] is not None) == (201, True)
        ids.add(body(reply)["id"])
        clock.advance(DAY_MS)
    assert len(ids) == 3


async def test_another_tenant_changes_nothing(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    other = await hub.key(worker, "u")
    assert (await patch(hub, worker, other, one["id"], {"name": "x"})).status == 404
    assert (await rotate(hub, worker, other, one["id"])).status == 404
    assert (await patch(hub, worker, other, one["id"], {"name": ""})).status == 404
