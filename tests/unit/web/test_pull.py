"""Pulling facts by seq: cursors, filters, the long poll, and what an event looks like."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import orjson
import pytest

from hub_app.domain.fact import JsonFact, OpaqueFact
from hub_app.web.pull import PAGE_BYTES_MAX, event_json
from tests.fakes.facts import fact
from tests.fakes.workers import Deployment, Reply, Worker


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "receive")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


def seqs(reply: Reply) -> list[int]:
    assert reply.status == 200, reply.body
    return [event["seq"] for event in body(reply)["events"]]


async def pull(hub: Deployment, worker: Worker, key: str, query: str = "") -> Reply:
    return await hub.ask(worker, "GET", f"/v1/events{query}", key=key)


def add(hub: Deployment, *given: int, tenant: str = "t", **fields: Any) -> None:
    shard = hub.cluster.shard_of(tenant)
    hub.cluster.inboxes[shard].add(*(fact(seq, tenant, **fields) for seq in given))


# -- cursors -----------------------------------------------------------------------------------------------------------
async def test_from_nothing_to_the_first_fact(hub: Deployment, worker: Worker, key: str) -> None:
    empty = body(await pull(hub, worker, key))
    assert empty == {"events": [], "next": "start", "head": None}
    add(hub, 0, 1)
    assert seqs(await pull(hub, worker, key, f"?after={empty['next']}")) == [0, 1]


async def test_next_leads_through_all_facts_once(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, *range(0, 50, 3))
    seen: list[int] = []
    query = "?limit=4"
    while True:
        reply = await pull(hub, worker, key, query)
        if not seqs(reply):
            break
        assert body(reply)["head"] == 48
        seen += seqs(reply)
        query = f"?limit=4&after={body(reply)['next']}"
    assert seen == list(range(0, 50, 3))
    assert body(reply)["next"] == "48"


async def test_a_seq_is_a_cursor(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, 0, 4, 9)
    assert seqs(await pull(hub, worker, key, "?after=0")) == [4, 9]
    assert seqs(await pull(hub, worker, key, "?after=5")) == [9]
    beyond = await pull(hub, worker, key, f"?after={(1 << 63) - 1}")
    assert (seqs(beyond), body(beyond)["next"]) == ([], str((1 << 63) - 1))


async def test_a_cursor_behind_retention_is_gone_and_never_skips(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, *range(10))
    hub.cluster.inboxes[hub.cluster.shard_of("t")].expire(5)
    for cursor in ("start", "0", "4"):
        reply = await pull(hub, worker, key, f"?after={cursor}")
        assert reply.status == 410
        assert (body(reply)["oldest"], body(reply)["next"]) == (6, "5")
    assert seqs(await pull(hub, worker, key, "?after=5")) == [6, 7, 8, 9]
    assert seqs(await pull(hub, worker, key)) == [6, 7, 8, 9]


async def test_everything_is_gone(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, *range(3))
    hub.cluster.inboxes[hub.cluster.shard_of("t")].expire(2)
    reply = body(await pull(hub, worker, key))
    assert reply == {"events": [], "next": "2", "head": None}
    assert body(await pull(hub, worker, key, "?after=1"))["oldest"] is None


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("after=x", "?after"),
        ("after=-1", "?after"),
        ("after=", "?after"),
        ("after=1.0", "?after"),
        ("after=9223372036854775808", "?after"),
        ("after=%D9%A3", "?after"),
        ("limit=0", "?limit"),
        ("limit=1001", "?limit"),
        ("limit=00000001001", "?limit"),
        ("limit=abc", "?limit"),
        ("wait=31", "?wait"),
        ("wait=-1", "?wait"),
        ("wait=1.5", "?wait"),
        ("type=", "?type"),
        ("type=loan.approve*", "?type"),
        ("type=studio.lerian.lender.loan.approved", "?type"),
        ("&".join(["origin=x"] * 51), "?origin"),
        ("cursor=1", "?cursor"),
    ],
)
async def test_a_query_is_judged_by_name(hub: Deployment, worker: Worker, key: str, query: str, pointer: str) -> None:
    reply = await pull(hub, worker, key, f"?{query}")
    assert reply.status == 400
    assert body(reply)["errors"][0]["pointer"] == pointer


# -- filters -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("type=loan.approved", [0, 3]),
        ("type=loan.*", [0, 1, 3]),
        ("type=*.approved", [0, 2, 3]),
        ("type=*", [0, 1, 2, 3]),
        ("type=loan.denied&type=card.approved", [1, 2]),
        ("origin=cards", [2]),
        ("origin=cards&origin=other", [2, 3]),
        ("origin=other&type=loan.*", [3]),
        ("origin=nobody", []),
        ("type=loan", []),
    ],
)
async def test_filters(hub: Deployment, worker: Worker, key: str, query: str, expected: list[int]) -> None:
    add(hub, 0)
    add(hub, 1, event_type="loan.denied")
    add(hub, 2, event_type="card.approved", source="cards")
    add(hub, 3, source="other")
    reply = await pull(hub, worker, key, f"?{query}")
    assert seqs(reply) == expected
    assert body(reply)["next"] == "3"  # what does not match is passed over, not read again


# -- isolation ---------------------------------------------------------------------------------------------------------
async def test_a_tenant_sees_its_own(hub: Deployment, worker: Worker, key: str) -> None:
    same_shard = next(f"t{n}" for n in range(99) if hub.cluster.shard_of(f"t{n}") == hub.cluster.shard_of("t"))
    add(hub, 1)
    add(hub, 2, tenant=same_shard)
    other = await hub.key(worker, same_shard, "receive")
    assert seqs(await pull(hub, worker, key)) == [1]
    assert seqs(await pull(hub, worker, other)) == [2]
    assert (await hub.ask(worker, "GET", "/v1/events/1", key=key)).status == 200
    assert (await hub.ask(worker, "GET", "/v1/events/1", key=other)).status == 404
    assert (await hub.ask(worker, "GET", "/v1/events/2", key=key)).status == 404


@pytest.mark.parametrize("seq", ["x", "-1", "1.0", "99999999999999999999", "%00", "9"])
async def test_no_such_event(hub: Deployment, worker: Worker, key: str, seq: str) -> None:
    assert (await hub.ask(worker, "GET", f"/v1/events/{seq}", key=key)).status == 404


# -- weight ------------------------------------------------------------------------------------------------------------
async def test_a_page_has_a_weight(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, *range(10), value=b'"' + b"x" * 1_000_000 + b'"')
    reply = await pull(hub, worker, key, "?limit=1000")
    assert seqs(reply) == [0, 1, 2, 3]
    assert len(reply.body) < PAGE_BYTES_MAX + 10_000


# -- long poll ---------------------------------------------------------------------------------------------------------
async def waiting(worker: Worker, count: int = 1) -> None:
    async with asyncio.timeout(5):
        while len(worker.arrivals) < count:
            await asyncio.sleep(0)


async def test_a_poll_answers_at_once_when_there_is_something(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, 1)
    async with asyncio.timeout(5):
        assert seqs(await pull(hub, worker, key, "?wait=30")) == [1]


async def test_a_poll_ends_with_its_time(hub: Deployment, worker: Worker, key: str) -> None:
    add(hub, 1)
    reply = await pull(hub, worker, key, "?after=1&wait=1")
    assert (seqs(reply), body(reply)["next"]) == ([], "1")


async def test_a_poll_wakes_for_what_it_wants(hub: Deployment, worker: Worker, key: str) -> None:
    task = asyncio.create_task(pull(hub, worker, key, "?wait=30&type=loan.approved"))
    await waiting(worker)
    add(hub, 1, event_type="loan.denied")
    worker.arrivals.notify("t")
    worker.arrivals.notify("u")
    await waiting(worker)
    assert not task.done()
    add(hub, 2)
    worker.arrivals.notify("t")
    async with asyncio.timeout(5):
        reply = await task
    assert (seqs(reply), body(reply)["next"]) == ([2], "2")


@pytest.mark.parametrize("end", ["moves", "stops"])
async def test_a_poll_ends_empty_with_the_place_reached(hub: Deployment, worker: Worker, key: str, end: str) -> None:
    add(hub, 1)
    task = asyncio.create_task(pull(hub, worker, key, "?after=1&wait=30"))
    await waiting(worker)
    if end == "moves":
        hub.cluster.give("t", None)
    else:
        worker.is_stopping = True
        worker.arrivals.notify_all()
    async with asyncio.timeout(5):
        reply = await task
    assert (seqs(reply), body(reply)["next"]) == ([], "1")


async def test_many_polls_wait_side_by_side(hub: Deployment, worker: Worker, key: str) -> None:
    tasks = [asyncio.create_task(pull(hub, worker, key, "?wait=30")) for _ in range(50)]
    await waiting(worker, 50)
    add(hub, 7)
    worker.arrivals.notify("t")
    async with asyncio.timeout(10):
        assert all(seqs(reply) == [7] for reply in await asyncio.gather(*tasks))
    assert len(worker.arrivals) == 0


# -- events ------------------------------------------------------------------------------------------------------------
def test_an_event_is_cloudevents_json() -> None:
    event = orjson.loads(orjson.dumps(event_json(fact(7, subject="s1", traceid="x", value=b'{"a":1}'))))
    assert event == {
        "specversion": "1.0",
        "id": "id-7",
        "source": "lender",
        "type": "studio.lerian.lender.loan.approved",
        "time": "2026-01-02T03:04:05.123456789+02:00",
        "schemaversion": "1.0.0",
        "resourcetype": "loan",
        "eventtype": "approved",
        "tenantid": "t",
        "datacontenttype": "application/json",
        "subject": "s1",
        "traceid": "x",
        "seq": 7,
        "receivedat": "2026-01-02T03:04:05.678Z",
        "data": {"a": 1},
    }


@pytest.mark.parametrize(
    ("content_type", "value", "is_data"),
    [
        ("application/json", b'{"b":1,"a":2,"b":3}', True),
        ("application/json", b' [1.0, 1, "\\u00e9"]\n', True),
        ("application/vnd.x+json; charset=utf-8", b"null", True),
        ("application/json", b"{", False),
        ("application/json", b"NaN", False),
        ("application/json", b'"\xff"', False),
        ("application/json", b"\xef\xbb\xbf{}", False),
        ("application/json", b"[" * 2_000 + b"]" * 2_000, False),
        ("text/plain", b'{"a":1}', False),
        ("application/octet-stream", b"\0\1", False),
        ("", b"{}", False),
    ],
)
def test_data_only_if_json_by_name_and_by_content(content_type: str, value: bytes, is_data: bool) -> None:
    event = orjson.dumps(event_json(fact(1, content_type=content_type, value=value)))
    if is_data:
        assert event.endswith(b'"data":' + value + b"}")  # byte for byte
    else:
        parsed = orjson.loads(event)
        assert base64.b64decode(parsed["data_base64"]) == value
        assert "data" not in parsed


def test_what_is_known_to_be_json_is_not_looked_at_again() -> None:
    """The bytes go out as they are: here are some that no parser would have let through."""
    odd = b'{"n": 1.0, "n": 01}'
    assert b'"data":' + odd in orjson.dumps(event_json(JsonFact(*fact(7, value=odd))))
    assert event_json(OpaqueFact(*fact(7, value=b"{}")))["data_base64"] == "e30="
    assert event_json(fact(7, value=odd))["data_base64"] == base64.b64encode(odd).decode()


def test_no_payload_is_no_data() -> None:
    event = event_json(fact(1, value=b""))
    assert "data" not in event
    assert "data_base64" not in event


@pytest.mark.parametrize(
    "header", ["ce-seq", "ce-data", "ce-receivedat", "ce-has_underscore", "ce-" + "x" * 21, "x-other"]
)
def test_no_header_takes_the_place_of_a_member(header: str) -> None:
    plain = fact(1, value=b'{"a":1}')
    event = orjson.loads(orjson.dumps(event_json(plain._replace(headers=(*plain.headers, (header, b"forged"))))))
    assert "forged" not in event.values()


def test_trace_headers_are_carried() -> None:
    plain = fact(1)
    event = event_json(plain._replace(headers=(*plain.headers, ("traceparent", b"00-a-b-01"))))
    assert event["traceparent"] == "00-a-b-01"
