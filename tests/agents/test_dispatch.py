"""Dispatch: who is claimed, when, and what becomes of jobs that nobody can attempt. On a clock that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.attempt import UNKNOWN_MS
from agents.dispatch import UNRECORDED_MAX
from agents.dispatch_shard import DispatchShard
from hub_app.domain.limits import SUSPENDED_MS_MAX
from hub_app.ports import Answer, Failure, Request
from tables.claims import ClaimFile
from tests.fakes.sender import accepts, answers
from tests.simulation import clockwork
from tests.support.dispatch_bench import TIMEOUT_MS, Worker, World
from tests.support.dispatching import NAMES, Feed, job, open_shard, stored


class Bench:
    """A worker that has just started, in a world of its own."""

    def __init__(self, folder: Path, workers: int = 8) -> None:
        self.world = World(folder)
        self.worker = Worker(self.world, workers=workers)
        self.worker.put(self.world.subscription())
        self.clock, self.log, self.sender = self.world.clock, self.world.log, self.world.sender
        self.dispatcher, self.failed = self.worker.dispatcher, self.worker.failed
        self.claims_path = folder / "claims"
        self.deliver, self.outcomes, self.reasons = self.world.deliver, self.world.outcomes, self.world.reasons

    @property
    def shard(self) -> DispatchShard:
        return self.worker.shard

    @property
    def sent(self) -> int:
        return self.world.sent


Story = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on a bench of its own."""

    def run(story: Story, **options: Any) -> None:
        async def told() -> None:
            bench = Bench(tmp_path, **options)
            await bench.worker.start()
            await story(bench)

        clockwork.run(told)

    return run


@contextmanager
def takes(low_s: float, high_s: float) -> Iterator[None]:
    began = asyncio.get_running_loop().time()
    yield
    assert low_s <= asyncio.get_running_loop().time() - began <= high_s


