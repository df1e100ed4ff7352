"""What a tenant was told, and what administrators see of everybody's."""

from __future__ import annotations

from typing import Any

import pytest

from agents.operator_log import SCANNED_MAX
from hub_app.domain.ids import tenant_key
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.wire import operator as wire
from hub_app.wire.record import SCHEMA_HEADER, Record
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Reply, Worker

ROUTE = "/v1/operator-events"
EVERYBODYS = "/admin/operator-events"
URL = "https://crm.example.com/in"


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


def tell(
    hub: Deployment, number: int, *, tenant: str = "t", kind: OperatorKind = OperatorKind.WARNED, of: str = "sub_a"
) -> str:
    """An operator event is written; its id."""
    event = OperatorEvent(tenant, kind, 1_767_323_045_000 + number, URL, of, str(number), f"number {number}")
    hub.cluster.append(NAMES.operator, hub.cluster.shard_of(tenant), wire.write(event))
    return event.id


def beside(hub: Deployment, tenant: str) -> str:
    """Another tenant of the same partition."""
    return next(name for name in map(str, range(99)) if hub.cluster.shard_of(name) == hub.cluster.shard_of(tenant))


async def read(hub: Deployment, worker: Worker, key: str, query: str = "") -> dict[str, Any]:
    reply = await hub.ask(worker, "GET", ROUTE + query, key=key)
    assert reply.status == 200, reply
    return body(reply)


async def test_oldest_first_as_they_were_told(hub: Deployment, worker: Worker, key: str) -> None:
    one, two = tell(hub, 1), tell(hub, 2, kind=OperatorKind.DISABLED)
    found = await read(hub, worker, key)
    assert [row["id"] for row in found["operator_events"]] == [one, two]
    assert found["operator_events"][1] == {
        "id": two,
        "kind": "subscription.disabled",
        "at": "2026-01-02T03:04:05.002Z",
        "destination": URL,
        "subscription": "sub_a",
        "detail": "number 2",
    }
    again = await read(hub, worker, key, f"?after={found['next']}")
    assert again == {"operator_events": [], "next": found["next"]}
    three = tell(hub, 3)
    assert [row["id"] for row in (await read(hub, worker, key, f"?after={again['next']}"))["operator_events"]] == [
        three
    ]


async def test_in_pages_without_a_gap_also_among_others(hub: Deployment, worker: Worker, key: str) -> None:
    other, ids = beside(hub, "t"), []
    for number in range(12):
        tell(hub, number, tenant=other)
        ids.append(tell(hub, number))
    seen: list[str] = []
    found = await read(hub, worker, key, "?limit=5")
    while found["operator_events"]:
        seen += [row["id"] for row in found["operator_events"]]
        found = await read(hub, worker, key, f"?limit=5&after={found['next']}")
    assert seen == ids


async def test_of_one_kind_and_one_subscription(hub: Deployment, worker: Worker, key: str) -> None:
    one, two, three = tell(hub, 1), tell(hub, 2, of="sub_b"), tell(hub, 3, kind=OperatorKind.BREAKER_OPENED, of="")
    for query, expected in (
        ("?subscription=sub_b", [two]),
        ("?kind=breaker.opened", [three]),
        ("?kind=subscription.warned", [one, two]),
        ("?kind=subscription.warned&subscription=sub_a", [one]),
    ):
        assert [row["id"] for row in (await read(hub, worker, key, query))["operator_events"]] == expected, query


async def test_told_twice_after_a_crash_is_one(hub: Deployment, worker: Worker, key: str) -> None:
    assert tell(hub, 1) == tell(hub, 1)
    assert len((await read(hub, worker, key))["operator_events"]) == 1


async def test_what_cannot_be_read_is_passed_over(hub: Deployment, worker: Worker, key: str) -> None:
    shard = hub.cluster.shard_of("t")
    for value in (None, b"{", b"[]", b'{"kind": "x"}'):
        hub.cluster.append(NAMES.operator, shard, Record(tenant_key("t"), value, [SCHEMA_HEADER]))
    id = tell(hub, 1)
    assert [row["id"] for row in (await read(hub, worker, key))["operator_events"]] == [id]


