"""120 hours, 12 hours, warnings: at their exact edges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.autodisable import (
    DisablePolicy,
    Streak,
    failed,
    fires,
    fires_at_ms,
    since_enabled,
    succeeded,
    warning_percent,
)
from hub_app.domain.limits import HOUR_MS

T0 = 1_767_323_045_000
POLICY = DisablePolicy()
WINDOW, SPREAD = 120 * HOUR_MS, 12 * HOUR_MS


def hours(first: float, last: float) -> Streak:
    return Streak(T0 + int(first * HOUR_MS), T0 + int(last * HOUR_MS))


@pytest.mark.parametrize(
    ("streak", "now_ms", "expected"),
    [
        (None, T0 + 10 * WINDOW, False),
        # A lone failure five days ago, or a year.
        (hours(0, 0), T0 + WINDOW, False),
        (hours(0, 0), T0 + 100 * WINDOW, False),
        # One 120 h ago, one 12 h later, and none since.
        (hours(0, 12), T0 + WINDOW, True),
        (hours(0, 12), T0 + WINDOW - 1, False),
        (Streak(T0, T0 + SPREAD - 1), T0 + WINDOW, False),
        (Streak(T0, T0 + SPREAD), T0 + WINDOW, True),
        (hours(0, 120), T0 + WINDOW, True),
        # One timeout an hour for a day.
        (hours(0, 24), T0 + 24 * HOUR_MS, False),
        # A clock that stepped back.
        (hours(0, 12), T0 - HOUR_MS, False),
    ],
)
def test_row_23_fires(streak: Streak | None, now_ms: int, expected: bool) -> None:
    assert fires(streak, now_ms=now_ms, policy=POLICY) is expected


def test_row_23_one_event_a_day_to_a_dead_sink() -> None:
    streak = None
    for day in range(5):
        streak = failed(streak, at_ms=T0 + day * 24 * HOUR_MS)
        assert not fires(streak, now_ms=T0 + day * 24 * HOUR_MS, policy=POLICY)
    streak = failed(streak, at_ms=T0 + WINDOW)
    assert fires(streak, now_ms=T0 + WINDOW, policy=POLICY)


def test_a_success_or_enabling_clears() -> None:
    assert succeeded() is None  # type: ignore[func-returns-value]
    assert failed(None, at_ms=T0) == Streak(T0, T0)


def test_row_26_a_clock_that_steps_back_makes_no_streak_shorter_or_older() -> None:
    assert failed(hours(0, 5), at_ms=T0 - HOUR_MS) == hours(0, 5)


@pytest.mark.parametrize(
    ("streak", "enabled_at", "expected"),
    [
        (None, 0, None),
        (hours(10, 30), 10, hours(10, 30)),
        (hours(10, 30), 9, hours(10, 30)),
        (hours(10, 30), 31, None),
        (hours(10, 30), 30, hours(30, 30)),
        (hours(10, 30), 11, hours(30, 30)),
    ],
)
def test_what_counts_after_enabling(streak: Streak | None, enabled_at: int, expected: Streak | None) -> None:
    assert since_enabled(streak, enabled_at_ms=T0 + enabled_at * HOUR_MS) == expected


@pytest.mark.parametrize(
    ("streak", "passed_ms", "percent"),
    [
        (None, WINDOW, 0),
        (hours(0, 0), WINDOW, 0),
        (hours(0, 11.9), 60 * HOUR_MS, 0),
        (hours(0, 12), 60 * HOUR_MS - 1, 0),
        (hours(0, 12), 60 * HOUR_MS, 50),
        (hours(0, 12), 96 * HOUR_MS - 1, 50),
        (hours(0, 12), 96 * HOUR_MS, 80),
        (hours(0, 12), 120 * HOUR_MS, 80),
    ],
)
def test_warnings(streak: Streak | None, passed_ms: int, percent: int) -> None:
    assert warning_percent(streak, now_ms=T0 + passed_ms, policy=POLICY) == percent


@given(st.lists(st.integers(0, 200 * HOUR_MS), min_size=1, max_size=20), st.integers(0, 400 * HOUR_MS))
def test_fires_is_the_rule_as_written(failures: list[int], now_after: int) -> None:
    streak = None
    for at in sorted(failures):
        streak = failed(streak, at_ms=T0 + at)
    first, last, now = min(failures), max(failures), now_after
    written = now - first >= WINDOW and last - first >= SPREAD
    assert fires(streak, now_ms=T0 + now, policy=POLICY) is written
    at_ms = fires_at_ms(streak, POLICY)
    assert (at_ms is None) is (last - first < SPREAD)
    assert at_ms is None or (
        fires(streak, now_ms=at_ms, policy=POLICY) and not fires(streak, now_ms=at_ms - 1, policy=POLICY)
    )
