"""A job that brings its worker down: alone after the second time, given up after the fifth (docs/protocol.md,
"Crash")."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from hub_app.domain.delivery import DeadReason
from hub_app.ports import Answer, Failure, Request
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import NAMES, job, stored

OTHERS = [("t", f"https://{n}.example/") for n in range(4)]


async def bench(world: World) -> Worker:
    worker = await Worker(world).start()
    worker.put(world.subscription())
    for n, (_, destination) in enumerate(OTHERS):
        worker.put(world.subscription(id=f"o{n}", destination=destination))
    return worker


class Watch:
    """A sink that takes its time, and notes who was there together."""

    def __init__(self, seconds: float = 0.3) -> None:
        self.running: list[bytes] = []
        self.together: list[set[bytes]] = []
        self._seconds = seconds

    async def __call__(self, request: Request) -> Answer | Failure:
        id = request.head.split(b"X-Lerian-Delivery-Id: ")[1][:32]
        self.running.append(id)
        self.together.append(set(self.running))
        await asyncio.sleep(self._seconds)
        self.running.remove(id)
        return Answer(204, None, b"", False)


@pytest.mark.parametrize(("reclaims", "alone"), [(0, False), (1, False), (2, True), (4, True)])
def test_alone_from_the_second_reclaim(tmp_path: Path, reclaims: int, alone: bool) -> None:
    async def story(world: World) -> None:
        await bench(world)
        world.sender.sink = watch = Watch()
        for n, place in enumerate(OTHERS):
            world.deliver(*(job(100 * n + k, place=place, subscription=f"o{n}") for k in range(1, 6)))
        world.deliver(job(999, reclaims=reclaims))
        await until(lambda: world.outcomes().count("delivered") == 21, 30)
        killer = job(999).delivery_id.hex().encode()
        beside = {id for seen in watch.together if killer in seen for id in seen} - {killer}
        assert (beside == set()) is alone

    play(tmp_path, story)


def test_the_fifth_reclaim_ends_it_without_an_attempt(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await bench(world)
        world.deliver(job(1, reclaims=5), job(2, attempt=3, reclaims=7))
        await asyncio.sleep(1)
        assert (world.sent, world.reasons()) == (0, [DeadReason.POISONED] * 2)
        assert (stored(worker.shard), worker.shard.low_marks()[NAMES.deliveries]) == ({}, 2)

    play(tmp_path, story)


def test_two_that_want_to_be_alone_go_one_after_the_other(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await bench(world)
        world.sender.sink = watch = Watch()
        world.deliver(*(job(seq, place=OTHERS[seq % 4], subscription=f"o{seq % 4}", reclaims=3) for seq in range(8)))
        await until(lambda: world.outcomes().count("delivered") == 8, 30)
        assert all(len(seen) == 1 for seen in watch.together)

    play(tmp_path, story)


def test_one_that_waits_to_be_alone_leaves_with_its_shard(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await bench(world)
        world.sender.sink = Watch(5)
        world.deliver(job(1, place=OTHERS[0], subscription="o0"))
        await asyncio.sleep(0.2)
        world.deliver(job(2, reclaims=2))
        await asyncio.sleep(0.2)
        assert (world.sent, len(worker.shard.in_hand)) == (1, 2)
        await worker.shards.suspended(frozenset({0}))
        assert len(worker.shard.in_hand) == 1
        await asyncio.sleep(10)
        assert world.sent == 1
        await worker.shards.resumed(frozenset({0}))
        await until(lambda: not stored(worker.shard), 10)
        assert world.sent == 2

    play(tmp_path, story)


def test_a_killer_is_given_up_after_five_workers(tmp_path: Path) -> None:
    """Each worker dies with it in hand; the next one reads the claim file of the last."""

    async def story(world: World) -> None:
        deaths = 0
        worker = await bench(world)
        world.deliver(job(1), job(2, place=OTHERS[0], subscription="o0"))

        async def kills(request: Request) -> Answer | Failure:
            if request.head.split(b"X-Lerian-Delivery-Id: ")[1][:32] == job(1).delivery_id.hex().encode():
                await asyncio.sleep(3600)
            return Answer(204, None, b"", False)

        world.sender.sink = kills
        while not world.reasons() and deaths < 10:
            await asyncio.sleep(0.5)
            if worker.dispatcher.in_flight:
                worker.kill()
                deaths += 1
                worker = await Worker(world).start()
        assert (deaths, world.reasons()) == (5, [DeadReason.POISONED])
        assert world.outcomes().count("delivered") == 1

    play(tmp_path, story)