# -- the ordinary way --------------------------------------------------------------------------------------------------
def test_a_due_job_is_attempted_at_once(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        with takes(0.0, 0.1):
            bench.deliver(job(1), job(2))
            while len(bench.outcomes()) < 2:
                await asyncio.sleep(0.005)
        assert (bench.sent, bench.outcomes()) == (2, ["delivered", "delivered"])
        assert bench.shard.low_marks()[NAMES.deliveries] == 2

    play(story)


def test_a_job_waits_for_its_time(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.deliver(job(1, due_ms=bench.clock.now_ms() + 2_000))
        await asyncio.sleep(1.99)
        assert bench.sent == 0
        await asyncio.sleep(0.02)
        assert bench.sent == 1

    play(story)


def test_no_destination_has_more_than_half_of_the_workers(play: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        most = 0
        running = 0

        async def slow(_request: Request) -> Answer | Failure:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.05)
            running -= 1
            return Answer(204, None, b"", False)

        bench.sender.sink = slow
        bench.deliver(*(job(seq) for seq in range(60)))
        await asyncio.sleep(10)
        assert (bench.sent, most, stored(bench.shard)) == (60, 4, {})

    play(story, workers=8)


def test_nothing_is_claimed_without_a_lease(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.worker.lease = False
        bench.deliver(job(1))
        await asyncio.sleep(5)
        assert bench.sent == 0
        bench.worker.lease = True
        await asyncio.sleep(0.3)
        assert bench.sent == 1

    play(story)


def test_nothing_is_claimed_while_too_many_outcomes_wait_for_kafka(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.log.gate.clear()
        bench.deliver(*(job(seq) for seq in range(UNRECORDED_MAX + 200)))
        await asyncio.sleep(60)
        assert UNRECORDED_MAX <= bench.sent <= UNRECORDED_MAX + bench.dispatcher.heads.scheduler.workers
        bench.log.gate.set()
        await asyncio.sleep(60)
        assert (bench.sent, stored(bench.shard)) == (UNRECORDED_MAX + 200, {})

    play(story)


def test_claims_are_on_the_disk_while_attempts_run(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        gate = asyncio.Event()

        async def waits(_request: Request) -> Answer | Failure:
            await gate.wait()
            return Answer(204, None, b"", False)

        bench.sender.sink = waits
        bench.deliver(job(1, attempt=3, reclaims=1))
        await asyncio.sleep(0.1)
        copy = bench.claims_path.with_name("copy")
        copy.write_bytes(bench.claims_path.read_bytes())
        [claim] = ClaimFile(copy, 8).left[0].values()
        assert (claim.attempt, claim.reclaims) == (3, 1)
        assert claim.deadline_ms - bench.clock.now_ms() <= TIMEOUT_MS
        gate.set()
        await asyncio.sleep(0.1)
        copy.write_bytes(bench.claims_path.read_bytes())
        assert ClaimFile(copy, 8).left == {}

    play(story)


def test_a_drain_waits_for_attempts_in_hand_and_claims_nothing_more(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        async def slow(_request: Request) -> Answer | Failure:
            await asyncio.sleep(3)
            return Answer(204, None, b"", False)

        bench.sender.sink = slow
        bench.deliver(*(job(seq) for seq in range(10)))
        await asyncio.sleep(0.1)
        in_hand = bench.dispatcher.in_flight
        assert in_hand > 0
        with takes(2.8, 3.2):
            await bench.dispatcher.drain(10_000)
        assert (bench.sent, bench.dispatcher.in_flight) == (in_hand, 0)

    play(story)


# -- jobs without somebody to deliver to -------------------------------------------------------------------------------
def test_the_subscription_was_deleted(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.worker.delete()
        bench.deliver(job(1, subscriptions_offset=1))
        await asyncio.sleep(0.2)
        assert (bench.sent, bench.reasons(), bench.outcomes()) == (0, ["subscription_deleted"], ["dead"])
        assert (stored(bench.shard), bench.shard.low_marks()[NAMES.deliveries]) == ({}, 1)

    play(story)


def test_the_table_has_not_reached_the_subscription(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.deliver(job(1, subscription="new", subscriptions_offset=2))
        await asyncio.sleep(3 * UNKNOWN_MS / 1_000)
        assert (bench.sent, bench.reasons(), bench.outcomes()) == (0, [], [])
        bench.worker.put(bench.world.subscription(id="new"))
        await asyncio.sleep(UNKNOWN_MS / 1_000 + 0.3)
        assert (bench.sent, bench.outcomes()) == (1, ["delivered"])

    play(story)


@pytest.mark.parametrize(("late_ms", "reasons"), [(-60_000, []), (0, ["disabled"])])
def test_the_subscription_received_nothing_for_too_long(
    play: Callable[[Story], None], late_ms: int, reasons: list[str]
) -> None:
    async def story(bench: Bench) -> None:
        since_ms = bench.clock.now_ms() - SUSPENDED_MS_MAX - late_ms
        bench.worker.change(enabled=False, inactive_since_ms=since_ms)
        bench.deliver(job(1))
        await asyncio.sleep(0.2)
        assert (bench.sent, bench.reasons()) == (0, reasons)

    play(story)


# -- careful -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("outage_s", "outcomes"), [(0.5, ["delivered"]), (5.0, ["deferred"])])
def test_a_claim_that_was_recorded_late_is_not_attempted(
    play: Callable[[Story], None], outage_s: float, outcomes: list[str]
) -> None:
    """Whoever has the shard by then may have counted it as interrupted."""

    async def story(bench: Bench) -> None:
        bench.worker.settler.be_careful()
        bench.log.gate.clear()
        bench.deliver(job(1))
        await asyncio.sleep(outage_s)
        assert bench.sent == 0
        bench.log.gate.set()
        await asyncio.sleep(0.5)
        assert bench.outcomes() == outcomes
        await asyncio.sleep(31)
        assert (bench.sent, bench.outcomes()[-1], stored(bench.shard)) == (1, "delivered", {})
        assert bench.dispatcher.heads.scheduler.in_flight == 0

    play(story)


# -- our own faults ----------------------------------------------------------------------------------------------------
def test_a_secret_that_cannot_be_opened_is_not_charged(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.worker.change(secret="fake.none")
        bench.deliver(job(1))
        await asyncio.sleep(1)
        assert (bench.sent, bench.outcomes()) == (0, ["deferred"])
        bench.worker.put(bench.world.subscription())
        await asyncio.sleep(31)
        assert (bench.sent, bench.outcomes()) == (1, ["deferred", "delivered"])
        assert bench.world.told()[-1].job.attempt == 1

    play(story)


def test_a_sender_that_raises_is_our_fault(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        async def breaks(_request: Request) -> Answer | Failure:
            raise RuntimeError("never")

        bench.sender.sink = breaks
        bench.deliver(job(1), job(2))
        await asyncio.sleep(1)
        assert bench.outcomes() == ["deferred", "deferred"]
        bench.sender.sink = accepts
        await asyncio.sleep(31)
        assert bench.outcomes().count("delivered") == 2

    play(story)


def test_a_table_that_fails_ends_no_other_shards_work(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        other = open_shard(number=1)
        bench.dispatcher.heads.open(other, [])
        bench.dispatcher.resume_when_ready(other)
        bench.deliver(*(job(seq) for seq in range(200)))
        bench.shard.table.store.close(clean=False)
        for row in Feed(other).take(NAMES.deliveries, job(900), job(901)).fresh:
            bench.dispatcher.heads.accept(other, row)
        await asyncio.sleep(30)
        assert bench.failed == [0]
        assert (stored(other), other.in_hand) == ({}, {})

    play(story)


def test_a_failure_is_carried_to_its_tier(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.sender.sink = answers(503)
        bench.deliver(job(1), job(2, attempt=8))
        await asyncio.sleep(1)
        assert sorted(bench.outcomes()) == ["dead", "failed"]
        assert (bench.reasons(), len(bench.log.records(NAMES.retry("10s")))) == (["exhausted"], 1)
        assert stored(bench.shard).keys() == {(1, 2, 0)}

    play(story)
