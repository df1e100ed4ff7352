"""`hub.queue`: events given to queues, and what happened to their deliveries."""

from __future__ import annotations

import pytest

from hub_app.domain.limits import QUEUE_MARKS_PER_RECORD_MAX, RECORD_BYTES_MAX
from hub_app.wire import queue
from hub_app.wire.queue import Action, Enqueued, Marked
from hub_app.wire.record import Unreadable, record_bytes

AT = 1_767_323_045_678
MARKED = Marked(Action.LOCKED, "acme", "sub_1", "", AT, AT + 60_000, ((7, 1), (1 << 41, 10)))


def test_what_a_person_reads() -> None:
    (record,) = queue.write_marked(MARKED)
    assert record.key == b"acme"
    assert record.value == b"7 1\n2199023255552 10\n"
    assert record.headers == [
        ("hub-action", b"locked"),
        ("hub-tenant", b"acme"),
        ("hub-subscription", b"sub_1"),
        ("hub-series", b""),
        ("hub-at", b"2026-01-02T03:04:05.678Z"),
        ("hub-until", b"2026-01-02T03:05:05.678Z"),
        ("hub-schema", b"1"),
    ]
    (record,) = queue.write_enqueued("acme", "sub_1", [(7, AT)], at_ms=AT)
    assert (record.headers[0], record.value) == (("hub-action", b"enqueued"), b"7 2026-01-02T03:04:05.678Z\n")


@pytest.mark.parametrize("action", list(Action))
@pytest.mark.parametrize("until_ms", [0, AT])
@pytest.mark.parametrize("series", ["", "op_1"])
def test_marks_come_back(action: Action, until_ms: int, series: str) -> None:
    marked = MARKED._replace(action=action, until_ms=until_ms, series=series)
    (record,) = queue.write_marked(marked)
    assert queue.read([*reversed(record.headers)], record.value) == marked


def test_events_come_back() -> None:
    (record,) = queue.write_enqueued("ten\u00e4nt", "sub_1", [(7, AT), (9, AT + 1)], at_ms=AT, series="op_1")
    read = queue.read(record.headers, record.value)
    assert read == Enqueued("ten\u00e4nt", "sub_1", "op_1", AT, ((7, AT), (9, AT + 1)))


def test_very_many_take_several_records() -> None:
    events = [(10**17 + i, AT) for i in range(QUEUE_MARKS_PER_RECORD_MAX + 1)]
    made = list(queue.write_enqueued("a" * 256, "sub_1", events, at_ms=AT))
    assert [len((record.value or b"").splitlines()) for record in made] == [QUEUE_MARKS_PER_RECORD_MAX, 1]
    assert all(record_bytes(*record) < RECORD_BYTES_MAX for record in made)
    assert list(queue.write_enqueued("a", "sub_1", [], at_ms=AT)) == []
    assert list(queue.write_marked(MARKED._replace(marks=()))) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hub-schema", b"2"),
        ("hub-action", b"eaten"),
        ("hub-at", b"now"),
        ("hub-until", b"later"),
        ("hub-tenant", b"\xff"),
    ],
)
def test_senseless_headers_are_a_value(name: str, value: bytes) -> None:
    (record,) = queue.write_marked(MARKED)
    assert isinstance(queue.read([*record.headers, (name, value)], record.value), Unreadable)
    assert isinstance(queue.read([h for h in record.headers if h[0] != name], record.value), Unreadable)


@pytest.mark.parametrize("value", [b"7\n", b"7 x\n", b"-7 1\n", b"7 1 1\n", b"\xff \xff\n"])
def test_senseless_lines_are_a_value(value: bytes) -> None:
    (record,) = queue.write_marked(MARKED)
    assert isinstance(queue.read(record.headers, value), Unreadable)