async def test_a_tenant_is_told_nothing_of_others(hub: Deployment, worker: Worker, key: str) -> None:
    other = beside(hub, "t")
    mine, theirs = tell(hub, 1), tell(hub, 1, tenant=other)
    assert [row["id"] for row in (await read(hub, worker, key))["operator_events"]] == [mine]
    stranger = await hub.key(worker, other, "manage")
    assert [row["id"] for row in (await read(hub, worker, stranger))["operator_events"]] == [theirs]


async def test_a_cursor_tells_nothing_of_others(hub: Deployment, worker: Worker, key: str) -> None:
    """Nor is it held up by them: what was looked at in vain is not looked at again."""
    other = beside(hub, "t")
    nothing = await read(hub, worker, key)
    for number in range(SCANNED_MAX + 10):
        tell(hub, number, tenant=other)
    mine = tell(hub, 1)
    assert await read(hub, worker, key) == nothing == {"operator_events": [], "next": "start"}
    found = await read(hub, worker, key)
    assert [row["id"] for row in found["operator_events"]] == [mine]
    tell(hub, 1, tenant=other)
    again = await read(hub, worker, key, f"?after={found['next']}")
    assert again == {"operator_events": [], "next": found["next"]}


async def test_behind_what_is_kept(hub: Deployment, worker: Worker, key: str) -> None:
    """410 with where to go on: nothing is skipped in silence. Also where the log is another, shorter one."""
    for number in range(9):
        tell(hub, number)
    hub.cluster.log_begins[NAMES.operator, hub.cluster.shard_of("t")] = 4
    for after in (3, 10):
        reply = await hub.ask(worker, "GET", f"{ROUTE}?after={after}", key=key)
        assert (reply.status, body(reply)["type"][-11:], body(reply)["next"]) == (410, "cursor-gone", "start")
    assert len((await read(hub, worker, key, "?after=4"))["operator_events"]) == 5
    assert len((await read(hub, worker, key, "?after=start"))["operator_events"]) == 5


async def test_asked_at_another_worker(hub: Deployment, worker: Worker, key: str) -> None:
    id = tell(hub, 1)
    other = await hub.worker()
    assert [row["id"] for row in (await read(hub, other, key))["operator_events"]] == [id]


async def test_who_may(hub: Deployment, worker: Worker) -> None:
    for scope in ("receive", "publish"):
        assert (await hub.ask(worker, "GET", ROUTE, key=await hub.key(worker, "t", scope))).status == 403
    assert (await hub.ask(worker, "GET", ROUTE)).status == 401
    assert (await hub.ask(worker, "GET", EVERYBODYS, key=await hub.key(worker, "t", "manage"))).status == 403


@pytest.mark.parametrize(
    "query", ["?after=x", "?after=-1", "?limit=0", "?limit=1001", "?kind=x", "?a=1", "?after=1&after=2"]
)
async def test_a_parameter_is_named(hub: Deployment, worker: Worker, key: str, query: str) -> None:
    reply = await hub.ask(worker, "GET", ROUTE + query, key=key)
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (400, f"?{query[1:].partition('=')[0]}")


async def test_administrators_read_everybodys(hub: Deployment, worker: Worker) -> None:
    ids = {tell(hub, number, tenant=tenant): tenant for number in range(3) for tenant in ("t", "u", "v", "w")}
    seen, cursor = dict[str, str](), ""
    while True:
        found = body(await hub.ask(worker, "GET", f"{EVERYBODYS}?limit=5{cursor}", key=ADMIN_KEY))
        seen |= {row["id"]: row["tenant"] for row in found["operator_events"]}
        if found["next"] is None:
            break
        cursor = f"&cursor={found['next']}"
    assert seen == ids
    of_one = body(await hub.ask(worker, "GET", f"{EVERYBODYS}?tenant=u", key=ADMIN_KEY))["operator_events"]
    assert {row["tenant"] for row in of_one} == {"u"}
