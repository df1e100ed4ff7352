"""Subscriptions through the API: made, shown, listed, deleted, verified."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from hub_app.domain.errors import OutcomeUnknown
from hub_app.domain.subscription import Verification
from hub_app.ports import Answer, Failure, Request
from hub_app.web.probe import AT_ONCE_PER_TENANT_MAX
from tests.fakes.clock import FakeClock
from tests.fakes.sender import FakeSender, answers, fails
from tests.fakes.workers import NAMES, Deployment, Reply, Worker

URL = "https://crm.example.com/in"
HOUR_MS = 3_600_000


def wish(**more: Any) -> dict[str, Any]:
    return {"name": "loans to crm", "event_types": ["loan.*"], "sink": {"type": "webhook", "url": URL}, **more}


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def create(
    hub: Deployment, worker: Worker, key: str, json: object = None, *, idempotency: str | None = None
) -> Reply:
    headers = {"Idempotency-Key": idempotency} if idempotency is not None else {}
    asked = wish() if json is None else json
    return await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=asked, headers=headers)


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


# -- create ------------------------------------------------------------------------------------------------------------
async def test_created_probed_and_active(hub: Deployment, worker: Worker, key: str) -> None:
    reply = await create(hub, worker, key, wish(origin=["lender"]))
    made = body(reply)
    assert reply.status == 201
    assert reply.headers["Location"] == f"/v1/subscriptions/{made['id']}"
    assert made["id"].startswith("sub_")
    assert made["secret"].startswith("whsec_")
    assert made["verification"] == {"verified": True, "status": 204, "detail": None}
    assert (made["verification_state"], made["enabled"], made["tenant"]) == ("active", True, "t")
    assert (made["name"], made["event_types"], made["origin"]) == ("loans to crm", ["loan.*"], ["lender"])
    assert (made["sink"]["url"], made["destination"]) == (URL, URL)
    stored = worker.subscriptions.get("t", made["id"])
    assert stored is not None
    assert stored.receives
    assert reply.headers["ETag"] == f'"{stored.revision}"'


async def test_the_secret_is_shown_once_and_sealed_everywhere_else(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key))
    secret, path = made["secret"], f"/v1/subscriptions/{made['id']}"
    read = await hub.ask(worker, "GET", path, key=key)
    assert read.status == 200
    listed = await hub.ask(worker, "GET", "/v1/subscriptions", key=key)
    verified = await hub.ask(worker, "POST", f"{path}/verify", key=key)
    metrics = await hub.ask(worker, "GET", "/metrics")
    for reply in (read, listed, verified, metrics):
        assert secret.removeprefix("whsec_") not in reply.body.decode()
    for entry in hub.cluster.log:
        assert secret.removeprefix("whsec_") not in repr(entry)
    stored = worker.subscriptions.get("t", made["id"])
    assert secret not in repr(stored)
    assert stored is not None
    assert stored.secret not in repr(stored)


async def test_two_subscriptions_have_two_ids_and_secrets(hub: Deployment, worker: Worker, key: str) -> None:
    one, two = body(await create(hub, worker, key)), body(await create(hub, worker, key))
    assert one["id"] != two["id"]
    assert one["secret"] != two["secret"]


async def test_the_probe_can_wait(hub: Deployment, worker: Worker, key: str) -> None:
    reply = await create(hub, worker, key, wish(verify=False))
    assert (reply.status, body(reply)["verification_state"]) == (201, "pending")
    assert "verification" not in body(reply)
    assert worker.sender.requests == []


@pytest.mark.parametrize(
    ("sink", "status", "word"),
    [
        (answers(500), 500, "answered 500; expected any 2xx"),
        (answers(302), 302, "redirects are not followed"),
        (fails("dns", "crm.example.com: not known"), None, "no answer (dns): crm.example.com"),
        (fails("blocked_address", "169.254.169.254: link-local"), None, "blocked_address"),
    ],
)
async def test_a_sink_that_does_not_accept_leaves_it_pending(
    hub: Deployment, worker: Worker, key: str, sink: Any, status: int | None, word: str
) -> None:
    worker.sender.sink = sink
    reply = await create(hub, worker, key)
    made = body(reply)
    assert (reply.status, made["verification_state"], made["enabled"]) == (201, "pending", True)
    assert (made["verification"]["verified"], made["verification"]["status"]) == (False, status)
    assert word in made["verification"]["detail"]


async def test_disabled_stays_disabled_when_the_probe_passes(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key, wish(enabled=False)))
    assert (made["verification_state"], made["enabled"]) == ("active", False)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"name": ""}, "/name"),
        ({"name": 7}, "/name"),
        ({"event_types": []}, "/event_types"),
        ({"event_types": ["loan.app*"]}, "/event_types/0"),
        ({"event_types": ["studio.lerian.lender.loan.approved"]}, "/event_types/0"),
        ({"origin": "lender"}, "/origin"),
        ({"filters": [{"operatorType": "Nope", "key": "a", "value": 1}]}, None),
        ({"sink": {"type": "webhook"}}, "/sink/url"),
        ({"sink": {"type": "webhook", "url": "http://crm.example.com/"}}, "/sink/url"),
        ({"sink": {"type": "webhook", "url": "https://127.0.0.1/"}}, "/sink/url"),
        ({"sink": {"type": "webhook", "url": "https://u:p@crm.example.com/"}}, "/sink/url"),
        ({"sink": {"type": "webhook", "url": URL, "timeout_ms": 10_001}}, "/sink/timeout_ms"),
        ({"sink": {"type": "webhook", "url": URL, "headers": {"Host": "x"}}}, "/sink/headers/Host"),
        ({"sink": {"type": "sqs", "url": URL}}, "/sink/type"),
        ({"sink": {"type": "carrier-pigeon"}}, "/sink/type"),
        ({"enabled": "yes"}, "/enabled"),
        ({"tenant": "other"}, "/tenant"),
        ({"secret": "whsec_x"}, "/secret"),
    ],
)
async def test_the_field_is_named(
    hub: Deployment, worker: Worker, key: str, change: dict[str, Any], pointer: str | None
) -> None:
    reply = await create(hub, worker, key, wish(**change))
    assert (reply.status, reply.headers["Content-Type"]) == (422, "application/problem+json")
    assert all(error["detail"] for error in body(reply)["errors"])
    if pointer is not None:
        assert [error["pointer"] for error in body(reply)["errors"]] == [pointer]
    assert len(worker.subscriptions) == 0


async def test_every_field_at_once(hub: Deployment, worker: Worker, key: str) -> None:
    reply = await create(hub, worker, key, {"nmae": "x", "event_types": 7, "sink": {"type": "webhook", "url": "x"}})
    pointers = {error["pointer"] for error in body(reply)["errors"]}
    assert {"/nmae", "/name", "/event_types", "/sink/url"} <= pointers


async def test_private_sinks_where_the_deployment_allows_them(hub: Deployment) -> None:
    worker = await hub.worker(ALLOW_PRIVATE_SINKS="true")
    key = await hub.key(worker, "t")
    reply = await create(hub, worker, key, wish(sink={"type": "webhook", "url": "HTTP://127.0.0.1:9000"}))
    assert (reply.status, body(reply)["destination"]) == (201, "http://127.0.0.1:9000/")


async def test_without_a_kek_a_signed_sink_is_refused(hub: Deployment) -> None:
    worker = await hub.worker(keks=())
    key = await hub.key(worker, "t")
    reply = await create(hub, worker, key)
    assert reply.status == 503
    assert "Retry-After" not in reply.headers
    assert body(reply)["type"].endswith(":no-key")
    assert len(worker.subscriptions) == 0


async def test_a_tenant_has_its_fill(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key, wish(verify=False)))
    entry = hub.cluster.log[-1]
    for number in range(999):
        copy = orjson.loads(entry.record.value or b"") | {"id": f"sub_{number}"}
        record = entry.record._replace(key=f"t\x1fsub_{number}".encode(), value=orjson.dumps(copy))
        hub.cluster.append(NAMES.subscriptions, entry.partition, record)
    assert worker.subscriptions.count("t") == 1_000
    refused = await create(hub, worker, key)
    assert (refused.status, body(refused)["type"]) == (409, "urn:streaming-hub:problem:limit")
    assert (await hub.ask(worker, "DELETE", f"/v1/subscriptions/{made['id']}", key=key)).status == 204
    assert (await create(hub, worker, key)).status == 201


# -- idempotency -------------------------------------------------------------------------------------------------------
async def test_the_same_request_twice_is_one_subscription(hub: Deployment, worker: Worker, key: str) -> None:
    one = await create(hub, worker, key, idempotency="k-1")
    two = await create(hub, worker, key, idempotency="k-1")
    assert (one.status, two.status) == (201, 201)
    assert (body(one)["id"], body(one)["secret"]) == (body(two)["id"], body(two)["secret"])
    assert two.headers["Idempotency-Replayed"] == "true"
    assert worker.subscriptions.count("t") == 1


async def test_row_32_two_at_once_are_one_subscription(hub: Deployment, worker: Worker, key: str) -> None:
    replies = await asyncio.gather(*(create(hub, worker, key, idempotency="k-1") for _ in range(10)))
    assert {reply.status for reply in replies} == {201}
    assert len({(body(reply)["id"], body(reply)["secret"]) for reply in replies}) == 1
    assert worker.subscriptions.count("t") == 1


async def test_another_body_under_the_same_key_is_422(hub: Deployment, worker: Worker, key: str) -> None:
    await create(hub, worker, key, idempotency="k-1")
    reply = await create(hub, worker, key, wish(name="other"), idempotency="k-1")
    assert (reply.status, body(reply)["type"]) == (422, "urn:streaming-hub:problem:idempotency-reuse")


async def test_a_key_is_a_tenants_own(hub: Deployment, worker: Worker, key: str) -> None:
    other = await hub.key(worker, "u")
    one = await create(hub, worker, key, idempotency="k-1")
    two = await create(hub, worker, other, wish(name="other"), idempotency="k-1")
    assert (one.status, two.status) == (201, 201)
    assert body(one)["id"] != body(two)["id"]


async def test_the_next_owner_answers_the_same(hub: Deployment, worker: Worker, key: str) -> None:
    one = await create(hub, worker, key, idempotency="k-1")
    await hub.ask(worker, "POST", f"/v1/subscriptions/{body(one)['id']}/verify", key=key)
    heir = await hub.worker()
    hub.cluster.give("t", heir)
    two = await create(hub, worker, key, idempotency="k-1")
    assert (body(one)["id"], body(one)["secret"]) == (body(two)["id"], body(two)["secret"])


async def test_an_unknown_outcome_can_be_asked_again(hub: Deployment, worker: Worker, key: str) -> None:
    worker.write_fails = OutcomeUnknown
    assert (await create(hub, worker, key, idempotency="k-1")).status == 503
    worker.write_fails = None
    worker.catch_up()
    assert (await create(hub, worker, key, idempotency="k-1")).status == 201
    assert worker.subscriptions.count("t") == 1


async def test_a_deleted_one_does_not_come_back(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key, idempotency="k-1"))
    await hub.ask(worker, "DELETE", f"/v1/subscriptions/{made['id']}", key=key)
    reply = await create(hub, worker, key, idempotency="k-1")
    assert (reply.status, body(reply)["type"]) == (409, "urn:streaming-hub:problem:deleted")
    assert worker.subscriptions.count("t") == 0


@pytest.mark.parametrize("deleted", [False, True])
async def test_after_its_time_a_key_makes_another_id(hub: Deployment, deleted: bool) -> None:
    clock = FakeClock()
    worker = await hub.worker(clock=clock)
    key = await hub.key(worker, "t")
    one = body(await create(hub, worker, key, idempotency="k-1"))
    if deleted:
        await hub.ask(worker, "DELETE", f"/v1/subscriptions/{one['id']}", key=key)
    clock.advance(24 * HOUR_MS - 1)
    assert (await create(hub, worker, key, idempotency="k-1")).status == (409 if deleted else 201)
    clock.advance(1)
    two = body(await create(hub, worker, key, wish(name="other"), idempotency="k-1"))
    three = body(await create(hub, worker, key, wish(name="other"), idempotency="k-1"))
    assert two["id"] != one["id"]
    assert two["id"] == three["id"]
    assert worker.subscriptions.count("t") == (1 if deleted else 2)


@pytest.mark.parametrize("text", ["", "a b", "x" * 256, "é"])
async def test_a_key_has_a_form(hub: Deployment, worker: Worker, key: str, text: str) -> None:
    reply = await create(hub, worker, key, idempotency=text)
    assert (reply.status, body(reply)["type"]) == (400, "urn:streaming-hub:problem:idempotency-key")


# -- the probe ---------------------------------------------------------------------------------------------------------
async def test_the_probe_is_a_signed_delivery(hub: Deployment, worker: Worker, key: str) -> None:
    sink = {"type": "webhook", "url": URL + "?a=1", "headers": {"X-Env": "prod"}, "timeout_ms": 2_000}
    made = body(await create(hub, worker, key, wish(sink=sink)))
    [request] = worker.sender.requests
    assert (request.target, request.method, request.path) == (
        ("https", "crm.example.com", 443),
        b"POST",
        b"/in?a=1",
    )
    headers = dict(line.split(": ", 1) for line in request.head.decode().split("\r\n") if line)
    assert headers["ce-type"] == "studio.lerian.streaming-hub.subscription.verification"
    assert headers["X-Lerian-Event-Type"] == "subscription.verification"
    assert (headers["ce-tenantid"], headers["X-Env"], headers["User-Agent"]) == ("t", "prod", "streaming-hub/0.0.0")
    assert headers["Content-Type"] == "application/json"
    assert worker.sender.timeouts_ms == [(5_000, 2_000)]
    event = orjson.loads(request.body)
    assert event["subscription"] == made["id"]


async def test_a_public_library_verifies_the_probe(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key))
    [request] = worker.sender.requests
    headers = dict(line.lower().split(": ", 1) for line in request.head.decode().split("\r\n") if line)
    signature = next(line for line in request.head.decode().split("\r\n") if line.startswith("webhook-signature"))
    headers["webhook-signature"] = signature.split(": ", 1)[1]
    assert Webhook(made["secret"]).verify(request.body, headers)


# -- read, list, delete ------------------------------------------------------------------------------------------------
async def test_read_and_delete(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key))
    path = f"/v1/subscriptions/{made['id']}"
    read = await hub.ask(worker, "GET", path, key=key)
    assert body(read) == {name: made[name] for name in made if name not in ("secret", "verification")}
    assert (await hub.ask(worker, "DELETE", path, key=key)).status == 204
    assert (await hub.ask(worker, "DELETE", path, key=key)).status == 404
    assert (await hub.ask(worker, "GET", path, key=key)).status == 404


async def test_a_list_in_pages(hub: Deployment, worker: Worker, key: str) -> None:
    made = [body(await create(hub, worker, key, wish(verify=False)))["id"] for _ in range(5)]
    first = body(await hub.ask(worker, "GET", "/v1/subscriptions?limit=3", key=key))
    rest = body(await hub.ask(worker, "GET", f"/v1/subscriptions?limit=3&cursor={first['next']}", key=key))
    seen = [row["id"] for row in first["subscriptions"] + rest["subscriptions"]]
    assert (len(first["subscriptions"]), rest["next"]) == (3, None)
    assert sorted(seen) == sorted(made)
    assert body(await hub.ask(worker, "GET", "/v1/subscriptions?limit=5", key=key))["next"] is None


async def test_a_tenant_sees_and_touches_only_its_own(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key))
    path = f"/v1/subscriptions/{made['id']}"
    for tenant in ("u", "t ", "T", "t/"):
        other = await hub.key(worker, tenant)
        for method, asked in (("GET", path), ("DELETE", path), ("POST", f"{path}/verify")):
            assert (await hub.ask(worker, method, asked, key=other)).status == 404
        assert body(await hub.ask(worker, "GET", "/v1/subscriptions", key=other))["subscriptions"] == []
    assert worker.subscriptions.get("t", made["id"]) is not None


# -- verify ------------------------------------------------------------------------------------------------------------
async def test_verify_enables_and_activates(hub: Deployment, worker: Worker, key: str) -> None:
    worker.sender.sink = answers(500)
    made = body(await create(hub, worker, key, wish(enabled=False)))
    path = f"/v1/subscriptions/{made['id']}"
    failed = await hub.ask(worker, "POST", f"{path}/verify", key=key)
    assert (failed.status, body(failed)["errors"][0]["pointer"]) == (422, "/sink/url")
    assert body(failed)["verification"]["status"] == 500
    unchanged = worker.subscriptions.get("t", made["id"])
    assert unchanged is not None
    assert (unchanged.enabled, unchanged.verification_state) == (False, Verification.PENDING)
    assert unchanged.revision == made["revision"]
    worker.sender.sink = answers(202)
    reply = await hub.ask(worker, "POST", f"{path}/verify", key=key)
    assert (reply.status, body(reply)["verification_state"], body(reply)["enabled"]) == (200, "active", True)
    assert body(reply)["verification"] == {"verified": True, "status": 202, "detail": None}
    assert body(reply)["revision"] > made["revision"]


async def test_deleted_while_it_is_probed(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key, wish(verify=False)))
    path = f"/v1/subscriptions/{made['id']}"

    async def deletes(_request: Request) -> Answer | Failure:
        assert (await hub.ask(worker, "DELETE", path, key=key)).status == 204
        return Answer(200, None, b"", False)

    worker.sender.sink = deletes
    assert (await hub.ask(worker, "POST", f"{path}/verify", key=key)).status == 409
    assert worker.subscriptions.count("t") == 0


async def test_probes_of_a_tenant_are_bounded_and_others_go_on(hub: Deployment, worker: Worker, key: str) -> None:
    other = await hub.key(worker, "u")
    made = body(await create(hub, worker, key, wish(verify=False)))
    path = f"/v1/subscriptions/{made['id']}/verify"
    release = asyncio.Event()

    async def hangs(_request: Request) -> Answer | Failure:
        await release.wait()
        return Answer(200, None, b"", False)

    worker.sender.sink = hangs
    hanging = [asyncio.create_task(hub.ask(worker, "POST", path, key=key)) for _ in range(AT_ONCE_PER_TENANT_MAX)]
    async with asyncio.timeout(5):
        while len(worker.sender.requests) < AT_ONCE_PER_TENANT_MAX:
            await asyncio.sleep(0)
    busy = await hub.ask(worker, "POST", path, key=key)
    assert (busy.status, busy.headers["Retry-After"]) == (429, "2")
    beside = asyncio.create_task(create(hub, worker, other))
    async with asyncio.timeout(5):
        while len(worker.sender.requests) == AT_ONCE_PER_TENANT_MAX:
            await asyncio.sleep(0)
    release.set()
    assert {reply.status for reply in await asyncio.gather(*hanging)} == {200}
    assert (await beside).status == 201


async def test_a_secret_that_cannot_be_opened_is_our_fault(hub: Deployment, worker: Worker, key: str) -> None:
    made = body(await create(hub, worker, key, wish(verify=False)))
    heir = await hub.worker(keks=("K2",), sender=FakeSender())
    hub.cluster.give("t", heir)
    reply = await hub.ask(heir, "POST", f"/v1/subscriptions/{made['id']}/verify", key=key)
    assert (reply.status, body(reply)["type"]) == (503, "urn:streaming-hub:problem:no-key")
    assert heir.sender.requests == []


async def test_everything_works_from_a_worker_that_owns_nothing(hub: Deployment, worker: Worker, key: str) -> None:
    other = await hub.worker()
    made = body(await create(hub, other, key, idempotency="k-1"))
    path = f"/v1/subscriptions/{made['id']}"
    assert (await hub.ask(other, "GET", path, key=key)).status == 200
    assert (await hub.ask(other, "POST", f"{path}/verify", key=key)).status == 200
    assert (await hub.ask(other, "DELETE", path, key=key)).status == 204
    assert other.sender.requests == []
    assert len(worker.sender.requests) == 2
