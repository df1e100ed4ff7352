"""Settling: what carries a job on, then its outcome, then forgetting; each write again until Kafka takes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from agents.attempt import Attempted
from agents.dispatch_shard import DispatchShard
from agents.outputs import OutputRefused
from agents.settle import CAREFUL_MS, Settled, Settler
from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.delivery import Dead, DeadReason, Deferred, Delivered, NextStep, Result, ResultKind, Retry
from hub_app.domain.errors import StoreFailed
from hub_app.kafka.outbox import Target
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import dead_letters as wire_dead
from hub_app.wire import jobs as wire_jobs
from tables.claims import Claim
from tables.jobs import Row
from tests.fakes.clock import FakeClock
from tests.fakes.log import FakeLog
from tests.support.dispatching import CARRIED, NAMES, NOW_MS, RETRY, Feed, job, open_shard, stored

STEPS: dict[str, NextStep] = {
    "delivered": Delivered(),
    "failed": Retry(0, NOW_MS + 7_000, 2),
    "dead": Dead(DeadReason.EXHAUSTED),
    "deferred": Deferred(NOW_MS + 20_000),
}


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock(NOW_MS)
        self.log = FakeLog(self.clock.now_ms)
        self.metrics = Metrics()
        self.failed: list[DispatchShard] = []
        self.settled: list[tuple[DispatchShard, Row | None]] = []
        self.started: list[int] = []
        self.settler = Settler(
            producer=cast("Any", self.log),
            names=NAMES,
            shards=1,
            clock=self.clock,
            curve=DEFAULT_CURVE,
            metrics=self.metrics,
            store_failed=lambda shard, error: self.failed.append(shard),
        )
        self.settler.on_settled = lambda shard, row: self.settled.append((shard, row))
        self.shard = open_shard()
        self.feed = Feed(self.shard)

    def in_hand(self, *seqs: int) -> list[Row]:
        rows = self.feed.take(NAMES.deliveries, *(job(seq, reclaims=2) for seq in seqs)).fresh
        for row in rows:
            self.shard.in_hand[row.job.delivery_id] = row
        return cast("list[Row]", rows)

    def put(self, row: Row, step: NextStep, *, attempted: bool = True) -> None:
        result = Result(ResultKind.FAILED, 503, "http_503", "", None)
        made = Attempted(result, step, b"busy", NOW_MS, 12) if attempted else None
        self.settler.put(Settled(self.shard, row, step, made, CARRIED, b"{}"))

    def claim(self, rows: list[Row]) -> None:
        claimed = [(row, None) for row in rows]
        self.settler.note_claims(self.shard, rows, NOW_MS + 10_000, self._start, claimed)

    def _start(self, shard: DispatchShard, claimed: list[Any]) -> None:
        self.started += [row.job.seq for row, _ in claimed]

    async def step(self) -> None:
        await self.settler.step()

    def outcomes(self) -> list[tuple[str, int]]:
        found = []
        for entry in self.log.records(NAMES.attempts):
            read = wire_attempts.read(entry.headers, entry.value)
            if isinstance(read, wire_attempts.Outcome):
                found.append((read.kind.value, read.job.seq))
            elif isinstance(read, wire_attempts.Claimed):
                found.append(("claimed", len(read.claims)))
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- one tick ----------------------------------------------------------------------------------------------------------
async def test_the_three_writes_of_each_step(bench: Bench) -> None:
    rows = bench.in_hand(1, 2, 3, 4)
    for row, step in zip(rows, STEPS.values(), strict=True):
        bench.put(row, step)
    await bench.step()
    assert bench.log.flushes == [[RETRY, NAMES.dlq], [NAMES.attempts]]
    assert bench.outcomes() == [("delivered", 1), ("failed", 2), ("dead", 3), ("deferred", 4)]
    [carried] = bench.log.records(RETRY)
    retried = wire_jobs.read(carried.headers)
    assert (retried, carried.value) == (
        rows[1].job._replace(attempt=2, reclaims=0, not_before_ms=NOW_MS + 7_000),
        b"{}",
    )
    [letter] = [wire_dead.read(entry.headers, entry.value) for entry in bench.log.records(NAMES.dlq)]
    assert isinstance(letter, wire_dead.DeadLetter)
    assert (letter.job, letter.reason, letter.status, letter.headers) == (rows[2].job, "exhausted", 503, CARRIED)
    assert [row and row.job.seq for _, row in bench.settled] == [None, None, None, 4]
    assert stored(bench.shard).keys() == {(4, 1, 0)}
    assert stored(bench.shard)[4, 1, 0].due_ms == NOW_MS + 20_000
    assert stored(bench.shard)[4, 1, 0].job.reclaims == 0
    assert bench.shard.low_marks()[NAMES.deliveries] == 3


async def test_ticks_gather_what_ended_since_the_last_one(bench: Bench) -> None:
    for row in bench.in_hand(*range(1, 40)):
        bench.put(row, Delivered())
    await bench.step()
    assert bench.log.flushes == [[NAMES.attempts]]
    assert bench.settler.waiting == 0


async def test_claims_come_before_the_outcomes_of_their_tick(bench: Bench) -> None:
    rows = bench.in_hand(1, 2)
    bench.claim(rows)
    assert bench.started == [1, 2]
    bench.put(rows[1], Delivered())
    await bench.step()
    assert bench.outcomes() == [("claimed", 2), ("delivered", 2)]


async def test_a_job_that_ends_without_an_attempt(bench: Bench) -> None:
    [row] = bench.in_hand(1)
    bench.put(row, Dead(DeadReason.SUBSCRIPTION_DELETED), attempted=False)
    await bench.step()
    assert bench.outcomes() == [("dead", 1)]
    assert (stored(bench.shard), bench.shard.low_marks()[NAMES.deliveries]) == ({}, 1)


# -- writes that fail --------------------------------------------------------------------------------------------------
def _fail_at(bench: Bench, number: int, *, written: bool) -> None:
    """The `number`-th flush of the tick fails, before its records are written or after."""
    flushes = 0

    def after(targets: Sequence[Target]) -> None:
        nonlocal flushes
        flushes += 1
        bench.log.failure = ConnectionError("away") if flushes == number - 1 and not written else None
        if flushes == number and written:
            raise ConnectionError("away")

    bench.log.after = after
    if number == 1 and not written:
        bench.log.failure = ConnectionError("away")


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("number", [1, 2])
async def test_a_write_that_fails_is_tried_again_and_nothing_is_forgotten(
    bench: Bench, number: int, *, written: bool
) -> None:
    one, two = bench.in_hand(1, 2)
    bench.put(one, STEPS["failed"])
    bench.put(two, STEPS["delivered"])
    _fail_at(bench, number, written=written)
    with pytest.raises(ConnectionError):
        await bench.step()
    assert stored(bench.shard).keys() == {(1, 1, 0), (2, 1, 0)}
    assert bench.shard.in_hand.keys() == {one.job.delivery_id, two.job.delivery_id}
    assert (bench.settled, bench.settler.waiting, bench.shard.low_marks()[NAMES.deliveries]) == ([], 2, 0)
    assert ("failed", 1) not in bench.outcomes() or (number, written) == (2, True)
    bench.log.failure, bench.log.after = None, lambda targets: None
    await bench.step()
    assert (stored(bench.shard), bench.shard.in_hand, bench.settler.waiting) == ({}, {}, 0)
    assert len(bench.log.records(RETRY)) == (2 if (number, written) == (1, True) else 1)
    assert bench.shard.low_marks()[NAMES.deliveries] == 2


async def test_what_ends_meanwhile_waits_for_the_next_tick(bench: Bench) -> None:
    one, two = bench.in_hand(1, 2)
    bench.put(one, Delivered())
    bench.log.failure = ConnectionError("away")
    for _ in range(3):
        with pytest.raises(ConnectionError):
            await bench.step()
    bench.put(two, Delivered())
    bench.log.failure = None
    await bench.step()
    assert bench.outcomes() == [("delivered", 1)]
    await bench.step()
    assert bench.outcomes() == [("delivered", 1), ("delivered", 2)]


async def test_a_table_that_fails_stops_its_shard_and_no_other(bench: Bench) -> None:
    [one] = bench.in_hand(1)
    other = open_shard(number=1)
    [two] = Feed(other).take(NAMES.deliveries, job(2)).fresh
    other.in_hand[two.job.delivery_id] = two
    bench.put(one, Delivered())
    bench.settler.put(Settled(other, two, Delivered(), None, CARRIED, b"{}"))
    store: Any = bench.shard.table.store
    store.before_write = _refuse
    await bench.step()
    assert bench.failed == [bench.shard]
    assert [shard for shard, _ in bench.settled] == [other]
    assert stored(other) == {}


def _refuse() -> None:
    raise StoreFailed("dispatch/0", "No space left on device")


async def test_a_closed_shard_has_its_outcomes_written_and_its_table_left_alone(bench: Bench) -> None:
    [row] = bench.in_hand(1)
    bench.put(row, STEPS["failed"])
    bench.shard.closed = True
    await bench.step()
    assert (len(bench.log.records(RETRY)), bench.outcomes()) == (1, [("failed", 1)])
    assert stored(bench.shard).keys() == {(1, 1, 0)}
    assert bench.settled == []


# -- careful -----------------------------------------------------------------------------------------------------------
async def test_while_careful_attempts_wait_for_the_record_of_their_claims(bench: Bench) -> None:
    bench.settler.be_careful()
    rows = bench.in_hand(1, 2)
    bench.claim(rows)
    bench.log.failure = ConnectionError("away")
    with pytest.raises(ConnectionError):
        await bench.step()
    assert bench.started == []
    bench.log.failure = None
    await bench.step()
    assert (bench.started, bench.outcomes()) == ([1, 2], [("claimed", 2)])


async def test_being_careful_ends(bench: Bench) -> None:
    bench.settler.be_careful()
    bench.clock.advance(CAREFUL_MS - 1)
    bench.claim(bench.in_hand(1))
    assert bench.started == []
    bench.clock.advance(1)
    bench.claim(bench.in_hand(2))
    assert bench.started == [2]


# -- flushed -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("hand_in", ["claims", "outcomes", "nothing"])
async def test_flushed_returns_when_everything_is_written(bench: Bench, hand_in: str) -> None:
    rows = bench.in_hand(1)
    if hand_in == "claims":
        bench.claim(rows)
    elif hand_in == "outcomes":
        bench.put(rows[0], Delivered())
    waiting = asyncio.create_task(bench.settler.flushed())
    if hand_in != "nothing":
        await bench.step()
    await asyncio.wait_for(waiting, 5)
    assert len(bench.outcomes()) == (hand_in != "nothing")


# -- following the attempts log ----------------------------------------------------------------------------------------
async def test_who_follows_the_log_passes_over_its_own_records(bench: Bench) -> None:
    rows = bench.in_hand(1, 2)
    bench.claim(rows)
    await bench.step()
    assert bench.shard.mine == set()  # nobody follows it
    bench.shard.foreign[b"x" * 16] = Claim(1, 0, NOW_MS)
    bench.put(rows[0], Delivered())
    await bench.step()
    assert bench.shard.mine == {1}
    before = bench.shard
    before.closed = True
    again = open_shard()
    again.foreign[b"x" * 16] = Claim(1, 0, NOW_MS)
    [three] = Feed(again).take(NAMES.deliveries, job(3)).fresh
    bench.put(rows[1], Delivered())
    bench.settler.put(Settled(again, three, Delivered(), None, CARRIED, b"{}"))
    await bench.step()
    assert again.mine == set()  # among them is what the opening before wrote: that one has to be read


# -- what topics refuse ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [["dead"], ["failed"], ["failed", "dead", "delivered"]])
async def test_row_07_what_no_topic_takes_for_its_size_dies_without_its_payload_and_holds_nothing_up(
    bench: Bench, steps: list[str]
) -> None:
    """Somebody has set the topics' limits below ours."""
    bench.log.limits = {NAMES.dlq: 1, RETRY: 1}
    rows = bench.in_hand(*range(len(steps)))
    for row, step in zip(rows, steps, strict=True):
        bench.put(row, STEPS[step])
    await bench.step()
    kinds = [("delivered" if step == "delivered" else "dead", seq) for seq, step in enumerate(steps)]
    assert sorted(bench.outcomes(), key=lambda told: told[1]) == kinds
    letters = [wire_dead.read(entry.headers, entry.value) for entry in bench.log.records(NAMES.dlq)]
    read = {letter.job.seq: letter for letter in letters if isinstance(letter, wire_dead.DeadLetter)}
    reasons = {"failed": "payload_too_large", "dead": "exhausted"}
    assert {seq: letter.reason for seq, letter in read.items()} == {
        seq: reasons[step] for seq, step in enumerate(steps) if step in reasons
    }
    assert {(letter.value, letter.payload_bytes) for letter in read.values()} == {(None, 2)}
    assert stored(bench.shard) == {}


async def test_a_dead_letter_topic_that_takes_nothing_is_tried_again(bench: Bench) -> None:
    [row] = bench.in_hand(1)
    bench.put(row, STEPS["dead"])
    bench.log.limits = {NAMES.dlq: -1}
    with pytest.raises(OutputRefused):
        await bench.step()
    assert bench.outcomes() == []
    bench.log.limits.clear()
    await bench.step()
    assert bench.outcomes() == [("dead", 1)]
