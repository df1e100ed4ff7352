"""One partition between the consumer and its agent: what is buffered, what is in flight, what holds it. No IO."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aiokafka import ConsumerRecord, TopicPartition

from hub_app.kafka.batch import Batch

BACKOFF = "backoff"
RECORD_OVERHEAD_BYTES = 1024
"""What a record costs in memory beside its value: tuple, key, some ten headers."""


class Chunk(NamedTuple):
    """Records waiting for their turn. `next_offset` is the position after them."""

    records: Sequence[ConsumerRecord]
    next_offset: int
    size_bytes: int


class Flow:
    """State of one partition.

    `position`: everything below it is settled. `fetched`: where the consumer reads on. Both None until the first
    record shows where a partition without a chosen start begins. `gates`: why the consumer must not fetch now. `full`:
    enough waits here; what else was fetched stays with the consumer, compressed."""

    __slots__ = (
        "buffer",
        "buffered_bytes",
        "failures",
        "fetched",
        "full",
        "gates",
        "in_flight",
        "offered_ms",
        "position",
        "retry",
        "shard",
        "shown",
        "tp",
    )

    def __init__(self, tp: TopicPartition, shard: int, position: int | None) -> None:
        self.tp = tp
        self.shard = shard
        self.position = position
        self.fetched = position
        self.buffer: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self.in_flight: Batch | None = None
        self.offered_ms = 0
        self.full = False
        self.gates: set[str] = set()
        self.failures = 0
        self.retry: asyncio.TimerHandle | None = None
        self.shown = False
        """Whether its silence stands in readiness."""

    def arrived(self, chunks: Sequence[Chunk]) -> None:
        """Takes what the consumer brought, in order."""
        if self.position is None:
            self.position = chunks[0].records[0].offset
        self.buffer.extend(chunks)
        self.buffered_bytes += sum([chunk.size_bytes for chunk in chunks])
        self.fetched = chunks[-1].next_offset

    def take(self) -> Chunk:
        """The next chunk, out of the buffer."""
        chunk = self.buffer.popleft()
        self.buffered_bytes -= chunk.size_bytes
        return chunk

    def may_deliver(self) -> bool:
        """A chunk waits, none is in flight, and nothing holds the partition."""
        return bool(self.buffer) and self.in_flight is None and not self.gates

    def resting(self) -> bool:
        """Nothing buffered, nothing in flight, nothing held."""
        return self.in_flight is None and not self.buffer and not self.gates

    def drop_buffer(self) -> int:
        """Forgets what waits, to be fetched again; returns the bytes freed."""
        freed, self.buffered_bytes = self.buffered_bytes, 0
        self.buffer.clear()
        self.full = False
        self.fetched = self.in_flight.next_offset if self.in_flight is not None else self.position
        return freed

    def retire(self) -> int:
        """The partition is gone: answers to its batch change nothing any more. Returns the bytes freed."""
        freed = self.drop_buffer()
        if self.retry is not None:
            self.retry.cancel()
            self.retry = None
        if self.in_flight is not None:
            self.in_flight.live = False
            freed += self.in_flight.size_bytes
            self.in_flight = None
        return freed


def chunks_of(
    records: Sequence[ConsumerRecord], next_offset: int, *, records_max: int, bytes_max: int
) -> Iterator[Chunk]:
    """Cuts one fetch into batches of about equal counts within both bounds (the byte bound holds on average)."""
    count = len(records)
    size = RECORD_OVERHEAD_BYTES * count + sum([r.serialized_value_size for r in records])
    parts = min(count, max(-(-count // records_max), -(-size // bytes_max)))
    if parts <= 1:
        yield Chunk(records, next_offset, size)
        return
    step = -(-count // parts)
    for start in range(0, count, step):
        some = records[start : start + step]
        end = next_offset if start + step >= count else records[start + step].offset
        yield Chunk(some, end, size * len(some) // count)
