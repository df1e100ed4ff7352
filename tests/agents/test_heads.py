"""Heads: the first rows of each destination in memory, the rest in the table, and none out of reach."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from agents.dispatch_shard import DispatchShard
from agents.heads import HEAD_ROWS, PAYLOADS_BYTES_MAX, Heads
from hub_app.domain.delivery import OutcomeKind, finished_up_to
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fairness import Scheduler
from hub_app.wire import attempts as wire_attempts
from tables.claims import Claim
from tables.jobs import Row
from tests.support.dispatching import NAMES, NOW_MS, PLACE, Feed, job, open_shard, stored

OTHER = ("t", "https://b.example/")


class Bench:
    """Heads over one shard that is ready, and a hand that attempts at once."""

    def __init__(self, shard: DispatchShard | None = None, *, head_rows: int = 4, low_rows: int = 2) -> None:
        self.failed: list[DispatchShard] = []
        self.shard = shard or open_shard()
        self.feed = Feed(self.shard)
        self.heads = Heads(Scheduler(64), store_failed=self._store_failed, head_rows=head_rows, low_rows=low_rows)
        self.now_ms = NOW_MS + 10_000_000
        rows = [row for some in self.shard.table.slices() for row in some]
        self.heads.open(self.shard, dict.fromkeys((row.job.tenant, row.job.destination) for row in rows))

    def _store_failed(self, shard: DispatchShard, _error: StoreFailed) -> None:
        self.failed.append(shard)
        shard.closed = True
        self.heads.suspend(shard)

    def take(self, *jobs: Any, topic: str = NAMES.deliveries) -> None:
        taken = self.feed.take(topic, *jobs)
        for row in taken.stale:
            self.heads.withdraw(self.shard, row)
        for row in taken.fresh:
            self.heads.accept(self.shard, row)
        self.look()

    def pick(self) -> Row | None:
        row = self.heads.pick(self.now_ms, self.now_ms)
        self.look()
        return row

    def deliver(self, row: Row) -> None:
        self.heads.scheduler.finished(row, ok=True, now_ms=self.now_ms, mono_ms=self.now_ms)
        batch = self.shard.table.store.batch()
        upto = finished_up_to(OutcomeKind.DELIVERED, (row.job.attempt, row.job.moves))
        assert self.shard.settle(batch, row, upto) is None
        self.shard.table.store.write(batch)

    def drain(self) -> list[Row]:
        """Everything, one after another."""
        done = []
        while (row := self.pick()) is not None:
            self.deliver(row)
            done.append(row)
        return done

    @property
    def offered(self) -> list[int]:
        return sorted(row.job.seq for row in self.shard.offered.values())

    def look(self) -> None:
        """The invariants: bounded, counted, and nothing waits behind nothing."""
        if self.shard.closed:
            return
        places = self.heads._waiting[self.shard.number]
        for place, waiting in places.items():
            mine = [row for row in self.shard.offered.values() if (row.job.tenant, row.job.destination) == place]
            assert set(mine) == set(waiting.rows)
            assert len(mine) <= 2 * self.heads._head_rows
        assert self.heads.scheduler.waiting == sum(len(shard.offered) for shard in self.heads.shards.values())


def _due(seq: int, due_ms: int, place: tuple[str, str] = PLACE) -> Any:
    return job(seq, due_ms=NOW_MS + due_ms, place=place)


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.heads.resume(made.shard)
    return made


# -- bounds and order --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("spread_ms", [0, 1, 7_000_000], ids=["one moment", "close", "far apart"])
def test_ten_thousand_jobs_come_in_the_order_of_their_times(spread_ms: int) -> None:
    bench, random = Bench(head_rows=HEAD_ROWS, low_rows=16), Random(1)
    bench.heads.resume(bench.shard)
    jobs = [_due(seq, random.randint(0, spread_ms)) for seq in range(10_500)]
    most = 0
    for first in range(0, len(jobs), 500):
        bench.take(*jobs[first : first + 500])
        most = max(most, len(bench.shard.offered))
    assert most <= 2 * HEAD_ROWS
    done = bench.drain()
    assert len(done) == len({row.job.seq for row in done}) == len(jobs)
    assert [row.due_ms for row in done] == sorted(row.due_ms for row in done)
    assert (stored(bench.shard), bench.shard.offered, bench.heads._waiting[0]) == ({}, {}, {})


def test_a_row_that_is_due_sooner_goes_first(bench: Bench) -> None:
    bench.take(*(_due(seq, 100 * seq) for seq in range(1, 20)))
    bench.take(_due(50, 5), _due(51, 1_050), _due(52, 9_000))
    assert [row.job.seq for row in bench.drain()] == [50, *range(1, 11), 51, *range(11, 20), 52]


def test_too_many_that_are_due_sooner_send_the_latest_back(bench: Bench) -> None:
    for seq in range(30):
        bench.take(_due(seq, 1_000 - seq))
    assert len(bench.offered) <= 8
    assert [row.job.seq for row in bench.drain()] == list(reversed(range(30)))


def test_what_is_not_yet_due_waits(bench: Bench) -> None:
    bench.take(*(_due(seq, 20_000_000 + seq) for seq in range(10)))
    assert bench.pick() is None
    bench.now_ms += 20_000_000
    assert len(bench.drain()) == 10


def test_equal_times_are_not_offered_twice_while_many_are_in_hand(bench: Bench) -> None:
    bench.take(*(_due(seq, 0) for seq in range(40)))
    picked = []
    for _ in range(200):
        row = bench.pick()
        if row is not None:
            picked.append(row)
            bench.heads.scheduler.finished(row, ok=True, now_ms=bench.now_ms, mono_ms=bench.now_ms)
    assert sorted(row.job.seq for row in picked) == list(range(40))
    assert len(bench.shard.in_hand) == 40


def test_a_refill_brings_no_more_than_a_head_however_many_are_in_hand(bench: Bench) -> None:
    bench.shard.in_hand = {bytes([n] * 16): Row(job(1_000 + n), 0, (), 0) for n in range(200)}
    bench.take(*(_due(seq, seq) for seq in range(100)))
    assert len(bench.offered) <= 8
    for _ in range(10):
        row = bench.pick()
        assert row is not None
        bench.deliver(row)
        assert len(bench.offered) <= 8


def test_destinations_have_heads_of_their_own(bench: Bench) -> None:
    bench.take(*(_due(seq, seq, (PLACE, OTHER)[seq % 2]) for seq in range(40)))
    assert len(bench.heads._waiting[0]) == 2
    done = bench.drain()
    for place in (PLACE, OTHER):
        mine = [row.job.seq for row in done if (row.job.tenant, row.job.destination) == place]
        assert mine == sorted(mine)
        assert len(mine) == 20


# -- rows go, and come back --------------------------------------------------------------------------------------------
def test_withdrawn_rows_are_replaced(bench: Bench) -> None:
    """An old owner's outcomes may end everything that is offered at once; the rest must not wait behind nothing."""
    bench.take(*(_due(seq, seq) for seq in range(20)))
    while ended := list(bench.shard.offered.values()):
        batch = bench.shard.table.store.batch()
        outcomes = [wire_attempts.Outcome(OutcomeKind.DELIVERED, row.job, 0) for row in ended]
        stale = bench.shard.apply_outcomes(batch, outcomes)
        bench.shard.table.store.write(batch)
        for row in stale:
            bench.heads.withdraw(bench.shard, row)
        bench.look()
    assert stored(bench.shard) == {}


