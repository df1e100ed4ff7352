"""Replays through the API: begun once, carried out in steps, resumed by the next owner, cancelled, forgotten."""

from __future__ import annotations

from typing import Any

import pytest

from agents.operations import STEP_EVENTS_MAX
from hub_app.domain.delivery import Job
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.ids import delivery_id
from hub_app.domain.operation import KEPT_MS, RUNNING_PER_TENANT_MAX
from hub_app.wire import jobs as wire_jobs
from tests.fakes.clock import FakeClock
from tests.fakes.facts import fact
from tests.fakes.workers import NAMES, Deployment, Reply, Worker

URL = "https://crm.example.com/in"
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


async def replay(hub: Deployment, worker: Worker, key: str, id: str, wish: object, again: str = "") -> Reply:
    headers = {"Idempotency-Key": again} if again else {}
    return await hub.ask(worker, "POST", f"/v1/subscriptions/{id}/replay", key=key, json=wish, headers=headers)


def deliveries(hub: Deployment) -> list[Job]:
    jobs = [wire_jobs.read(entry.record.headers) for entry in hub.cluster.log if entry.topic == NAMES.deliveries]
    assert all(isinstance(job, Job) for job in jobs)
    return [job for job in jobs if isinstance(job, Job)]


def fill(hub: Deployment, count: int, **more: Any) -> None:
    inbox = hub.cluster.inboxes[hub.cluster.shard_of("t")]
    inbox.add(*(fact(seq, received_at_ms=1_000_000 + seq, **more) for seq in range(1, count + 1)))


async def state(hub: Deployment, worker: Worker, key: str, id: str) -> dict[str, Any]:
    reply = await hub.ask(worker, "GET", f"/v1/operations/{id}", key=key)
    assert reply.status == 200
    return body(reply)


async def test_a_range_is_delivered_anew(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 9)
    one = await made(hub, worker, key)
    reply = await replay(hub, worker, key, one["id"], {"from_seq": 3, "to_seq": 7})
    begun = body(reply)
    assert (reply.status, reply.headers["Location"]) == (202, f"/v1/operations/{begun['id']}")
    assert (begun["state"], begun["kind"], begun["subscription"]) == ("running", "replay", one["id"])
    await worker.run_operations()
    over = await state(hub, worker, key, begun["id"])
    assert (over["state"], over["looked_at"], over["made"]) == ("done", 5, 5)
    jobs = deliveries(hub)
    assert [job.seq for job in jobs] == [3, 4, 5, 6, 7]
    assert {(job.series, job.attempt, job.subscription) for job in jobs} == {(begun["id"], 1, one["id"])}
    assert {job.delivery_id for job in jobs} == {delivery_id("t", seq, one["id"], begun["id"]) for seq in range(3, 8)}
    assert all(job.received_at_ms > 1_700_000_000_000 for job in jobs)
    record = next(entry.record for entry in hub.cluster.log if entry.topic == NAMES.deliveries)
    assert ("ce-id", b"id-3") in record.headers
    assert record.value == b"{}"


async def test_by_time_and_only_what_it_wants(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 5)
    inbox = hub.cluster.inboxes[hub.cluster.shard_of("t")]
    inbox.add(fact(6, event_type="card.made", received_at_ms=1_000_003), fact(7, "u", received_at_ms=1_000_003))
    one = await made(hub, worker, key)
    wish = {"from": "1970-01-01T00:16:40.002Z", "to": "1970-01-01T00:16:40.004Z"}
    begun = body(await replay(hub, worker, key, one["id"], wish))
    await worker.run_operations()
    assert [job.seq for job in deliveries(hub)] == [2, 3]
    assert (await state(hub, worker, key, begun["id"]))["made"] == 2


async def test_a_dry_run_counts_and_delivers_nothing(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 5)
    one = await made(hub, worker, key, verify=False)
    begun = body(await replay(hub, worker, key, one["id"], {"from_seq": 0, "dry_run": True}))
    await worker.run_operations()
    over = await state(hub, worker, key, begun["id"])
    assert (over["state"], over["made"], over["dry_run"], deliveries(hub)) == ("done", 5, True, [])


async def test_only_for_a_subscription_that_receives(hub: Deployment, worker: Worker, key: str) -> None:
    pending = await made(hub, worker, key, verify=False)
    disabled = await made(hub, worker, key, enabled=False)
    for one, word in ((pending, "not verified"), (disabled, "disabled (by_request)")):
        reply = await replay(hub, worker, key, one["id"], {"from_seq": 0})
        assert (reply.status, body(reply)["type"]) == (409, PROBLEM + "not-active")
        assert word in body(reply)["detail"]


@pytest.mark.parametrize(
    ("wish", "pointer"),
    [
        ({}, ""),
        ({"dry_run": 1, "from_seq": 0}, "/dry_run"),
        ({"from_seq": 5, "to_seq": 4}, "/to_seq"),
        ({"x": 1}, "/x"),
    ],
)
async def test_the_field_is_named(hub: Deployment, worker: Worker, key: str, wish: object, pointer: str) -> None:
    one = await made(hub, worker, key)
    reply = await replay(hub, worker, key, one["id"], wish)
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (422, pointer)


