"""A sink in the memory of the worker that attempts it: its breaker, and who of its subscriptions is failing."""

from __future__ import annotations

from agents.dispatch_shard import DispatchShard
from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import CLOSED
from hub_app.domain.health import BreakerHealth, Place, StreakHealth


class Failing:
    """A subscription whose latest attempts at this sink failed."""

    __slots__ = ("streak", "wanted", "warned")

    def __init__(self, streak: Streak, *, warned: int = 0, wanted: bool = False) -> None:
        self.streak, self.warned, self.wanted = streak, warned, wanted


class Sink:
    """One place with anything held against it."""

    __slots__ = ("breaker", "changed_ms", "failing", "place", "shard", "until_ms")

    def __init__(self, shard: DispatchShard, place: Place) -> None:
        self.shard, self.place = shard, place
        self.breaker, self.changed_ms = CLOSED, 0
        self.until_ms: int | None = None  # what the scheduler was told
        self.failing: dict[str, Failing] = {}

    @property
    def clean(self) -> bool:
        return self.breaker == CLOSED and not self.failing

    def breaker_health(self) -> BreakerHealth:
        return BreakerHealth(*self.place, self.breaker, self.changed_ms)

    def streak_health(self, subscription: str) -> StreakHealth:
        one = self.failing[subscription]
        return StreakHealth(*self.place, subscription, one.streak, one.warned, one.wanted)
