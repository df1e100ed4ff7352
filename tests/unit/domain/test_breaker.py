"""The circuit breaker's table, its edges in time, and what it admits."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.breaker import (
    CLOSED,
    TABLE,
    Breaker,
    BreakerPolicy,
    Event,
    State,
    admits,
    after,
    lapsed,
    state_at,
)
from hub_app.domain.limits import HOUR_MS

T0 = 1_767_323_045_000
POLICY = BreakerPolicy()


def fail(breaker: Breaker, now_ms: int, times: int = 1) -> Breaker:
    for _ in range(times):
        breaker = after(breaker, Event.FAILED, now_ms=now_ms, policy=POLICY)
    return breaker


OPEN = fail(CLOSED, T0, 5)


def test_the_table_is_total() -> None:
    assert set(TABLE) == set(itertools.product(State, Event))


def test_opens_at_the_fifth_failure_in_a_row() -> None:
    assert state_at(fail(CLOSED, T0, 4), T0) is State.CLOSED
    assert state_at(OPEN, T0) is State.OPEN
    assert OPEN.until_ms == T0 + 30_000


def test_a_success_between_starts_the_count_again() -> None:
    broken = after(fail(CLOSED, T0, 4), Event.SUCCEEDED, now_ms=T0, policy=POLICY)
    assert broken == CLOSED
    assert state_at(fail(broken, T0, 4), T0) is State.CLOSED


@pytest.mark.parametrize(("ms", "state"), [(0, State.OPEN), (29_999, State.OPEN), (30_000, State.HALF_OPEN)])
def test_half_open_by_itself(ms: int, state: State) -> None:
    assert state_at(OPEN, T0 + ms) is state


def test_each_failed_probe_doubles_up_to_five_minutes() -> None:
    breaker, now, waits = OPEN, T0, []
    for _ in range(6):
        assert breaker.until_ms is not None
        waits.append(breaker.until_ms - now)
        now = breaker.until_ms
        breaker = fail(breaker, now)
    assert waits == [30_000, 60_000, 120_000, 240_000, 300_000, 300_000]


def test_a_successful_probe_closes_and_all_is_forgotten() -> None:
    again = fail(OPEN, T0 + 30_000)
    closed = after(again, Event.SUCCEEDED, now_ms=T0 + 90_000, policy=POLICY)
    assert closed == CLOSED and closed.until_ms is None
    assert fail(closed, T0 + 90_000, 5).until_ms == T0 + 120_000


def test_late_failures_while_open_do_not_prolong_it() -> None:
    late = fail(OPEN, T0 + 10_000, 3)
    assert late.until_ms == OPEN.until_ms and late.failures == 8


def test_a_success_of_a_last_attempt_closes_it() -> None:
    assert after(OPEN, Event.SUCCEEDED, now_ms=T0 + 1, policy=POLICY) == CLOSED


@pytest.mark.parametrize("hours", [1, 1_000])
def test_a_clock_that_steps_back_does_not_hold_it_open(hours: int) -> None:
    assert state_at(OPEN, T0 - hours * HOUR_MS) is State.HALF_OPEN
    assert state_at(OPEN, T0 - 1) is State.HALF_OPEN


@pytest.mark.parametrize(
    ("breaker", "ms", "in_flight", "last", "lasts", "expected"),
    [
        (CLOSED, 0, 50, False, 0, True),
        (CLOSED, 0, 50, True, 5, True),
        (OPEN, 1, 0, False, 0, False),
        (OPEN, 1, 3, True, 0, True),
        (OPEN, 1, 1, True, 1, False),
        (OPEN, 29_999, 0, False, 0, False),
        (OPEN, 30_000, 0, False, 0, True),
        (OPEN, 30_000, 1, False, 0, False),
        (OPEN, 30_000, 1, True, 0, False),
    ],
)
def test_admits(breaker: Breaker, ms: int, in_flight: int, last: bool, lasts: int, expected: bool) -> None:
    assert admits(breaker, now_ms=T0 + ms, in_flight=in_flight, last=last, lasts_in_flight=lasts) is expected


@pytest.mark.parametrize(("age_ms", "expected"), [(48 * HOUR_MS - 1, False), (48 * HOUR_MS, True)])
def test_waiting_in_vain_ends_at_48_hours(age_ms: int, expected: bool) -> None:
    assert lapsed(received_at_ms=T0, now_ms=T0 + age_ms, max_age_ms=24 * HOUR_MS) is expected


@given(st.lists(st.tuples(st.sampled_from(Event), st.integers(-50_000, 400_000)), max_size=40))
def test_whatever_happens_it_can_close_again_within_five_minutes(history: list[tuple[Event, int]]) -> None:
    breaker, now = CLOSED, T0
    for event, passed in history:
        now += passed
        breaker = after(breaker, event, now_ms=now, policy=POLICY)
        assert breaker.open_ms in (0, 30_000, 60_000, 120_000, 240_000, 300_000)
        assert (breaker.failures == 0) <= (breaker == CLOSED)
    assert state_at(breaker, now + 300_000) in (State.CLOSED, State.HALF_OPEN)
    assert after(breaker, Event.SUCCEEDED, now_ms=now, policy=POLICY) == CLOSED
