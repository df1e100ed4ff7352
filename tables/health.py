"""The global table of sinks' health, by place (tenant and destination)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from hub_app.domain.health import BreakerHealth, Health, Place, StreakHealth
from hub_app.wire import health as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven


class HealthTable(GlobalTable[Health]):
    """Everything that is held against any sink of any tenant. What is clean has no row."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._breakers: dict[Place, BreakerHealth] = {}
        self._streaks: dict[Place, dict[str, StreakHealth]] = {}
        self.wanted: dict[tuple[str, str], StreakHealth] = {}
        """(tenant, subscription) -> streaks whose rule fired."""

    def breaker(self, place: Place) -> BreakerHealth | None:
        return self._breakers.get(place)

    def streaks(self, place: Place) -> Mapping[str, StreakHealth]:
        """subscription -> its streak there."""
        return self._streaks.get(place, {})

    def places(self, accepts: Callable[[Place], bool]) -> Iterator[Place]:
        """Places with anything held against them."""
        return (place for place in {**self._breakers, **self._streaks} if accepts(place))

    # -- records -------------------------------------------------------------------------------------------------
    def _read(self, key: bytes, value: bytes | None, headers: HeadersGiven) -> Health | Unreadable | None:
        return wire.read(key, value)

    def _put(self, key: bytes, row: Health) -> None:
        place = (row.tenant, row.destination)
        if isinstance(row, BreakerHealth):
            self._breakers[place] = row
            return
        self._streaks.setdefault(place, {})[row.subscription] = row
        if row.disable_wanted:
            self.wanted[row.tenant, row.subscription] = row
        else:
            self._no_longer_wanted(place, row.subscription)

    def _drop(self, key: bytes) -> None:
        names = wire.split_key(key)
        if isinstance(names, Unreadable):
            return
        tenant, destination, subscription = names
        place = (tenant, destination)
        if subscription is None:
            self._breakers.pop(place, None)
            return
        streaks = self._streaks.get(place, {})
        streaks.pop(subscription, None)
        if not streaks:
            self._streaks.pop(place, None)
        self._no_longer_wanted(place, subscription)

    def _no_longer_wanted(self, place: Place, subscription: str) -> None:
        """Another destination of the same subscription may want it still."""
        wanted = self.wanted.get((place[0], subscription))
        if wanted is not None and wanted.destination == place[1]:
            del self.wanted[place[0], subscription]
