"""The circuit breaker of a destination (docs/delivery.md, "Circuit breaker"): a table of transitions.

                 fifth failure in a row
        CLOSED ---------------------------> OPEN <---------+
          ^ ^                               |  |           | failed
          | |            succeeded          |  | time      | (open twice as long, at most 5 min)
          | +-------------------------------+  v           |
          +------------------------------- HALF_OPEN ------+
                         succeeded

Open turns half-open by itself when its time is over. Times are wall time, since the state outlives the process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from hub_app.domain.limits import DAY_MS, MINUTE_MS, SECOND_MS

LAPSE_MS: Final = DAY_MS
"""How long past its maximal age a job may wait, unattempted, for an open breaker."""


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Event(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class BreakerPolicy(NamedTuple):
    failures: int = 5
    open_ms: int = 30 * SECOND_MS
    open_ms_max: int = 5 * MINUTE_MS


class Breaker(NamedTuple):
    """`failures` in a row. `opened_at_ms` and `open_ms` while it is open or half-open, else 0."""

    failures: int = 0
    opened_at_ms: int = 0
    open_ms: int = 0

    @property
    def until_ms(self) -> int | None:
        """When it turns half-open; None while it is closed."""
        return self.opened_at_ms + self.open_ms if self.open_ms else None


CLOSED: Final = Breaker()


def state_at(breaker: Breaker, now_ms: int) -> State:
    """A clock that stepped back to before the opening must not hold it open for the length of the step: half-open."""
    if not breaker.open_ms:
        return State.CLOSED
    return State.OPEN if 0 <= now_ms - breaker.opened_at_ms < breaker.open_ms else State.HALF_OPEN


def _count(breaker: Breaker, now_ms: int, policy: BreakerPolicy) -> Breaker:
    failures = breaker.failures + 1
    if failures < policy.failures:
        return breaker._replace(failures=failures)
    return Breaker(failures, now_ms, policy.open_ms)


def _stay(breaker: Breaker, now_ms: int, policy: BreakerPolicy) -> Breaker:
    """An attempt that had begun before it opened, or a last one: neither is a probe."""
    return breaker._replace(failures=breaker.failures + 1)


def _reopen(breaker: Breaker, now_ms: int, policy: BreakerPolicy) -> Breaker:
    return Breaker(breaker.failures + 1, now_ms, min(2 * breaker.open_ms, policy.open_ms_max))


def _close(breaker: Breaker, now_ms: int, policy: BreakerPolicy) -> Breaker:
    return CLOSED


TABLE: Final[Mapping[tuple[State, Event], Callable[[Breaker, int, BreakerPolicy], Breaker]]] = {
    (State.CLOSED, Event.SUCCEEDED): _close,
    (State.CLOSED, Event.FAILED): _count,
    (State.OPEN, Event.SUCCEEDED): _close,
    (State.OPEN, Event.FAILED): _stay,
    (State.HALF_OPEN, Event.SUCCEEDED): _close,
    (State.HALF_OPEN, Event.FAILED): _reopen,
}


def after(breaker: Breaker, event: Event, *, now_ms: int, policy: BreakerPolicy) -> Breaker:
    """The breaker after one attempt's end. Attempts that were not charged are no event."""
    return TABLE[state_at(breaker, now_ms), event](breaker, now_ms, policy)


def admits(breaker: Breaker, *, now_ms: int, in_flight: int, last: bool, lasts_in_flight: int) -> bool:
    """Whether an attempt may begin now. `in_flight`: attempts of this destination; `last`: it would be its job's last
    (`delivery.is_last`); `lasts_in_flight`: how many of those in flight are."""
    match state_at(breaker, now_ms):
        case State.CLOSED:
            return True
        case State.HALF_OPEN:
            return in_flight == 0
        case State.OPEN:
            return last and lasts_in_flight == 0


def lapsed(*, received_at_ms: int, now_ms: int, max_age_ms: int) -> bool:
    """Whether a job that waits, unattempted, for an open breaker must die as `expired` (boundary inclusive)."""
    return now_ms - received_at_ms >= max_age_ms + LAPSE_MS
