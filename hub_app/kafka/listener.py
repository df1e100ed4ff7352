"""Who opens and closes the shards of a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class ShardListener(Protocol):
    """Who opens and closes shards. All calls of one plane are made one after another, except `opened`, which runs as a
    task per shard and may take long; it is cancelled when the shard goes away meanwhile (then `closed` follows)."""

    async def suspended(self, shards: frozenset[int]) -> None:
        """A rebalance began: stop claiming, flush. Must be quick (the group waits; the plane gives up waiting after a
        few seconds). May be called again for shards that are suspended already."""

    async def resumed(self, shards: frozenset[int]) -> None:
        """These came straight back: go on, nothing was lost."""

    async def closed(self, shard: int) -> None:
        """The shard belongs to someone else now, or is about to be opened anew (also after a failed opening): close
        its folder. Must do nothing for a shard that is not open."""

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        """The log is not the one this shard knew (re-created, cut): it ends below the committed offset; or, with
        `committed` -1, the group knows nothing of it although it holds records and the shard has a folder here (a
        broker forgets a group's offsets with a topic; a new topic that others have written to looks the same).
        Called before `opened`; when it returns, `end` (or 0) is committed. May be called twice for the same
        truncation (a crash between the two)."""

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Opens the shard; returns where to start reading each topic. All maps are by topic. Raising is retried with
        growing, capped delay and shown in readiness. A start below `begin` stops the shard with a reason."""