async def test_the_next_owner_goes_on(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 2 * STEP_EVENTS_MAX + 50)
    one = await made(hub, worker, key)
    begun = body(await replay(hub, worker, key, one["id"], {"from_seq": 0}))
    assert await worker.runner.advance(worker.operations.running()[0])
    middle = await state(hub, worker, key, begun["id"])
    assert (middle["state"], middle["made"]) == ("running", STEP_EVENTS_MAX)
    heir = await hub.worker()
    hub.cluster.give("t", heir)
    assert not await worker.runner.advance(worker.operations.running()[0])
    await heir.run_operations()
    over = await state(hub, heir, key, begun["id"])
    assert (over["state"], over["made"]) == ("done", 2 * STEP_EVENTS_MAX + 50)
    assert [job.seq for job in deliveries(hub)] == list(range(1, 2 * STEP_EVENTS_MAX + 51))


async def test_a_crash_between_the_writes_repeats_the_step_with_the_same_ids(
    hub: Deployment, worker: Worker, key: str
) -> None:
    fill(hub, STEP_EVENTS_MAX + 10)
    one = await made(hub, worker, key)
    await replay(hub, worker, key, one["id"], {"from_seq": 0})
    worker.write_fails = BrokerTrouble
    with pytest.raises(BrokerTrouble):
        await worker.runner.step()
    worker.write_fails = None
    await worker.run_operations()
    jobs = deliveries(hub)
    assert len(jobs) == 2 * STEP_EVENTS_MAX + 10
    assert len({job.delivery_id for job in jobs}) == STEP_EVENTS_MAX + 10


async def test_cancelled_makes_nothing_more(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 2 * STEP_EVENTS_MAX)
    one = await made(hub, worker, key)
    begun = body(await replay(hub, worker, key, one["id"], {"from_seq": 0}))
    path = f"/v1/operations/{begun['id']}"
    await worker.runner.advance(worker.operations.running()[0])
    stale = worker.operations.running()[0]
    assert body(await hub.ask(worker, "DELETE", path, key=key))["state"] == "cancelled"
    await worker.runner.advance(stale)  # a step that had begun before
    await worker.run_operations()
    over = await state(hub, worker, key, begun["id"])
    assert (over["state"], over["made"]) == ("cancelled", STEP_EVENTS_MAX)
    again = await hub.ask(worker, "DELETE", path, key=key)
    assert (again.status, body(again)) == (200, over)


async def test_deleted_meanwhile_fails_and_says_so(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 5)
    one = await made(hub, worker, key)
    begun = body(await replay(hub, worker, key, one["id"], {"from_seq": 0}))
    await hub.ask(worker, "DELETE", f"/v1/subscriptions/{one['id']}", key=key)
    await worker.run_operations()
    over = await state(hub, worker, key, begun["id"])
    assert (over["state"], over["detail"]) == ("failed", "the subscription was deleted")
    assert deliveries(hub) == []


async def test_the_same_request_is_one_operation(hub: Deployment, worker: Worker, key: str) -> None:
    fill(hub, 3)
    one = await made(hub, worker, key)
    first = await replay(hub, worker, key, one["id"], {"from_seq": 0}, "k")
    await worker.run_operations()
    second = await replay(hub, worker, key, one["id"], {"from_seq": 0}, "k")
    assert (second.status, second.headers["Idempotency-Replayed"]) == (202, "true")
    assert (body(second)["id"], body(second)["state"]) == (body(first)["id"], "done")
    assert len(deliveries(hub)) == 3
    other = await replay(hub, worker, key, one["id"], {"from_seq": 1}, "k")
    assert (other.status, body(other)["type"]) == (422, PROBLEM + "idempotency-reuse")


async def test_so_many_at_once(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    other = await hub.key(worker, "u", "manage")
    two = await made(hub, worker, other)
    for _ in range(RUNNING_PER_TENANT_MAX):
        assert (await replay(hub, worker, key, one["id"], {"from_seq": 0})).status == 202
    refused = await replay(hub, worker, key, one["id"], {"from_seq": 0})
    assert (refused.status, body(refused)["type"]) == (409, PROBLEM + "limit")
    assert (await replay(hub, worker, other, two["id"], {"from_seq": 0})).status == 202
    await worker.run_operations()
    assert (await replay(hub, worker, key, one["id"], {"from_seq": 0})).status == 202


async def test_listed_in_pages_and_seen_by_its_tenant_alone(hub: Deployment, worker: Worker, key: str) -> None:
    one = await made(hub, worker, key)
    ids = {body(await replay(hub, worker, key, one["id"], {"from_seq": 0}))["id"] for _ in range(3)}
    first = body(await hub.ask(worker, "GET", "/v1/operations?limit=2", key=key))
    rest = body(await hub.ask(worker, "GET", f"/v1/operations?cursor={first['next']}", key=key))
    assert {row["id"] for row in first["operations"] + rest["operations"]} == ids
    other = await hub.key(worker, "u", "manage")
    assert body(await hub.ask(worker, "GET", "/v1/operations", key=other))["operations"] == []
    for method in ("GET", "DELETE"):
        assert (await hub.ask(worker, method, f"/v1/operations/{min(ids)}", key=other)).status == 404


async def test_what_has_long_been_over_is_forgotten(hub: Deployment) -> None:
    clock = FakeClock()
    worker = await hub.worker(clock=clock)
    key = await hub.key(worker, "t", "manage")
    one = await made(hub, worker, key)
    begun = body(await replay(hub, worker, key, one["id"], {"from_seq": 0}))
    await worker.run_operations()
    for advance, status in ((KEPT_MS - 1, 200), (1, 404)):
        clock.advance(advance)
        worker.runner.wake()
        await worker.runner.step()
        assert (await hub.ask(worker, "GET", f"/v1/operations/{begun['id']}", key=key)).status == status
