"""Jobs of subscriptions that receive nothing, and of those whose address changed (docs/protocol.md, "Jobs that wait
for long" and "Moved")."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hub_app.domain.delivery import DeadReason
from hub_app.domain.limits import HOUR_MS, SUSPENDED_MS_MAX
from hub_app.domain.subscription import Verification, WebhookSink
from hub_app.wire import jobs as wire_jobs
from tests.fakes.sender import accepts, answers
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import NAMES, PLACE, job, stored

ELSEWHERE = "https://new.example/"


async def resting(world: World, count: int, **changes: object) -> Worker:
    """A worker with so many jobs of a subscription that receives nothing since now."""
    worker = await Worker(world).start()
    off = changes or {"enabled": False}
    worker.put(world.subscription(inactive_since_ms=world.clock.now_ms(), **off))
    world.deliver(*(job(seq, received_at_ms=world.clock.now_ms()) for seq in range(count)))
    await asyncio.sleep(2)
    return worker


@pytest.mark.parametrize("changes", [{"enabled": False}, {"verification_state": Verification.PENDING}])
def test_row_24_they_wait_at_no_cost_and_go_on_at_once(tmp_path: Path, changes: dict[str, object]) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 300, **changes)
        writes: list[int] = []
        worker.shard.table.store.before_write = lambda: writes.append(1)  # type: ignore[attr-defined]
        traffic = world.traffic()
        await asyncio.sleep(3_600)
        assert (world.sent, world.traffic(), writes) == (0, traffic, [])
        worker.put(world.subscription())
        await until(lambda: not stored(worker.shard), 5)
        assert world.outcomes() == ["delivered"] * 300
        assert worker.shard.table.shelf.subscriptions() == []

    play(tmp_path, story)


def test_they_go_on_in_the_order_in_which_they_were_due(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, workers=2).start()
        worker.put(world.subscription(enabled=False, inactive_since_ms=world.clock.now_ms()))
        for seq in range(150):
            world.deliver(job(seq, received_at_ms=world.clock.now_ms()))
            await asyncio.sleep(0.01)
        await asyncio.sleep(5)
        worker.put(world.subscription())
        await until(lambda: not stored(worker.shard), 10)
        ids = [request.head.split(b"X-Lerian-Delivery-Id: ")[1][:32] for request in world.sender.requests]
        assert ids == [job(seq).delivery_id.hex().encode() for seq in range(150)]

    play(tmp_path, story)


def test_row_24_deleted_meanwhile_they_end(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 40)
        worker.delete()
        await until(lambda: not stored(worker.shard), 5)
        assert world.reasons() == [DeadReason.SUBSCRIPTION_DELETED] * 40

    play(tmp_path, story)


def test_after_96_hours_they_are_dead_letters(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 40)
        world.leap(SUSPENDED_MS_MAX - 10_000)
        await asyncio.sleep(2)
        assert world.reasons() == []
        await until(lambda: not stored(worker.shard), 20)
        assert world.reasons() == [DeadReason.DISABLED] * 40
        assert worker.shard.table.shelf.subscriptions() == []

    play(tmp_path, story)


@pytest.mark.parametrize("keeps_disk", [True, False])
def test_a_change_while_nobody_had_the_shard(tmp_path: Path, keeps_disk: bool) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 60)
        worker.kill()
        worker.put(world.subscription())
        if not keeps_disk:
            world.disk.folders.clear()
        again = await Worker(world).start()
        await until(lambda: world.outcomes().count("delivered") == 60, 30)
        assert stored(again.shard) == {}

    play(tmp_path, story)


def test_a_job_put_off_for_96_hours_is_a_dead_letter(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world).start()
        worker.put(world.subscription(secret="fake.none"))
        world.deliver(job(1, received_at_ms=world.clock.now_ms()))
        await asyncio.sleep(1)
        world.leap(SUSPENDED_MS_MAX - 60_000)
        await asyncio.sleep(40)
        assert world.reasons() == []
        world.leap(60_000)
        await until(lambda: not stored(worker.shard), 40)
        assert (world.sent, world.reasons()) == (0, [DeadReason.DEFERRED])

    play(tmp_path, story)


def test_very_many_are_put_away_once_and_come_back_without_an_attempt(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 10_000)
        shelf = worker.shard.table.shelf
        await until(lambda: len(shelf.of("sub", 20_000)) == 10_000, 60)
        world.sender.sink = answers(503)
        worker.put(world.subscription())
        await until(lambda: worker.health.not_closed() == 1, 60)
        await asyncio.sleep(1)
        assert shelf.of("sub", 1) == []
        assert len([row for row in stored(worker.shard).values() if row.job.attempt == 1]) >= 9_980

    play(tmp_path, story)


# -- changed addresses -------------------------------------------------------------------------------------------------
def moved_to(world: World, worker: Worker, destination: str, **changes: object) -> None:
    worker.change(destination=destination, sink=WebhookSink(url=destination), **changes)


def test_row_24_waiting_jobs_go_to_the_new_address(tmp_path: Path) -> None:
    """Behind an open breaker, too: the old address may be dead."""

    async def story(world: World) -> None:
        worker = await Worker(world).start()
        worker.put(world.subscription())
        world.sender.sink = answers(503)
        world.deliver(*(job(seq, received_at_ms=world.clock.now_ms()) for seq in range(300)))
        await until(lambda: worker.health.not_closed() == 1, 20)
        await asyncio.sleep(0.2)
        waiting = len([row for row in stored(worker.shard).values() if row.job.attempt == 1])
        assert waiting > 250
        world.sender.sink, before = accepts, world.sent
        moved_to(world, worker, ELSEWHERE)
        await until(lambda: not stored(worker.shard), 20)
        assert world.outcomes().count("moved") == 300
        copies = [wire_jobs.read(entry.headers) for entry in world.log.records(NAMES.parked)]
        assert {(copy.destination, copy.moves) for copy in copies} == {(ELSEWHERE, 1)}  # type: ignore[union-attr]
        assert {copy.subscriptions_offset for copy in copies} == {2}  # type: ignore[union-attr]
        assert {request.target.host for request in world.sender.requests[before:]} == {"new.example"}

    play(tmp_path, story)


def test_nothing_is_sent_to_an_address_that_is_not_verified(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 20)
        now_ms = world.clock.now_ms()
        moved_to(world, worker, ELSEWHERE, enabled=True, verification_state=Verification.PENDING)
        await asyncio.sleep(5)
        assert (world.sent, world.outcomes().count("moved")) == (0, 20)
        assert {row.job.destination for row in stored(worker.shard).values()} == {ELSEWHERE}
        worker.change(verification_state=Verification.ACTIVE, inactive_since_ms=None, enabled_at_ms=now_ms)
        await until(lambda: not stored(worker.shard), 5)
        assert world.outcomes().count("delivered") == 20

    play(tmp_path, story)


def test_an_address_that_changes_there_and_back(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 10)
        moved_to(world, worker, ELSEWHERE)
        await asyncio.sleep(1)
        moved_to(world, worker, PLACE[1])
        await asyncio.sleep(1)
        worker.change(enabled=True, inactive_since_ms=None)
        await until(lambda: not stored(worker.shard), 5)
        assert (world.outcomes().count("moved"), world.outcomes().count("delivered")) == (20, 10)
        await asyncio.sleep(1)
        log = world.log.topics
        assert world.committed[NAMES.parked] == len(log[NAMES.parked, 0])

    play(tmp_path, story)


def test_a_change_while_nobody_had_the_shard_is_found_at_the_jobs_turn(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await resting(world, 10)
        worker.kill()
        moved_to(world, worker, ELSEWHERE, enabled=True, inactive_since_ms=None)
        again = await Worker(world).start()
        await until(lambda: not stored(again.shard), 30)
        assert (world.outcomes().count("moved"), world.outcomes().count("delivered")) == (10, 10)

    play(tmp_path, story)


def test_a_copy_at_the_same_place_waits_as_long_and_remembers_reclaims(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world).start()
        worker.put(world.subscription())
        later = world.clock.now_ms() + HOUR_MS
        world.deliver(job(1, attempt=3, due_ms=later, reclaims=2))
        await asyncio.sleep(0.2)
        world.deliver(job(1, attempt=3, moves=1), topic=NAMES.parked)
        await asyncio.sleep(0.2)
        [row] = stored(worker.shard).values()
        assert (row.job.moves, row.job.reclaims, row.due_ms, world.sent) == (1, 2, later, 0)

    play(tmp_path, story)