def test_a_newer_version_is_offered_in_place_of_the_old(bench: Bench) -> None:
    bench.take(_due(1, 0), _due(2, 0))
    bench.take(_due(1, 0)._replace(attempt=2), topic=NAMES.retry("10s"))
    assert sorted((row.job.seq, row.job.attempt) for row in bench.drain()) == [(1, 2), (2, 1)]


def test_jobs_in_other_hands_are_held(bench: Bench) -> None:
    shard = bench.shard
    taken = [_due(seq, 0) for seq in range(12)]
    batch = shard.table.store.batch()
    for one in taken[:9]:
        shard.note_claim(batch, one.delivery_id, Claim(1, 0, NOW_MS))
    shard.table.store.write(batch)
    bench.take(*taken)
    assert [row.job.seq for row in bench.drain()] == [9, 10, 11]
    held = dict(shard.held)
    assert len(held) == 9
    for key, row in held.items():
        del shard.foreign[key], shard.held[key]
        bench.heads.accept(shard, row)
        bench.look()
    assert len(bench.drain()) == 9


def test_pages_of_held_rows_do_not_hide_what_is_behind_them() -> None:
    shard = open_shard()
    feed = Feed(shard)
    jobs = [_due(seq, seq) for seq in range(60)]
    feed.take(NAMES.deliveries, *jobs)
    batch = shard.table.store.batch()
    for one in jobs[:50]:
        shard.note_claim(batch, one.delivery_id, Claim(1, 0, NOW_MS))
    shard.table.store.write(batch)
    bench = Bench(shard)
    bench.heads.resume(shard)
    assert [row.job.seq for row in bench.drain()] == list(range(50, 60))


