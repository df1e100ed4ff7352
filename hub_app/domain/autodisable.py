"""When a subscription whose sink only fails is disabled (docs/delivery.md, "Auto-disable").

Only failed attempts count: what was deferred, held back by a breaker or not charged does not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from hub_app.domain.limits import HOUR_MS

WARNINGS_PERCENT: Final = (80, 50)


class DisablePolicy(NamedTuple):
    """Fires when failures go back for `window_ms`, and lie `spread_ms` apart."""

    window_ms: int = 120 * HOUR_MS
    spread_ms: int = 12 * HOUR_MS


class Streak(NamedTuple):
    """First and last failed attempt since the last success."""

    first_ms: int
    last_ms: int


def failed(streak: Streak | None, *, at_ms: int) -> Streak:
    """The streak after a failed attempt. A clock that stepped back makes it no older and no shorter."""
    return Streak(at_ms, at_ms) if streak is None else Streak(streak.first_ms, max(streak.last_ms, at_ms))


def succeeded() -> None:
    """The streak after a success, or after re-enabling: none."""


def since_enabled(streak: Streak | None, *, enabled_at_ms: int) -> Streak | None:
    """What of a recorded streak still counts. One that began before the subscription was enabled again says only that
    its last failure is later, if it is."""
    if streak is None or streak.first_ms >= enabled_at_ms:
        return streak
    return Streak(streak.last_ms, streak.last_ms) if streak.last_ms >= enabled_at_ms else None


def fires_at_ms(streak: Streak | None, policy: DisablePolicy) -> int | None:
    """When it fires if nothing else happens; None: not before another failure."""
    if streak is None or streak.last_ms - streak.first_ms < policy.spread_ms:
        return None
    return streak.first_ms + policy.window_ms


def fires(streak: Streak | None, *, now_ms: int, policy: DisablePolicy) -> bool:
    """`now - first >= window` and `last - first >= spread`, both inclusive: a lone failure never fires."""
    at_ms = fires_at_ms(streak, policy)
    return at_ms is not None and now_ms >= at_ms


def window_percent(streak: Streak, *, now_ms: int, policy: DisablePolicy) -> int:
    """How much of the window is over, 0 to 100."""
    return max(0, min(100, (now_ms - streak.first_ms) * 100 // policy.window_ms))


def warning_percent(streak: Streak | None, *, now_ms: int, policy: DisablePolicy) -> int:
    """80 or 50 once so much of the window is over, else 0. Only for a streak that will fire if no success comes: a lone
    failure warns nobody."""
    if streak is None or fires_at_ms(streak, policy) is None:
        return 0
    passed_ms = now_ms - streak.first_ms
    return next((percent for percent in WARNINGS_PERCENT if passed_ms * 100 >= policy.window_ms * percent), 0)
