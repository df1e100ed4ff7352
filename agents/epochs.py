"""Raising the epoch of a shard's facts, in `hub.meta`: a topic of one partition that every worker may have to write.

Whoever needs to write takes the topic's transactional id over for that moment. Several workers may do so at once (a log
made anew concerns all shards): each is fenced by the next, steps back for a while, looks, and tries again.
"""

from __future__ import annotations

import asyncio

from agents.owner import OwnerLog
from hub_app.domain.errors import BrokerTrouble
from hub_app.ports import Clock, Entropy
from hub_app.wire import meta as wire
from tables.meta import MetaTable

_PARTITION = 0
_TRIES = 20
_PAUSE_MS_MAX = 2_000


class Epochs:
    """`log` is an owner log of its own, for `hub.meta` alone, with a lease that always holds."""

    def __init__(
        self, log: OwnerLog, table: MetaTable, *, clock: Clock, entropy: Entropy, pause_ms_first: int = 50
    ) -> None:
        self._log, self._table, self._clock, self._entropy = log, table, clock, entropy
        self._pause_ms_first = pause_ms_first
        self._one_at_a_time = asyncio.Lock()

    async def raise_epoch(self, shard: int, reason: str) -> int:
        """The new epoch, once it is durable and in the table. Only the shard's owner calls this. Raises BrokerTrouble
        (the epoch may have risen all the same: a gap does no harm)."""
        async with self._one_at_a_time:
            wanted: int | None = None
            for number in range(_TRIES):
                if number:
                    pause_ms = min(self._pause_ms_first << number, _PAUSE_MS_MAX)
                    await asyncio.sleep(self._entropy.draw() * pause_ms / 1_000)
                try:
                    await self._log.open(_PARTITION)  # reads the table to its end
                    wanted = wanted or self._table.epoch(shard) + 1
                    if self._table.epoch(shard) >= wanted or await self._written(shard, wanted, reason):
                        return wanted
                finally:
                    await self._log.close(_PARTITION)
        raise BrokerTrouble(f"the epoch of shard {shard} could not be raised in {_TRIES} tries")

    async def _written(self, shard: int, epoch: int, reason: str) -> bool:
        record = wire.write(wire.Epoch(shard, epoch, reason, self._clock.now_ms()))
        return isinstance(await self._log.write(_PARTITION, self._table.topic, record), int)
