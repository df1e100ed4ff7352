"""One dispatch shard: which record stands for a job, wherever the job is, and what an outcome leaves."""

from __future__ import annotations

from typing import Any

import pytest

from agents.dispatch_shard import DispatchShard
from hub_app.domain.delivery import NOTHING, OutcomeKind, Version, finished_up_to
from hub_app.domain.errors import StoreFailed
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import jobs as wire_jobs
from tables.claims import Claim
from tables.jobs import Row
from tests.fakes.store import Disk
from tests.support.dispatching import NAMES, NOW_MS, RETRY, TOPICS, Feed, job, open_shard, open_store, stored

DELIVERIES, PARKED = NAMES.deliveries, NAMES.parked
KEY = job().delivery_id


def _as_offered(shard: DispatchShard, row: Row) -> None:
    shard.offered[row.job.delivery_id] = row


def _as_in_hand(shard: DispatchShard, row: Row) -> None:
    shard.in_hand[row.job.delivery_id] = row


def _as_held(shard: DispatchShard, row: Row) -> None:
    shard.held[row.job.delivery_id] = row


def _as_spilled(shard: DispatchShard, row: Row) -> None:
    """In the table alone."""


WHERE = {"offered": _as_offered, "held": _as_held, "spilled": _as_spilled, "in hand": _as_in_hand}


@pytest.fixture
def shard() -> DispatchShard:
    return open_shard()


@pytest.fixture
def feed(shard: DispatchShard) -> Feed:
    return Feed(shard)


def _settle(shard: DispatchShard, row: Row, kind: OutcomeKind) -> Row | None:
    batch = shard.table.store.batch()
    left = shard.settle(batch, row, finished_up_to(kind, (row.job.attempt, row.job.moves)))
    shard.table.store.write(batch)
    return left


def _outcome(shard: DispatchShard, kind: OutcomeKind, attempt: int) -> list[Row]:
    batch = shard.table.store.batch()
    stale = shard.apply_outcomes(batch, [wire_attempts.Outcome(kind, job(1, attempt), NOW_MS)])
    shard.table.store.write(batch)
    return stale


# -- a record meets a job ----------------------------------------------------------------------------------------------
def test_a_first_record_stands_for_its_job(shard: DispatchShard, feed: Feed) -> None:
    taken = feed.take(DELIVERIES, job(1), job(2))
    assert [row.job.seq for row in taken.fresh] == [1, 2]
    assert taken.stale == []
    assert stored(shard).keys() == {(1, 1, 0), (2, 1, 0)}
    assert shard.low_marks() == {DELIVERIES: 0, RETRY: 0, PARKED: 0}
    assert shard.table.store.offset(DELIVERIES) == 2


@pytest.mark.parametrize("where", WHERE)
def test_a_lower_version_is_finished(shard: DispatchShard, feed: Feed, where: str) -> None:
    [row] = feed.take(RETRY, job(attempt=2)).fresh
    WHERE[where](shard, row)
    taken = feed.take(DELIVERIES, job(attempt=1))
    assert (taken.fresh, taken.stale) == ([], [])
    assert stored(shard).keys() == {(1, 2, 0)}
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 0, PARKED: 0}


@pytest.mark.parametrize("where", WHERE)
def test_an_equal_version_stands_beside_it(shard: DispatchShard, feed: Feed, where: str) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    WHERE[where](shard, row)
    taken = feed.take(DELIVERIES, job(2), job(1), job(1))
    assert [row.job.seq for row in taken.fresh] == [2]
    assert stored(shard)[1, 1, 0].sources == ((DELIVERIES, 0), (DELIVERIES, 2), (DELIVERIES, 3))
    batch = shard.table.store.batch()
    shard.in_hand[KEY] = row = row if where != "spilled" else stored(shard)[1, 1, 0]
    assert shard.settle(batch, row, (99, 0)) is None
    assert [shard.low[DELIVERIES].is_unfinished(at) for at in range(4)] == [False, True, False, False]


@pytest.mark.parametrize("where", ["offered", "held", "spilled"])
def test_a_higher_version_takes_over(shard: DispatchShard, feed: Feed, where: str) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    WHERE[where](shard, row)
    taken = feed.take(PARKED, job(moves=1))
    assert [(r.job.attempt, r.job.moves) for r in taken.fresh] == [(1, 1)]
    assert [(r.job.attempt, r.job.moves) for r in taken.stale] == [(1, 0)]
    assert stored(shard).keys() == {(1, 1, 1)}
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 0, PARKED: 0}
    assert shard.table.payload(taken.fresh[0])[1] == b"{}"


def test_a_higher_version_waits_for_the_one_in_hand(shard: DispatchShard, feed: Feed) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    taken = feed.take(RETRY, job(attempt=2))
    assert (taken.fresh, taken.stale) == ([], [])
    assert shard.low_marks() == {DELIVERIES: 0, RETRY: 0, PARKED: 0}
    left = _settle(shard, row, OutcomeKind.FAILED)
    assert left is not None
    assert left.job.attempt == 2
    assert stored(shard).keys() == {(1, 2, 0)}
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 0, PARKED: 0}
    assert shard.table.payload(left)[1] == b"{}"


