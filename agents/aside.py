"""Folders of shards that do not belong, or are damaged: set aside, counted, told in one line; the shard is rebuilt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hub_app.domain.errors import StoreFailed
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from tables.datadir import Plane
from tables.shard import ShardStore


class Aside:
    """Of one plane. `failed(shard, error)`: to be opened again."""

    def __init__(self, plane: Plane, metrics: Metrics, failed: Callable[[int, StoreFailed], None]) -> None:
        self._plane, self._counts, self._log, self._failed = plane, metrics.set_aside, Log(plane), failed

    def found(self, shard: int, store: ShardStore) -> None:
        """What opening the folder itself has set aside."""
        if store.aside:
            self._tell(shard, store.aside)

    def put(self, shard: int, store: ShardStore, reason: str, detail: str = "") -> None:
        """Closes the store and sets its folder aside. One that cannot be renamed stays where it is, closed: the next
        opening meets it again, and what it fails for is shown."""
        try:
            store.set_aside(reason)
        except StoreFailed as error:
            self._log.error(Event.SHARD_FAILED, error=error, shard=shard, reason=reason)
        else:
            self._tell(shard, reason, detail)

    def let_go(self, shard: int, store: ShardStore, error: BaseException) -> None:
        """An opening failed: its folder is free again, and out of the way where its damage is what failed it."""
        if isinstance(error, StoreFailed) and error.damaged and error.shard == store.name:
            self.put(shard, store, "damaged", error.detail)
        else:
            store.close(clean=False)

    def watch(self, shard: int, store: ShardStore, is_current: Callable[[ShardStore], bool]) -> None:
        """From now on whoever finds damage in the store, by whatever call, has the shard opened again."""
        loop = asyncio.get_running_loop()

        def look(error: StoreFailed) -> None:
            if is_current(store):
                self._failed(shard, error)

        def found(error: StoreFailed) -> None:
            loop.call_soon(look, error)  # the call that found it is under way

        store.on_damage = found

    def _tell(self, shard: int, reason: str, detail: str = "") -> None:
        self._counts.labels(self._plane, reason).inc()
        self._log.warning(Event.SHARD_SET_ASIDE, shard=shard, reason=reason, detail=detail)
