"""Making histories whole: what other owners of a dispatch shard wrote, or what a lost disk forgot, is read again from
hub.attempts, behind the scenes. What this worker settles is written with it (`agents.settle`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, Protocol
from weakref import WeakSet

from agents.dispatch_shard import DispatchShard
from hub_app.domain.errors import StoreFailed
from hub_app.wire import attempts as wire

EVERY_S: Final = 5.0
RECORDS_MAX: Final = 200_000
"""Read again of one shard at most: the newest."""


class LogReader(Protocol):
    def read_range(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Sequence[Any]]: ...


class Histories:
    def __init__(self, *, shards: Mapping[int, DispatchShard], reader: LogReader, topic: str) -> None:
        """`topic`: hub.attempts, as it is called here."""
        self._shards, self._reader, self._topic = shards, reader, topic
        self._whole: WeakSet[DispatchShard] = WeakSet()

    async def step(self) -> None:
        """Each shard that was opened since is made whole; of all, it is noted how far they are."""
        for shard in list(self._shards.values()):
            if shard.closed:
                continue
            try:
                await self._look(shard)
            except StoreFailed:
                continue  # it is being closed, or opened again
        await asyncio.sleep(EVERY_S)

    async def _look(self, shard: DispatchShard) -> None:
        if shard not in self._whole:
            stop = shard.attempts_offset
            await self._fill(shard, max(shard.history.position() or 0, stop - RECORDS_MAX), stop)
            self._whole.add(shard)
        if not shard.closed:
            batch = shard.table.store.batch()
            shard.history.set_position(batch, shard.attempts_offset)
            shard.table.store.write(batch)

    async def _fill(self, shard: DispatchShard, start: int, stop: int) -> None:
        async for records in self._reader.read_range(self._topic, shard.number, start, stop):
            if shard.closed:
                return
            read = [wire.read(record.headers, record.value) for record in records]
            batch = shard.table.store.batch()
            shard.history.note(batch, [entry for entry in read if isinstance(entry, wire.Outcome)], old=True)
            shard.table.store.write(batch)
            await asyncio.sleep(0)
