"""Parking: what holds a low-water mark far behind the head is copied ahead, once (docs/protocol.md, "Jobs that wait for
long")."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.fakes.sender import accepts
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import NAMES, PLACE, job, stored

OTHER = ("t", "https://b.example/")


async def behind(world: World, waiting: int, after: int) -> Worker:
    """`waiting` jobs that nobody may attempt, then so many that are delivered; a mark may lie 100 behind."""
    worker = await Worker(world, park_behind=100).start()
    worker.put(world.subscription(enabled=False, inactive_since_ms=world.clock.now_ms()))
    worker.put(world.subscription(id="other", destination=OTHER[1]))
    world.deliver(*(job(seq) for seq in range(waiting)))
    world.deliver(*(job(1_000 + seq, place=OTHER, subscription="other") for seq in range(after)))
    await until(lambda: world.outcomes().count("delivered") == after, 20)
    return worker


def test_only_what_lies_too_far_behind_is_copied_and_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await behind(world, 30, 80)  # the first ten lie more than 100 behind the head
        await asyncio.sleep(30)
        assert (len(world.log.records(NAMES.parked)), world.outcomes().count("parked")) == (10, 10)
        assert world.committed[NAMES.deliveries] == 10
        assert sorted(seq for seq, _, moves in stored(worker.shard) if moves) == list(range(10))
        world.deliver(*(job(2_000 + seq, place=OTHER, subscription="other") for seq in range(500)))
        await asyncio.sleep(60)
        assert (len(world.log.records(NAMES.parked)), world.committed[NAMES.deliveries]) == (30, 610)
        assert world.committed[NAMES.parked] == 0
        worker.put(world.subscription())
        await until(lambda: not stored(worker.shard), 20)
        await asyncio.sleep(1)
        assert (world.outcomes().count("delivered"), world.committed[NAMES.parked]) == (610, 30)

    play(tmp_path, story)


def test_copies_stand_for_their_jobs_with_an_empty_disk(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await behind(world, 60, 300)
        await until(lambda: world.committed[NAMES.deliveries] == 360, 20)
        worker.kill()
        world.disk.folders.clear()
        again = await Worker(world, park_behind=100).start()
        await asyncio.sleep(2)
        assert len(stored(again.shard)) == 60
        again.put(world.subscription())
        await until(lambda: not stored(again.shard), 20)
        assert len({outcome.job.delivery_id for outcome in world.told() if outcome.kind == "delivered"}) == 360

    play(tmp_path, story)


def test_a_job_in_hand_is_not_copied(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, park_behind=100).start()
        worker.put(world.subscription())
        worker.put(world.subscription(id="other", destination=OTHER[1]))

        async def hangs(request: object) -> object:
            if getattr(request, "target").host == "a.example":  # noqa: B009
                await asyncio.sleep(9)
            return await accepts(request)  # type: ignore[arg-type]

        world.sender.sink = hangs  # type: ignore[assignment]
        world.deliver(job(1, place=PLACE))
        await asyncio.sleep(0.1)
        world.deliver(*(job(1_000 + seq, place=OTHER, subscription="other") for seq in range(300)))
        await asyncio.sleep(8)
        assert world.log.records(NAMES.parked) == []
        await until(lambda: not stored(worker.shard), 10)

    play(tmp_path, story)
