"""What came of attempts: the log of a subscription, its health, the delivery of an event; wherever the shard is."""

from __future__ import annotations

from typing import Any

import pytest

from agents.sinks import Failing, Sink
from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import CLOSED, Breaker
from hub_app.domain.delivery import Job, OutcomeKind
from hub_app.domain.ids import delivery_id, destination_key
from hub_app.domain.instants import rfc3339
from hub_app.domain.limits import HOUR_MS
from hub_app.topics import partition_for
from hub_app.wire.attempts import Outcome
from tables.history import KEPT
from tables.jobs import Row, pack_payload
from tests.fakes.facts import fact
from tests.fakes.workers import Deployment, Reply, Worker

URL = "https://crm.example.com/in"


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def made(hub: Deployment, worker: Worker, key: str, **more: Any) -> str:
    wish = {"name": "n", "event_types": ["loan.*"], "sink": {"type": "webhook", "url": URL}, **more}
    return str(body(await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=wish))["id"])


def job(subscription: str, seq: int, attempt: int = 1, *, tenant: str = "t", series: str = "") -> Job:
    id = delivery_id(tenant, seq, subscription, series)
    return Job(id, attempt, 0, tenant, URL, subscription, series, seq, "lender", 5, 0, 0, 0)


def note(hub: Deployment, *outcomes: Outcome) -> None:
    shard = hub.cluster.sink(shard_of(hub))
    batch = shard.table.store.batch()
    shard.history.note(batch, outcomes)
    shard.table.store.write(batch)


def shard_of(hub: Deployment, tenant: str = "t") -> int:
    return partition_for(destination_key(tenant, URL), hub.cluster.shards)


def failed(worker: Worker, of: Job, ago_ms: int = 1_000, **more: Any) -> Outcome:
    at_ms = worker.clock.now_ms() - ago_ms
    return Outcome(OutcomeKind.FAILED, of, at_ms, 12, 500, "http_500", "", more.get("answer", b"down"))


def delivered(worker: Worker, of: Job, ago_ms: int = 500) -> Outcome:
    return Outcome(OutcomeKind.DELIVERED, of, worker.clock.now_ms() - ago_ms, 7, 200)


