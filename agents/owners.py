"""Who serves which inbox shard, and how far this worker has read what all share: what the API asks first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from agents.dispatch_shard import DispatchShard
from agents.inbox import InboxShard
from hub_app.ports import Clock
from tables.inbox import InboxTable


class InboxOwners:
    """`hub_app.web.deps.Owners`. Members know the map from their assignment; others read it from the group."""

    def __init__(
        self,
        *,
        shards: Mapping[int, InboxShard],
        lease_valid: Callable[[int], bool],
        known: Callable[[], Mapping[int, str]],
        read: Callable[[], Awaitable[Mapping[int, str]]],
        clock: Clock,
    ) -> None:
        """`known()`: shard -> URL as of the last assignment; empty for one that is no member: then `read()` asks."""
        self._shards, self._lease_valid, self._known, self._read, self._clock = shards, lease_valid, known, read, clock

    def is_here(self, shard: int) -> bool:
        return shard in self._shards and self._lease_valid(self._clock.monotonic_ms())

    def inbox(self, shard: int) -> InboxTable | None:
        found = self._shards.get(shard)
        return found.table if found else None

    async def url_of(self, shard: int) -> str | None:
        owners = self._known() or await self._read()
        return owners.get(shard)


class KeysTail:
    """`hub_app.web.deps.KeysTail`."""

    def __init__(self, *, read_to_end: Callable[[], Awaitable[None]], started: Callable[[], bool]) -> None:
        self._read_to_end, self._started = read_to_end, started

    @property
    def caught_up(self) -> bool:
        return self._started()

    async def refresh(self, timeout_ms: int) -> bool:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._read_to_end()
        except Exception:  # the broker is away, or slow: the caller must not decide on what it has
            return False
        return True


class DispatchOwners:
    """`hub_app.web.deps.SinkOwners`: the same for the dispatch plane, whose shards know what came of attempts."""

    def __init__(
        self,
        *,
        shards: Mapping[int, DispatchShard],
        lease_valid: Callable[[int], bool],
        known: Callable[[], Mapping[int, str]],
        read: Callable[[], Awaitable[Mapping[int, str]]],
        clock: Clock,
    ) -> None:
        self._shards, self._lease_valid, self._known, self._read, self._clock = shards, lease_valid, known, read, clock

    def shard(self, number: int) -> DispatchShard | None:
        """Open here, under a valid lease."""
        found = self._shards.get(number)
        return found if found and not found.closed and self._lease_valid(self._clock.monotonic_ms()) else None

    async def url_of(self, shard: int) -> str | None:
        owners = self._known() or await self._read()
        return owners.get(shard)