def test_the_highest_of_several_waits_for_the_one_in_hand(shard: DispatchShard, feed: Feed) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    feed.take(PARKED, job(moves=1), job(moves=2), job(moves=1))
    assert shard.low_marks() == {DELIVERIES: 0, RETRY: 0, PARKED: 1}
    feed.take(RETRY, job(attempt=2))
    assert shard.low_marks() == {DELIVERIES: 0, RETRY: 0, PARKED: 3}
    left = _settle(shard, row, OutcomeKind.FAILED)
    assert left is not None
    assert (left.job.attempt, left.job.moves) == (2, 0)


def test_several_versions_in_one_batch(shard: DispatchShard, feed: Feed) -> None:
    taken = feed.take(RETRY, job(attempt=2), job(attempt=4), job(attempt=3), job(attempt=4))
    assert [row.job.attempt for row in taken.fresh] == [4]
    assert stored(shard)[1, 4, 0].sources == ((RETRY, 1), (RETRY, 3))
    assert shard.low_marks()[RETRY] == 1
    assert shard.table.count == 1


def test_what_is_known_to_be_finished_is_not_taken_up(shard: DispatchShard, feed: Feed) -> None:
    assert _outcome(shard, OutcomeKind.FAILED, 2) == []
    taken = feed.take(RETRY, job(attempt=2), job(attempt=2, moves=5), job(attempt=3))
    assert [row.job.attempt for row in taken.fresh] == [3]
    assert shard.low_marks()[RETRY] == 2


def test_what_ended_is_not_forgotten_by_a_lesser_end(shard: DispatchShard, feed: Feed) -> None:
    """An owner that was overtaken tells late that an attempt failed, of a job that another has delivered."""
    _outcome(shard, OutcomeKind.DELIVERED, 2)
    _outcome(shard, OutcomeKind.FAILED, 1)
    assert feed.take(RETRY, job(attempt=2), job(attempt=3)).fresh == []


def test_a_record_of_no_sense_stops_nothing(shard: DispatchShard, feed: Feed) -> None:
    broken = feed.records(DELIVERIES, job(1))[0]._replace(headers=(("hub-delivery-id", b"?"),))
    good = feed.records(DELIVERIES, job(2))[0]
    taken = shard.take_in(DELIVERIES, [broken, good], 2)
    assert ([row.job.seq for row in taken.fresh], shard.unreadable) == ([2], 1)
    assert shard.low_marks()[DELIVERIES] == 1


def test_gaps_in_the_offsets_hold_nothing(shard: DispatchShard, feed: Feed) -> None:
    [record] = feed.records(DELIVERIES, job())
    shard.take_in(DELIVERIES, [record._replace(offset=7)], 12)
    assert (shard.low_marks()[DELIVERIES], shard.low[DELIVERIES].position()) == (7, 12)
    _settle(shard, _claimed(shard), OutcomeKind.DELIVERED)
    assert shard.low_marks()[DELIVERIES] == 12


def _claimed(shard: DispatchShard, seq: int = 1) -> Row:
    row = next(row for (number, *_), row in stored(shard).items() if number == seq)
    shard.in_hand[row.job.delivery_id] = row
    return row


# -- outcomes ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "left"),
    [
        (OutcomeKind.DELIVERED, None),
        (OutcomeKind.DEAD, None),
        (OutcomeKind.FAILED, None),
        (OutcomeKind.MOVED, (1, 1)),
        (OutcomeKind.DEFERRED, (1, 1)),
    ],
)
def test_what_an_outcome_leaves_of_a_job_that_was_copied_meanwhile(
    shard: DispatchShard, feed: Feed, kind: OutcomeKind, left: Version | None
) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    feed.take(PARKED, job(moves=1))
    goes_on = _settle(shard, row, kind)
    assert (goes_on and (goes_on.job.attempt, goes_on.job.moves)) == left
    assert stored(shard).keys() == ({(1, *left)} if left else set())
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 0, PARKED: 0 if left else 1}
    assert shard.table.count == len(stored(shard))


def test_a_deferred_job_goes_on(shard: DispatchShard, feed: Feed) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    assert _settle(shard, row, OutcomeKind.DEFERRED) is row
    assert (shard.in_hand, shard.low_marks()[DELIVERIES]) == ({}, 0)
    assert stored(shard).keys() == {(1, 1, 0)}


@pytest.mark.parametrize("where", ["offered", "held", "spilled"])
def test_an_outcome_of_somebody_else_ends_a_waiting_job(shard: DispatchShard, feed: Feed, where: str) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    WHERE[where](shard, row)
    stale = _outcome(shard, OutcomeKind.FAILED, 1)
    assert [row.job.delivery_id for row in stale] == [KEY]
    assert (stored(shard), shard.low_marks()[DELIVERIES]) == ({}, 1)


