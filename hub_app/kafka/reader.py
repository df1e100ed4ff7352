"""Bounded, group-less reading of one partition, for shard openings."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal

import mode
from aiokafka import ConsumerRecord

from hub_app.kafka.client import KafkaConfig


class RangeReader(mode.Service):  # type: ignore[misc]
    """Shared by all openings of a process; each range uses a consumer of its own while it lasts."""

    def __init__(self, config: KafkaConfig) -> None:
        raise NotImplementedError

    def read_range(
        self,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> AsyncIterator[Sequence[ConsumerRecord]]:
        """Batches of records with start <= offset < stop, ending when the position reaches `stop`, records or not
        (control records, compaction). A start below the log's beginning begins at the beginning; a log that ends
        below `stop` ends the reading (re-created)."""
        raise NotImplementedError

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The first offset whose broker time is >= `time_ms`; None when there is none."""
        raise NotImplementedError

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        raise NotImplementedError

    async def end_offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        *,
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    ) -> Mapping[int, int]:
        """High watermark, or last stable offset with read_committed."""
        raise NotImplementedError
