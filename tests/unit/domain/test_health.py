"""What of a sink's recorded health still counts, and bursts of dead letters."""

from __future__ import annotations

import pytest

from hub_app.domain.breaker import CLOSED, Breaker
from hub_app.domain.health import BreakerHealth, breaker_since
from hub_app.domain.operator import BURST_COUNT, BURST_QUIET_MS, BURST_WINDOW_MS, Bursts

T = 1_767_323_045_678
OPEN, COUNTING = Breaker(7, T, 30_000), Breaker(3)


@pytest.mark.parametrize(
    ("breaker", "changed_ms", "enabled_at_ms", "counts"),
    [
        (OPEN, T, T - 1, True),
        (OPEN, T, T, True),
        (OPEN, T + 9_000, T + 1, False),  # an attempt from before ended later: it says nothing new
        (COUNTING, T, T, True),
        (COUNTING, T, T + 1, False),
    ],
)
def test_a_breaker_from_before_enabling_is_void(
    breaker: Breaker, changed_ms: int, enabled_at_ms: int, counts: bool
) -> None:
    health = BreakerHealth("acme", "https://a.example/", breaker, changed_ms)
    assert breaker_since(health, enabled_at_ms=enabled_at_ms) == (breaker if counts else CLOSED)


def test_a_burst_is_told_once_and_again_after_an_hour() -> None:
    bursts = Bursts()
    assert [bursts.note("acme", "sub", T) for _ in range(3 * BURST_COUNT)].index(True) == BURST_COUNT - 1
    assert sum(bursts.note("acme", "sub", T + BURST_QUIET_MS - 1) for _ in range(3 * BURST_COUNT)) == 0
    assert sum(bursts.note("acme", "other", T) for _ in range(BURST_COUNT)) == 1
    assert sum(bursts.note("acme", "sub", T + BURST_QUIET_MS) for _ in range(BURST_COUNT)) == 1


def test_a_few_now_and_then_are_no_burst() -> None:
    bursts = Bursts()
    told = [bursts.note("acme", "sub", T + i * BURST_WINDOW_MS // 10) for i in range(10 * BURST_COUNT)]
    assert told == [False] * len(told)


def test_a_clock_that_steps_back_begins_a_new_count() -> None:
    bursts = Bursts()
    for _ in range(BURST_COUNT - 1):
        assert not bursts.note("acme", "sub", T)
    assert not bursts.note("acme", "sub", T - BURST_QUIET_MS)