def test_an_outcome_of_somebody_else_waits_for_the_attempt_in_hand(shard: DispatchShard, feed: Feed) -> None:
    """The attempt in hand was not charged; without the other's outcome its job would go on, although it ended."""
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    feed.take(RETRY, job(attempt=2))
    assert _outcome(shard, OutcomeKind.DELIVERED, 1) == []
    assert shard.table.payload(row)[1] == b"{}"
    assert _settle(shard, row, OutcomeKind.DEFERRED) is None
    assert (stored(shard), shard.successors, shard.told) == ({}, {}, {})
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 1, PARKED: 0}


def test_outcomes_that_finish_nothing_leave_nothing_behind(shard: DispatchShard, feed: Feed) -> None:
    feed.take(DELIVERIES, job())
    assert _outcome(shard, OutcomeKind.DEFERRED, 1) == []
    assert stored(shard).keys() == {(1, 1, 0)}
    assert shard.table.finished([KEY]) == [NOTHING]


def test_a_row_let_go_gives_way_to_a_newer_version(shard: DispatchShard, feed: Feed) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    assert shard.let_go(row) is row
    _as_in_hand(shard, row)
    feed.take(PARKED, job(moves=1))
    assert shard.let_go(row).job.moves == 1
    assert shard.low_marks() == {DELIVERIES: 1, RETRY: 0, PARKED: 0}


# -- claims of others --------------------------------------------------------------------------------------------------
FIRST, LONGER, SECOND = Claim(1, 0, NOW := 1_000), Claim(1, 1, NOW + 5), Claim(2, 0, NOW + 9)


@pytest.mark.parametrize(
    ("events", "left"),
    [
        ([FIRST], FIRST),
        ([FIRST, LONGER], LONGER),
        ([LONGER, FIRST], LONGER),
        ([FIRST, 1], None),
        ([FIRST, 1, SECOND], SECOND),
        ([SECOND, 1], SECOND),
        ([SECOND, 2], None),
        ([SECOND, 99], None),
    ],
)
def test_claims_and_outcomes_in_the_order_of_the_log(
    shard: DispatchShard, events: list[Claim | int], left: Claim | None
) -> None:
    batch = shard.table.store.batch()
    for event in events:
        if isinstance(event, Claim):
            shard.note_claim(batch, KEY, event)
        else:
            shard.clear_claim(batch, KEY, event)
    shard.table.store.write(batch)
    assert shard.foreign.get(KEY) == left == shard.table.claims().get(KEY)


def test_what_is_in_hand_here_is_nobody_elses(shard: DispatchShard, feed: Feed) -> None:
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    assert shard.note_claim(shard.table.store.batch(), KEY, FIRST) is False
    assert shard.foreign == {}


# -- opening -----------------------------------------------------------------------------------------------------------
def test_low_water_marks_begin_at_the_lowest_unfinished_record() -> None:
    shard = open_shard()
    shard.start_reading({DELIVERIES: 20, RETRY: 3}, {DELIVERIES: 25, RETRY: 3}, [(DELIVERIES, 7), (DELIVERIES, 12)])
    assert (shard.low_marks(), shard.caught_up) == ({DELIVERIES: 7, RETRY: 3}, False)


def test_records_above_the_position_are_left_to_be_read_again() -> None:
    shard = open_shard()
    shard.start_reading({DELIVERIES: 5}, {DELIVERIES: 5}, [(DELIVERIES, 4), (DELIVERIES, 5), ("hub.retry.9s", 1)])
    assert shard.low_marks() == {DELIVERIES: 4}


def test_a_table_that_fails_leaves_no_gap() -> None:
    """What could not be written is read again by the next opening, whatever memory made of it."""
    disk = Disk()
    shard = open_shard(disk)
    feed = Feed(shard)
    [row] = feed.take(DELIVERIES, job()).fresh
    _as_in_hand(shard, row)
    store: Any = shard.table.store
    store.before_write = _refuse
    with pytest.raises(StoreFailed):
        feed.take(RETRY, job(attempt=2))
    store.close(clean=False)
    again = open_store(disk)
    assert (again.offset(RETRY), again.offset(DELIVERIES)) == (None, 1)
    assert shard.low_marks() == {DELIVERIES: 0, RETRY: 0, PARKED: 0}


def _refuse() -> None:
    raise StoreFailed("dispatch/0", "No space left on device")


def test_records_are_read_as_they_were_written(shard: DispatchShard, feed: Feed) -> None:
    wanted = job(3, 4, 0, due_ms=1_767_323_099_123, reclaims=2, series="op_1")
    feed.take(RETRY, wanted)
    [row] = shard.table.rows([wanted.delivery_id])
    assert row is not None
    assert (row.job, row.due_ms, row.sources) == (wanted, 1_767_323_099_123, ((RETRY, 0),))
    assert wire_jobs.read(wire_jobs.write(wanted)) == wanted
    assert set(TOPICS) == shard.low.keys()