async def test_attempts_newest_first(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    note(hub, failed(worker, job(one, 7), answer=b"\xff" + b"x" * 5_000), delivered(worker, job(one, 7, 2)))
    found = body(await hub.ask(worker, "GET", f"/v1/subscriptions/{one}/attempts", key=key))
    assert [(row["outcome"], row["attempt"], row["status"]) for row in found["attempts"]] == [
        ("delivered", 2, 200),
        ("failed", 1, 500),
    ]
    first = found["attempts"][1]
    assert (first["seq"], first["error"], first["duration_ms"], len(first["answer"])) == (7, "http_500", 12, 1_024)
    assert found["next"] is None


async def test_in_pages_and_of_one_event(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    note(hub, *(failed(worker, job(one, seq), ago_ms=10_000 - seq) for seq in range(1, 8)))
    path, seen, cursor = f"/v1/subscriptions/{one}/attempts?limit=3", [], ""
    while True:
        found = body(await hub.ask(worker, "GET", path + cursor, key=key))
        seen += [row["seq"] for row in found["attempts"]]
        if found["next"] is None:
            break
        cursor = f"&cursor={found['next']}"
    assert seen == [7, 6, 5, 4, 3, 2, 1]
    found = body(await hub.ask(worker, "GET", path + "&seq=4", key=key))
    assert ([row["seq"] for row in found["attempts"]], found["next"]) == ([4], None)


async def test_wherever_the_shard_is(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    note(hub, delivered(worker, job(one, 7)))
    other = await hub.worker()
    hub.cluster.sink_owner = dict.fromkeys(range(hub.cluster.shards), other)
    for asked in (worker, other):
        found = body(await hub.ask(asked, "GET", f"/v1/subscriptions/{one}/attempts", key=key))
        assert [row["seq"] for row in found["attempts"]] == [7]
        assert body(await hub.ask(asked, "GET", f"/v1/subscriptions/{one}/health", key=key))["counts"]["delivered"] == 1


async def test_nobody_has_the_shard(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(7))
    hub.cluster.sink_owner = {}
    reply = await hub.ask(worker, "GET", f"/v1/subscriptions/{one}/attempts", key=key)
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    [row] = body(await hub.ask(worker, "GET", "/v1/events/7/why", key=key))["subscriptions"]
    assert (row["matched"], row["delivery"]) == (True, None)


async def test_health_counts_and_shows_what_waits(hub: Deployment, worker: Worker, key: str) -> None:
    one, two = await made(hub, worker, key), await made(hub, worker, key)
    note(hub, *(failed(worker, job(one, seq), ago_ms=seq * 1_000) for seq in range(1, 16)))
    note(hub, delivered(worker, job(one, 20)), delivered(worker, job(two, 20)))
    shard = hub.cluster.sink(shard_of(hub))
    batch = shard.table.store.batch()
    for subscription, due_ms in ((one, 1_767_323_045_000), (one, 1_767_323_046_000), (two, 1_767_323_040_000)):
        waiting = job(subscription, due_ms // 1_000)
        shard.table.put(batch, Row(waiting, due_ms, (), shard.number), pack_payload(((), b"{}")))
    shard.table.store.write(batch)
    found = body(await hub.ask(worker, "GET", f"/v1/subscriptions/{one}/health", key=key))
    assert found["counts"] == {"delivered": 1, "failed": 15, "dead": 0}
    assert (found["backlog"], found["backlog_is_more"], found["attempting"]) == (2, False, 0)
    assert found["oldest_due"] == "2026-01-02T03:04:05.000Z"
    assert [row["outcome"] for row in found["last"]] == ["delivered"] + ["failed"] * 9
    assert (found["breaker"], found["streak"], found["destination"]) == (None, None, URL)


async def test_health_shows_what_is_held_against_the_sink(hub: Deployment, worker: Worker, key: str) -> None:
    """As the worker that attempts it knows it now."""
    one, now_ms = await made(hub, worker, key), worker.clock.now_ms()
    held = hub.cluster.held["t", URL] = Sink(hub.cluster.sink(shard_of(hub)), ("t", URL))
    path = f"/v1/subscriptions/{one}/health"
    held.breaker = Breaker(failures=6, opened_at_ms=now_ms, open_ms=60_000)
    held.failing[one] = Failing(Streak(now_ms - 90 * HOUR_MS, now_ms - HOUR_MS), warned=50)
    found = body(await hub.ask(worker, "GET", path, key=key))
    assert found["breaker"] == {
        "state": "open",
        "failures": 6,
        "opened_at": rfc3339(now_ms),
        "until": rfc3339(now_ms + 60_000),
    }
    assert found["streak"] == {
        "first_failure": rfc3339(now_ms - 90 * HOUR_MS),
        "last_failure": rfc3339(now_ms - HOUR_MS),
        "window_percent": 75,
        "warned_percent": 50,
        "disables_at": rfc3339(now_ms + 30 * HOUR_MS),
        "disable_wanted": False,
    }
    held.failing[one] = Failing(Streak(now_ms - 200 * HOUR_MS, now_ms - 199 * HOUR_MS))
    streak = body(await hub.ask(worker, "GET", path, key=key))["streak"]
    assert (streak["window_percent"], streak["disables_at"]) == (100, None)  # a lone failure disables nobody
    del held.failing[one]
    held.breaker = CLOSED
    found = body(await hub.ask(worker, "GET", path, key=key))
    assert (found["breaker"], found["streak"]) == (None, None)


async def test_why_tells_what_came_of_the_delivery(hub: Deployment, worker: Worker, key: str) -> None:
    hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(7))
    one, two, three = [await made(hub, worker, key, name=name) for name in "abc"]
    note(hub, failed(worker, job(one, 7)), delivered(worker, job(one, 7, 2)), failed(worker, job(two, 7)))
    shard = hub.cluster.sink(shard_of(hub))
    batch = shard.table.store.batch()
    shard.table.put(batch, Row(job(two, 7, 2), 1_767_323_045_000, (), shard.number), pack_payload(((), b"{}")))
    shard.table.store.write(batch)
    rows = body(await hub.ask(worker, "GET", "/v1/events/7/why", key=key))["subscriptions"]
    states = {row["subscription"]: row["delivery"]["state"] for row in rows}
    assert states == {one: "delivered", two: "waiting", three: "unknown"}
    by_id = {row["subscription"]: row["delivery"] for row in rows}
    assert [row["attempt"] for row in by_id[one]["attempts"]] == [2, 1]
    assert by_id[two]["next_at"] == "2026-01-02T03:04:05.000Z"


async def test_another_tenant_sees_nothing(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    note(hub, delivered(worker, job(one, 7)))
    other = await hub.key(worker, "u", "manage")
    for path in ("attempts", "health"):
        assert (await hub.ask(worker, "GET", f"/v1/subscriptions/{one}/{path}", key=other)).status == 404
    # The way between workers: the tenant is the key's, whatever is asked.
    hub.cluster.sink_owner = dict.fromkeys(range(hub.cluster.shards), worker)
    for what in ("attempts", "health", "delivery"):
        asked = f"/internal/sinks/{what}?destination={URL}&subscription={one}&seq=7"
        reply = await hub.ask(worker, "GET", asked, key=other)
        assert reply.status == 200
        assert b'"delivered":1' not in reply.body
        assert b'"status":200' not in reply.body
        assert (await hub.ask(worker, "GET", asked)).status == 401
        assert (await hub.ask(worker, "GET", asked, key=await hub.key(worker, "t", "receive"))).status == 403


@pytest.mark.parametrize("query", ["?cursor=x", "?limit=0", "?seq=-1", "?a=1", "?cursor=" + "0" * 29])
async def test_a_parameter_is_named(hub: Deployment, worker: Worker, key: str, query: str) -> None:
    one = await made(hub, worker, key)
    reply = await hub.ask(worker, "GET", f"/v1/subscriptions/{one}/attempts{query}", key=key)
    assert (reply.status, body(reply)["type"]) == (400, "urn:streaming-hub:problem:query")


async def test_a_history_is_bounded(hub: Deployment, worker: Worker) -> None:
    shard = hub.cluster.sink(0)
    for start in range(0, 5 * KEPT, 100):
        batch = shard.table.store.batch()
        shard.history.note(
            batch, [failed(worker, job("sub_a", seq), ago_ms=10_000_000 - seq) for seq in range(start, start + 100)]
        )
        shard.history.note(batch, [failed(worker, job("sub_b", start), ago_ms=10_000_000 - start)])
        shard.table.store.write(batch)
    newest, more = shard.history.newest("sub_a", b"", limit=10 * KEPT)
    assert [one.seq for one in newest[:KEPT]] == list(range(5 * KEPT - 1, 4 * KEPT - 1, -1))
    assert (len(newest) <= 2 * KEPT, more) == (True, False)
    assert len(shard.history.newest("sub_b", b"", limit=10 * KEPT)[0]) == 50


async def test_what_is_read_again_does_not_push_out_what_is_new(hub: Deployment, worker: Worker) -> None:
    shard = hub.cluster.sink(0)
    batch = shard.table.store.batch()
    shard.history.note(batch, [failed(worker, job("sub_a", 9_999), ago_ms=1)])
    shard.table.store.write(batch)
    batch = shard.table.store.batch()
    old = [failed(worker, job("sub_a", seq), ago_ms=10_000_000 - seq) for seq in range(2 * KEPT)]
    shard.history.note(batch, old, old=True)
    shard.table.store.write(batch)
    newest, _ = shard.history.newest("sub_a", b"", limit=10 * KEPT)
    assert [one.seq for one in newest[:2]] == [9_999, 2 * KEPT - 1]
    assert len(newest) == 2 * KEPT + 1
