"""Rows of queues: order, places, what the log says twice, what is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_app.domain.queue import Row, Rules, freed, locked, returned
from hub_app.wire.queue import Action, Enqueued, Marked
from tables.memory import Memory
from tables.queues import FAMILIES, QueueTable
from tables.shard import Identity, ShardStore

NOW = 1_767_323_045_000
RULES = Rules(lock_ms=60_000, deliveries_max=3, ttl_ms=86_400_000)
ALL = 1 << 62


@pytest.fixture
def table(tmp_path: Path) -> Iterator[QueueTable]:
    identity = Identity("cluster", 0, 1)
    store = ShardStore.open(
        tmp_path / "0", plane="inbox", shard=0, families=FAMILIES, memory=Memory(), identity=identity
    )
    yield QueueTable(store, "hub.queue")
    store.close()


def give(table: QueueTable, *seqs: int, subscription: str = "sub_a", series: str = "") -> list[int]:
    batch = table.store.batch()
    new = table.enqueue(batch, subscription, [(seq, NOW) for seq in seqs], series=series)
    table.store.write(batch)
    return new


def change(table: QueueTable, before: Row, after: Row | None, subscription: str = "sub_a") -> None:
    batch = table.store.batch()
    table.put(batch, subscription, before, after)
    table.store.write(batch)


def row(table: QueueTable, seq: int) -> Row:
    [found] = table.rows("sub_a", [seq])
    assert found is not None
    return found


def test_the_lowest_seq_stands_first_and_each_queue_has_its_own(table: QueueTable) -> None:
    give(table, 3, 5, 1 << 41)
    give(table, 4, subscription="sub_ab")
    assert table.ready("sub_a", ALL, 10) == [3, 5, 1 << 41]
    assert table.ready("sub_a", ALL, 2) == [3, 5]
    assert table.ready("sub_a", 5, 10) == [3]
    assert table.ready("sub_a", ALL, 10, after_seq=3) == [5, 1 << 41]
    assert table.ready("sub_ab", ALL, 10) == [4]
    assert table.rows("sub_a", [3, 4]) == [Row(3, NOW), None]


def test_a_locked_event_is_due_at_its_end_and_comes_back_to_its_own_place(table: QueueTable) -> None:
    give(table, 1, 2, 3)
    first = row(table, 1)
    held = locked(first, now_ms=NOW, rules=RULES)
    change(table, first, held)
    assert table.ready("sub_a", ALL, 10) == [2, 3]
    assert table.next_due_ms("sub_a") == NOW + 60_000
    assert table.due("sub_a", NOW + 59_999, 10) == []
    assert table.due("sub_a", NOW + 60_000, 10) == [1]
    assert row(table, 1) == held
    change(table, held, returned(held))
    assert table.ready("sub_a", ALL, 10) == [1, 2, 3]
    assert table.next_due_ms("sub_a") is None


def test_places_below_what_was_seen_are_found_again(table: QueueTable) -> None:
    give(table, 1, 2)
    first = row(table, 1)
    held = locked(first, now_ms=NOW, rules=RULES)
    change(table, first, held)
    assert table.ready("sub_a", ALL, 10) == [2]
    second = row(table, 2)
    change(table, second, None)
    assert table.ready("sub_a", ALL, 10) == []
    assert table.next_due_ms("sub_a") == NOW + 60_000
    sooner = freed(held, now_ms=NOW, delay_ms=10_000)
    change(table, held, sooner)
    assert table.next_due_ms("sub_a") == NOW + 10_000
    change(table, sooner, returned(sooner))
    assert table.next_due_ms("sub_a") is None
    assert table.ready("sub_a", ALL, 10) == [1]
    give(table, 7)
    assert table.ready("sub_a", ALL, 10) == [1, 7]


def test_a_fact_read_again_resurrects_nothing(table: QueueTable) -> None:
    assert give(table, 1, 2) == [1, 2]
    change(table, row(table, 1), None)
    assert give(table, 1, 2, 3) == [3]
    assert table.ready("sub_a", ALL, 10) == [2, 3]
    again = QueueTable(table.store, "hub.queue")
    assert (again.highest("sub_a"), again.highest("sub_b")) == (3, -1)
    assert give(again, 2, 3) == []


def test_an_operation_puts_an_event_there_once_more_and_once(table: QueueTable) -> None:
    give(table, 1)
    change(table, row(table, 1), None)
    assert give(table, 1, series="op_1") == [1]
    assert row(table, 1) == Row(1, NOW, series="op_1")
    change(table, row(table, 1), None)
    assert give(table, 1, series="op_1") == []
    assert give(table, 1, series="op_2") == [1]
    assert give(table, 5, series="op_2", subscription="sub_new") == [5]
    assert sorted(table.subscriptions()) == ["sub_a", "sub_new"]


def test_a_dropped_queue_leaves_nothing_and_the_others_everything(table: QueueTable) -> None:
    give(table, 1, 2)
    give(table, 1, series="op_1")
    give(table, 3, subscription="sub_ab")
    batch = table.store.batch()
    table.drop(batch, "sub_a")
    table.store.write(batch)
    assert table.ready("sub_a", ALL, 10) == [] and table.rows("sub_a", [1, 2]) == [None, None]
    assert table.subscriptions() == ["sub_ab"] and table.highest("sub_a") == -1
    assert table.ready("sub_ab", ALL, 10) == [3]


def marked(action: Action, *marks: tuple[int, int], until_ms: int = 0, at_ms: int = NOW, series: str = "") -> Marked:
    return Marked(action, "t", "sub_a", series, at_ms, until_ms, marks)


LIFE = (
    Enqueued("t", "sub_a", "", NOW, ((1, NOW), (2, NOW), (3, NOW), (4, NOW), (5, NOW))),
    marked(Action.LOCKED, (1, 1), (2, 1), (3, 1), (4, 1), until_ms=NOW + 60_000),
    marked(Action.ACKNOWLEDGED, (1, 1)),
    marked(Action.RELEASED, (2, 1), until_ms=NOW + 10_000),
    marked(Action.RENEWED, (3, 1), until_ms=NOW + 90_000),
    marked(Action.BURIED, (4, 1)),
    marked(Action.LOCKED, (2, 2), until_ms=NOW + 80_000, at_ms=NOW + 20_000),
)


def replay(table: QueueTable, *said: Enqueued | Marked) -> list[Row | None]:
    for one in said:
        batch = table.store.batch()
        table.apply(batch, one)
        table.store.write(batch)
    return table.rows("sub_a", [1, 2, 3, 4, 5])


def test_the_log_makes_the_rows(table: QueueTable) -> None:
    assert replay(table, *LIFE) == [
        None,
        Row(2, NOW, 2, True, NOW + 80_000, NOW + 20_000, NOW + 80_000),
        Row(3, NOW, 1, True, NOW + 90_000, NOW, NOW + 90_000),
        None,
        Row(5, NOW),
    ]
    assert table.ready("sub_a", ALL, 10) == [5]


@pytest.mark.parametrize("start", range(len(LIFE)))
def test_the_log_read_again_from_anywhere_changes_nothing(table: QueueTable, start: int) -> None:
    once = replay(table, *LIFE)
    assert replay(table, *LIFE[start:]) == once
    assert table.ready("sub_a", ALL, 10) == [5]


@pytest.mark.parametrize(
    "late",
    [
        marked(Action.LOCKED, (1, 1), (2, 1), until_ms=NOW + 500_000),
        marked(Action.ACKNOWLEDGED, (2, 1), (5, 1)),
        marked(Action.RELEASED, (2, 1)),
        marked(Action.RENEWED, (2, 1), (1, 1), until_ms=NOW + 500_000),
        marked(Action.BURIED, (2, 1), (3, 2)),
        marked(Action.ACKNOWLEDGED, (2, 2), (3, 1), series="op_1"),
    ],
)
def test_what_is_not_of_the_latest_delivery_changes_nothing(table: QueueTable, late: Marked) -> None:
    once = replay(table, *LIFE)
    assert replay(table, late) == once


def test_how_far_the_log_has_come_never_goes_back(table: QueueTable) -> None:
    assert table.next_offset is None
    for offset in (7, 5):
        batch = table.store.batch()
        table.reached(batch, offset)
        table.store.write(batch)
        assert table.next_offset == QueueTable(table.store, "hub.queue").next_offset == 7
