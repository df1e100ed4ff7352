"""Last attempts while a breaker is open (docs/delivery.md, "Circuit breaker").

A job's last attempt (by its number, or its age) may run although its destination is blocked, one in flight at a time;
a job that would be due for it for a day more, and had no turn, ends as `expired`. Both are found by index, a few rows
at a look, and a destination is not looked at before something there may be due.
"""

from __future__ import annotations

from collections.abc import Callable

from agents.attempt import Attempter, Go, Hold
from agents.dispatch import Dispatcher
from agents.dispatch_shard import DispatchShard
from agents.unattempted import Unattempted
from hub_app.domain.breaker import lapsed
from hub_app.domain.delivery import Dead, DeadReason, Deferred
from hub_app.domain.errors import StoreFailed
from hub_app.domain.health import Place
from hub_app.domain.limits import MINUTE_MS
from hub_app.ports import Clock
from tables.jobs import Row

LOOK_ROWS = 256
LOOK_EVERY_MS = MINUTE_MS
"""A destination without anything due is looked at again after so long: jobs may have come that were old already."""


class LastAttempts:
    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        attempter: Attempter,
        unattempted: Unattempted,
        clock: Clock,
        max_age_ms: int,
        store_failed: Callable[[DispatchShard, StoreFailed], None],
    ) -> None:
        self._dispatcher, self._attempter, self._unattempted = dispatcher, attempter, unattempted
        self._clock, self._max_age_ms, self._store_failed = clock, max_age_ms, store_failed
        self._passing: dict[Place, Row] = {}
        self._next_ms: dict[Place, int] = {}

    def look(self) -> None:
        """To be called about once a second."""
        now_ms = self._clock.now_ms()
        open_places = self._dispatcher.health.open_places()
        self._forget({place for _, place in open_places})
        for shard, place in open_places:
            if not self._unattempted.has_room:
                return
            idle = 0 < self._next_ms.get(place, 0) - now_ms <= LOOK_EVERY_MS
            if not (idle or shard.suspended or shard.closed or self._passes(place)):
                try:
                    self._look_at(shard, place, now_ms)
                except StoreFailed as error:
                    self._store_failed(shard, error)

    def _forget(self, open_places: set[Place]) -> None:
        # Who passes goes on to do so while the breaker is closed: should it open again first, nobody else may.
        self._passing = {place: row for place, row in self._passing.items() if self._offered(row)}
        self._next_ms = {place: at_ms for place, at_ms in self._next_ms.items() if place in open_places}

    def _passes(self, place: Place) -> bool:
        row = self._passing.get(place)
        return row is not None and self._offered(row)

    def _offered(self, row: Row) -> bool:
        shard = self._dispatcher.heads.shards.get(row.shard)
        return shard is not None and shard.offered.get(row.job.delivery_id) is row

    def _look_at(self, shard: DispatchShard, place: Place, now_ms: int) -> None:
        rows = shard.table.lasts(*place, now_ms=now_ms, limit=LOOK_ROWS)
        chosen: Row | None = None
        for row in rows:
            if row.job.delivery_id in shard.in_hand or row.job.delivery_id in shard.foreign:
                continue
            if lapsed(received_at_ms=row.job.received_at_ms, now_ms=now_ms, max_age_ms=self._max_age_ms):
                self._lapse(shard, row, now_ms)
            elif chosen is None:
                chosen = row
        if chosen is not None:
            self._passing[place] = self._dispatcher.heads.let_pass(shard, chosen)
            self._dispatcher.wake()
        elif not rows:
            next_ms = shard.table.next_last_ms(*place)
            self._next_ms[place] = min(now_ms + LOOK_EVERY_MS, next_ms or now_ms + LOOK_EVERY_MS)

    def _lapse(self, shard: DispatchShard, row: Row, now_ms: int) -> None:
        """Unattempted for too long. What would not be attempted anyway goes its own way."""
        may = self._attempter.may(row, now_ms)
        if isinstance(may, Deferred | Hold):
            self._unattempted.put_off_waiting(shard, row, may)
        else:
            self._unattempted.end_waiting(shard, row, Dead(DeadReason.EXPIRED) if isinstance(may, Go) else may)
