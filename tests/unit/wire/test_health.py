"""What is known of sinks, and what people are told, as records."""

from __future__ import annotations

import pytest

from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import CLOSED, Breaker
from hub_app.domain.health import BreakerHealth, Health, StreakHealth
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.wire import health as wire
from hub_app.wire import operator as wire_operator
from hub_app.wire.record import Unreadable

T = 1_767_323_045_678
URL = "https://crm.example.com/in?a=b"


@pytest.mark.parametrize(
    "health",
    [
        BreakerHealth("ação", URL, Breaker(5, T, 30_000), T),
        BreakerHealth("acme", URL, Breaker(3, 0, 0), T),
        BreakerHealth("acme", URL, CLOSED, T),
        StreakHealth("acme", URL, "sub_1", Streak(T, T + 5)),
        StreakHealth("acme", URL, "sub_1", Streak(T, T + 5), 80, True),
    ],
)
def test_what_is_written_is_read(health: Health) -> None:
    record = wire.write(health)
    assert wire.read(record.key, record.value) == health


def test_keys_of_breakers_and_streaks() -> None:
    assert wire.split_key(wire.join_key("acme", URL)) == ("acme", URL, None)
    assert wire.split_key(wire.join_key("acme", URL, "sub_1")) == ("acme", URL, "sub_1")
    for subscription in (None, "sub_1"):
        cleared = wire.write_cleared("acme", URL, subscription)
        assert cleared.value is None
        assert wire.read(cleared.key, cleared.value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"acme", b"{}"),
        (b"acme\x1f\xff", b"{}"),
        (b"acme\x1fx", b""),
        (b"acme\x1fx", b"[]"),
        (b"acme\x1fx", b'{"failures":-1,"open_ms":0,"changed_at":"2026-01-02T03:04:05.678Z"}'),
        (b"acme\x1fx", b'{"failures":5,"open_ms":30000,"opened_at":null,"changed_at":"2026-01-02T03:04:05.678Z"}'),
        (b"acme\x1fx\x1fs", b'{"first_failure":"x"}'),
        (
            b"acme\x1fx\x1fs",
            b'{"first_failure":"2026-01-02T03:04:05.678Z","last_failure":"2026-01-02T03:04:05.678Z",'
            b'"warned_percent":0,"disable_wanted":1}',
        ),
    ],
)
def test_what_makes_no_sense_is_unreadable(key: bytes | None, value: bytes) -> None:
    assert isinstance(wire.read(key, value), Unreadable)


def test_operator_events() -> None:
    event = OperatorEvent("ação", OperatorKind.BREAKER_OPENED, T, URL, "", str(T), "after 5 failures in a row")
    record = wire_operator.write(event)
    assert record.key == "ação".encode()
    assert wire_operator.read(record.key, record.value) == event
    assert wire_operator.to_json(event) == {
        "id": event.id,
        "kind": "breaker.opened",
        "at": "2026-01-02T03:04:05.678Z",
        "destination": URL,
        "subscription": None,
        "detail": "after 5 failures in a row",
    }
    assert event._replace(at_ms=0, detail="").id == event.id != event._replace(mark="2").id


@pytest.mark.parametrize("value", [None, b"", b"[]", b'{"kind":"other"}', b'{"kind":"breaker.opened","at":"x"}'])
def test_an_operator_event_that_makes_no_sense_is_unreadable(value: bytes | None) -> None:
    assert isinstance(wire_operator.read(b"acme", value), Unreadable)
