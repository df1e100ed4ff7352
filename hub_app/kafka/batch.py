"""A batch of one partition on its way through an agent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiokafka import ConsumerRecord

Settled = Callable[["Batch", BaseException | None], None]


class Batch:
    """Records of one partition in offset order, at most one per partition at a time.

    The agent answers exactly once, with `done()` or `failed(exc)`; later answers, and answers after the partition
    was taken away (`live` is False), change nothing. `next_offset` is the position after the batch: it may lie past
    the last record's offset + 1 (control records, compaction). `shard` is -1 outside of shard planes."""

    __slots__ = ("_settled", "live", "next_offset", "partition", "records", "shard", "size_bytes", "topic")

    def __init__(
        self,
        *,
        shard: int,
        topic: str,
        partition: int,
        records: Sequence[ConsumerRecord],
        next_offset: int,
        size_bytes: int = 0,
        settled: Settled,
    ) -> None:
        self.shard = shard
        self.topic = topic
        self.partition = partition
        self.records = records
        self.next_offset = next_offset
        self.size_bytes = size_bytes
        self.live = True
        self._settled = settled

    def done(self) -> None:
        """Outputs are acknowledged and state is written: with `commit="after_batch"` the offset may be committed."""
        if self.live:
            self.live = False
            self._settled(self, None)

    def failed(self, exc: BaseException) -> None:
        """Infrastructure failed: the partition rewinds to the start of this batch after a growing, capped delay."""
        if self.live:
            self.live = False
            self._settled(self, exc)

    def __repr__(self) -> str:
        return f"<Batch {self.topic}/{self.partition} {len(self.records)} records to {self.next_offset}>"
