"""A batch of one partition on its way through an agent."""

from __future__ import annotations

from collections.abc import Sequence

from aiokafka import ConsumerRecord


class Batch:
    """Records of one partition in offset order, delivered once at a time per partition.

    The agent answers exactly once, with `done()` or `failed(exc)`; later answers and answers after the partition
    was taken away (`live` is False) change nothing. `next_offset` is the position after the batch: it may lie past
    the last record's offset + 1 (control records, compaction)."""

    __slots__ = ("live", "next_offset", "partition", "records", "shard", "topic")

    shard: int
    topic: str
    partition: int
    records: Sequence[ConsumerRecord]
    next_offset: int
    live: bool

    def done(self) -> None:
        """Outputs are acknowledged and state is written: with `commit="after_batch"` the offset may be committed."""
        raise NotImplementedError

    def failed(self, exc: BaseException) -> None:
        """Infrastructure failed: the partition rewinds to the start of this batch after a growing, capped delay."""
        raise NotImplementedError
