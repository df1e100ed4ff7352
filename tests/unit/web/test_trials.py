"""Trying out: previews of drafts, why an event went where it went, a test event."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from standardwebhooks import Webhook

from hub_app.ports import Answer, Request
from hub_app.web.preview import EVENTS_MAX
from tests.fakes.facts import fact
from tests.fakes.sender import fails
from tests.fakes.workers import Deployment, Reply, Worker

URL = "https://crm.example.com/in"
PREVIEW = "/v1/subscriptions:preview"
DRAFT = {"event_types": ["loan.*"], "filters": [{"operatorType": "NumberGreaterThan", "key": "data.n", "value": 5}]}


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def preview(hub: Deployment, worker: Worker, key: str, **wish: Any) -> Reply:
    return await hub.ask(worker, "POST", PREVIEW, key=key, json=wish)


async def made(hub: Deployment, worker: Worker, key: str, **more: Any) -> dict[str, Any]:
    wish = {"name": "n", "event_types": ["loan.*"], "sink": {"type": "webhook", "url": URL}, **more}
    return body(await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=wish))


# -- preview of a sample -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("event", "condition"),
    [
        ({"type": "loan.approved", "data": {"n": 6}}, None),
        ({"type": "studio.lerian.lender.loan.approved", "data": {"n": 6}}, None),
        ({"type": "any", "resourcetype": "loan", "eventtype": "x", "data": {"n": 6}}, None),
        ({"type": "loan.approved", "data_base64": "eyJuIjo2fQ=="}, None),
        ({"type": "card.made", "data": {"n": 6}}, "event_types"),
        ({"type": "loan.approved", "data": {"n": 5}}, "filters"),
        ({"type": "loan.approved"}, "filters"),
        ({"type": "loan.approved", "data": {"n": 6}, "datacontenttype": "text/plain"}, "filters"),
    ],
)
async def test_a_sample(
    hub: Deployment, worker: Worker, key: str, event: dict[str, Any], condition: str | None
) -> None:
    reply = await preview(hub, worker, key, subscription=DRAFT, event=event)
    assert (reply.status, body(reply)["matched"]) == (200, condition is None)
    why = body(reply)["why_not"]
    assert (why and why["condition"]) == condition
    assert worker.subscriptions.count("t") == 0
    assert worker.sender.requests == []


async def test_the_origin_of_a_sample(hub: Deployment, worker: Worker, key: str) -> None:
    draft = {"event_types": ["*"], "origin": ["lender"]}
    for event, matched in (
        ({"type": "studio.lerian.lender.loan.approved"}, True),
        ({"type": "loan.approved", "source": "lender"}, True),
        ({"type": "loan.approved", "source": "cards"}, False),
        ({"type": "loan.approved"}, False),
    ):
        assert body(await preview(hub, worker, key, subscription=draft, event=event))["matched"] is matched


@pytest.mark.parametrize(
    ("wish", "pointer"),
    [
        ({}, "/subscription"),
        ({"subscription": []}, "/subscription"),
        ({"subscription": DRAFT}, ""),
        ({"subscription": DRAFT, "event": {"type": "a.b"}, "range": {"from_seq": 0}}, ""),
        ({"subscription": {}, "event": {"type": "a.b"}}, "/subscription/event_types"),
        ({"subscription": {**DRAFT, "evnt": 1}, "event": {"type": "a.b"}}, "/subscription/evnt"),
        ({"subscription": DRAFT, "event": {}}, "/event/type"),
        ({"subscription": DRAFT, "event": {"type": "a.b", "Bad": "x"}}, "/event/Bad"),
        ({"subscription": DRAFT, "event": {"type": "a.b", "subject": "a\nb"}}, "/event/subject"),
        ({"subscription": DRAFT, "event": {"type": "a.b", "data_base64": "%"}}, "/event/data_base64"),
        ({"subscription": DRAFT, "event": {"type": "a.b", "data": 1, "data_base64": ""}}, "/event/data_base64"),
        ({"subscription": DRAFT, "range": {}}, "/range"),
        ({"subscription": DRAFT, "range": {"from_seq": -1}}, "/range/from_seq"),
        ({"subscription": DRAFT, "range": {"from_seq": 2, "to_seq": 1}}, "/range/to_seq"),
        ({"subscription": DRAFT, "range": {"from": "yesterday"}}, "/range/from"),
        ({"subscription": DRAFT, "range": {"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T00:00:00Z"}}, "/range/to"),
        ({"subscription": DRAFT, "sample": {}}, "/sample"),
    ],
)
async def test_the_field_is_named(
    hub: Deployment, worker: Worker, key: str, wish: dict[str, Any], pointer: str
) -> None:
    reply = await preview(hub, worker, key, **wish)
    assert reply.status == 422
    assert pointer in [error["pointer"] for error in body(reply)["errors"]]
    assert all(error["detail"] for error in body(reply)["errors"])


# -- preview of the past -----------------------------------------------------------------------------------------------
async def test_the_past(hub: Deployment, worker: Worker, key: str) -> None:
    inbox = hub.cluster.inboxes[hub.cluster.shard_of("t")]
    inbox.add(*(fact(seq, value=b'{"n":%d}' % seq, event_type="loan.approved") for seq in range(1, 31)))
    inbox.add(*(fact(seq, value=b"{}", event_type="card.made") for seq in range(31, 61)))
    inbox.add(fact(61, "u", value=b'{"n":99}'))
    found = body(await preview(hub, worker, key, subscription=DRAFT, range={"from_seq": 3, "to_seq": 100}))
    assert (found["looked_at"], found["matched"], found["next_seq"]) == (58, 25, None)
    assert [row["seq"] for row in found["first"]] == list(range(6, 16))
    assert [(row["seq"], row["condition"]) for row in found["why_not"][:4]] == [
        (3, "filters"),
        (4, "filters"),
        (5, "filters"),
        (31, "event_types"),
    ]
    assert len(found["why_not"]) == 10


async def test_a_look_at_the_past_is_bounded(hub: Deployment, worker: Worker, key: str) -> None:
    inbox = hub.cluster.inboxes[hub.cluster.shard_of("t")]
    inbox.add(*(fact(seq) for seq in range(1, EVENTS_MAX + 6)))
    draft = {"event_types": ["*"]}
    first = body(await preview(hub, worker, key, subscription=draft, range={"from_seq": 0}))
    assert (first["looked_at"], first["next_seq"]) == (EVENTS_MAX, EVENTS_MAX + 1)
    rest = body(await preview(hub, worker, key, subscription=draft, range={"from_seq": first["next_seq"]}))
    assert (rest["looked_at"], rest["next_seq"]) == (5, None)


# -- why ---------------------------------------------------------------------------------------------------------------
async def test_why_says_of_each_what_keeps_it(hub: Deployment, worker: Worker, key: str) -> None:
    hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(7))
    wishes: list[dict[str, Any]] = [
        {"name": "a"},
        {"name": "b", "enabled": False},
        {"name": "c", "verify": False},
        {"name": "d", "event_types": ["card.*"]},
        {"name": "e", "origin": ["cards"]},
        {"name": "f", "filters": [{"operatorType": "IsNotNull", "key": "data.x"}]},
    ]
    for wish in wishes:
        await made(hub, worker, key, **wish)
    found = body(await hub.ask(worker, "GET", "/v1/events/7/why", key=key))
    assert (found["seq"], found["event_type"], found["source"]) == (7, "loan.approved", "lender")
    by_name = {row["name"]: row["why_not"] and row["why_not"]["condition"] for row in found["subscriptions"]}
    assert by_name == {
        "a": None,
        "b": "enabled",
        "c": "verification_state",
        "d": "event_types",
        "e": "origin",
        "f": "filters",
    }
    assert [row["name"] for row in found["subscriptions"] if row["matched"]] == ["a"]


@pytest.mark.parametrize("seq", ["8", "x", "-1", "9" * 30])
async def test_why_of_an_event_that_is_not_there(hub: Deployment, worker: Worker, key: str, seq: str) -> None:
    hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(7))
    assert (await hub.ask(worker, "GET", f"/v1/events/{seq}/why", key=key)).status == 404


# -- a test event ------------------------------------------------------------------------------------------------------
async def test_a_test_event_is_signed_and_sent_once(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)

    async def says(_request: Request) -> Answer:
        return Answer(503, "5", b"down for \xff repair" + b"." * 5_000, False)

    worker.sender.sink = says
    before = len(worker.sender.requests)
    wish = {"data": {"hello": [1, 2.5, None]}}
    reply = await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/test", key=key, json=wish)
    found = body(reply)
    assert (reply.status, found["delivered"], found["status"], found["error"]) == (200, False, 503, "http_503")
    assert found["answer"].startswith("down for \ufffd repair")
    assert len(found["answer"]) <= 1_024
    [request] = worker.sender.requests[before:]
    assert orjson.loads(request.body) == wish["data"]
    head = dict(line.split(": ", 1) for line in request.head.decode().split("\r\n") if line)
    headers = {name.lower(): value for name, value in head.items()}
    assert headers["ce-type"] == "studio.lerian.streaming-hub.subscription.test"
    assert headers["webhook-id"] == found["event_id"]
    assert headers["x-lerian-delivery-id"] == found["delivery_id"]
    Webhook(one["secret"]).verify(request.body, headers)


async def test_a_test_event_that_gets_no_answer(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    worker.sender.sink = fails("timeout", "https://u:hunter2@crm.example.com/?token=hunter2 did not answer")
    reply = await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/test", key=key)
    assert (body(reply)["delivered"], body(reply)["status"], body(reply)["error"]) == (False, None, "timeout")
    assert "hunter2" not in reply.body.decode()


async def test_no_test_event_to_an_address_that_was_never_verified(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key, verify=False)
    reply = await hub.ask(worker, "POST", f"/v1/subscriptions/{one['id']}/test", key=key)
    assert (reply.status, body(reply)["type"]) == (409, "urn:streaming-hub:problem:not-active")
    assert worker.sender.requests == []


async def test_a_queue_has_no_secret_and_is_not_probed(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key, sink={"type": "queue", "topic": "lender", "name": "crm"})
    assert (one["verification_state"], "secret" in one, one["destination"]) == ("active", False, "queue:lender/crm")
    path = f"/v1/subscriptions/{one['id']}"
    for asked in ("test", "secret:rotate"):
        reply = await hub.ask(worker, "POST", f"{path}/{asked}", key=key)
        assert (reply.status, body(reply)["type"]) == (409, "urn:streaming-hub:problem:not-a-webhook"), asked
    await hub.ask(worker, "PATCH", path, key=key, json={"enabled": False})
    assert body(await hub.ask(worker, "POST", f"{path}/verify", key=key))["enabled"] is True
    assert worker.sender.requests == []
