"""The single writer of a compacted topic's shard: subscriptions, keys, operations (docs/protocol.md, "Single writers").

One transactional producer per shard, whose id `<prefix>owner.<p>` fences the owner before it at the moment it starts.
Writes that come together go into one transaction. After anything unexpected the producer is replaced and the state is
read to its end again before the next write: so what was uncertain is known again.
"""

from __future__ import annotations

import asyncio

from agents.owned_shard import LookAgain, OwnedShard, OwnerSetup
from hub_app.domain.errors import Fenced
from hub_app.wire.record import Record

__all__ = ["LookAgain", "OwnerLog", "OwnerSetup"]


class OwnerLog:
    """Writes to partition p of the owned topics, for each shard p that is open here."""

    def __init__(self, setup: OwnerSetup) -> None:
        self._setup = setup
        self._shards: dict[int, OwnedShard] = {}

    def is_open(self, shard: int) -> bool:
        """Open, and not found to be another worker's since."""
        return shard in self._shards and not self._shards[shard].lost

    async def open(self, shard: int) -> None:
        """Fence the owner before, read the state to its end, then serve. Nothing happens if it is open.

        Raises Fenced without a valid lease, BrokerTrouble when Kafka does not answer in time; nothing is open then.
        """
        if self.is_open(shard):
            return
        await self.close(shard)
        opening = OwnedShard(self._setup, shard)
        try:
            await opening.take_over()
        except BaseException:
            await opening.close()
            raise
        self._shards[shard] = opening
        opening.serve()

    async def write(self, shard: int, topic: str, record: Record) -> int | LookAgain:
        """Write one record to partition `shard` of `topic`; its offset, once it is committed and applied.

        Raises Fenced (this worker does not own the shard: nothing was written), BrokerTrouble (nothing was written),
        OutcomeUnknown (no answer in time, or the shard was lost meanwhile: it may be written), RecordTooLarge.
        """
        if not self.is_open(shard):
            raise Fenced(f"shard {shard} is not open here")
        return await self._shards[shard].write(topic, record)

    async def close(self, shard: int) -> None:
        """End serving: what is not yet in a transaction gets Fenced. Nothing happens if it is not open."""
        closing = self._shards.pop(shard, None)
        if closing is not None:
            await closing.close()

    async def stop(self) -> None:
        """Close every shard."""
        await asyncio.gather(*(self.close(shard) for shard in list(self._shards)))