def test_an_offered_row_that_turns_out_to_be_in_other_hands_is_held(bench: Bench) -> None:
    bench.take(*(_due(seq, seq) for seq in range(10)))
    first = bench.shard.offered[_due(0, 0).delivery_id]
    bench.shard.foreign[first.job.delivery_id] = Claim(1, 0, NOW_MS)
    bench.heads.hold(bench.shard, first.job.delivery_id)
    assert bench.shard.held == {first.job.delivery_id: first}
    assert [row.job.seq for row in bench.drain()] == list(range(1, 10))
    bench.heads.hold(bench.shard, b"unknown")


# -- suspended ---------------------------------------------------------------------------------------------------------
def test_a_suspended_shard_offers_nothing(bench: Bench) -> None:
    bench.take(*(_due(seq, seq) for seq in range(10)))
    row = bench.pick()
    assert row is not None
    bench.heads.suspend(bench.shard)
    bench.take(*(_due(seq, seq) for seq in range(10, 30)))
    assert (bench.pick(), bench.offered) == (None, [])
    bench.deliver(row)
    bench.heads.resume(bench.shard)
    assert [row.job.seq for row in bench.drain()] == list(range(1, 30))


def test_rows_of_an_earlier_life_are_found(bench: Bench) -> None:
    bench.take(*(_due(seq, seq) for seq in range(30)))
    bench.heads.close(bench.shard)
    again = Bench(bench.shard)
    assert again.pick() is None
    again.heads.resume(again.shard)
    assert [row.job.seq for row in again.drain()] == list(range(30))


def test_closing_takes_everything_back(bench: Bench) -> None:
    bench.take(*(_due(seq, 0, (PLACE, OTHER)[seq % 2]) for seq in range(30)))
    bench.heads.close(bench.shard)
    assert (bench.heads.scheduler.waiting, bench.heads.shards, bench.heads._waiting) == (0, {}, {})
    assert bench.heads.pick(bench.now_ms, bench.now_ms) is None


# -- payloads and failures ---------------------------------------------------------------------------------------------
def test_payloads_in_memory_are_counted_and_bounded() -> None:
    bench = Bench(head_rows=64, low_rows=16)
    bench.heads.resume(bench.shard)
    large = bytes(PAYLOADS_BYTES_MAX // 8)
    for seq in range(20):
        [record] = bench.feed.records(NAMES.deliveries, _due(seq, seq), value=large)
        taken = bench.shard.take_in(NAMES.deliveries, [record], record.offset + 1)
        bench.heads.accept(bench.shard, taken.fresh[0])
        assert bench.heads._payload_bytes <= PAYLOADS_BYTES_MAX
    rows = bench.drain()
    assert len(rows) == 20
    assert bench.heads._payload_bytes == 0


def test_a_table_that_cannot_be_read_stops_its_shard_and_nothing_else(bench: Bench) -> None:
    other = open_shard(number=1)
    bench.heads.open(other, [])
    bench.heads.resume(other)
    for row in Feed(other).take(NAMES.deliveries, _due(900, 0)).fresh:
        bench.heads.accept(other, row)
    bench.take(*(_due(seq, seq) for seq in range(20)))
    bench.shard.table.store.close(clean=False)
    picked = []
    while (row := bench.heads.pick(bench.now_ms, bench.now_ms)) is not None:
        picked.append((row.shard, row.job.seq))
    assert bench.failed == [bench.shard]
    assert (1, 900) in picked
    assert all(seq < 4 for shard, seq in picked if shard == 0)
    bench.heads.close(bench.shard)
