"""Bounded, group-less reading of one partition, for shard openings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

import mode
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from hub_app.kafka.client import Isolation, KafkaConfig, make_consumer
from hub_app.kafka.closing import close_consumer
from hub_app.kafka.topicids import topic_ids

__all__ = ["RangeReader"]

POLL_MS = 200


class RangeReader(mode.Service):  # type: ignore[misc]
    """Shared by all openings of a process. Questions about offsets go through one consumer per isolation level, made
    at the first question; each range is read by a consumer of its own while it lasts."""

    def __init__(self, config: KafkaConfig, *, ranges_at_once: int = 4) -> None:
        super().__init__()
        self._config = config
        self._askers: dict[Isolation, AIOKafkaConsumer] = {}
        self._making = asyncio.Lock()
        self._ranges = asyncio.Semaphore(ranges_at_once)

    async def on_stop(self) -> None:
        """Closes what was made for questions."""
        askers, self._askers = self._askers, {}
        for consumer in askers.values():
            await close_consumer(consumer)

    async def read_range(
        self,
        topic: str,
        partition: int,
        start: int,
        stop: int,
        *,
        isolation_level: Isolation = "read_uncommitted",
        records_max: int = 2_000,
    ) -> AsyncGenerator[Sequence[ConsumerRecord], None]:
        """Batches of records with start <= offset < stop, ending when the position reaches `stop`, records or not
        (control records, compaction). A start below the log's beginning begins at the beginning; a log that ends
        below `stop` ends the reading (re-created). With read_committed, `stop` should come from `end_offsets` of that
        level: an open transaction below it is waited for.

        At most a few ranges are read at once; the others wait. Close the iterator if you leave it early
        (`contextlib.aclosing`)."""
        if start >= stop:
            return
        tp = TopicPartition(topic, partition)
        async with self._ranges:
            consumer = make_consumer(
                self._config,
                isolation_level=isolation_level,
                fetch_max_wait_ms=100,
                max_partition_fetch_bytes=1 << 20,
            )
            try:
                await consumer.start()
                consumer.assign([tp])
                begin = (await consumer.beginning_offsets([tp]))[tp]
                consumer.seek(tp, max(start, begin))
                while await consumer.position(tp) < stop:
                    records = await _next(consumer, tp, records_max)
                    if records:
                        wanted = records if records[-1].offset < stop else [r for r in records if r.offset < stop]
                        if wanted:
                            yield wanted
                    elif await self._log_ends_below(tp, stop):
                        return
            finally:
                await close_consumer(consumer)

    async def _log_ends_below(self, tp: TopicPartition, stop: int) -> bool:
        """By the high watermark: a last stable offset that is lower only means an open transaction."""
        return (await self.end_offsets(tp.topic, [tp.partition]))[tp.partition] < stop

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        """The first offset whose broker time is >= `time_ms`; None when there is none."""
        tp = TopicPartition(topic, partition)
        found = (await (await self._asker("read_uncommitted")).offsets_for_times({tp: time_ms}))[tp]
        return None if found is None else int(found.offset)

    async def topic_ids(self, topics: Sequence[str]) -> Mapping[str, bytes]:
        """topic -> the id it has had since it was created; without those that nobody can tell."""
        return await topic_ids(await self._asker("read_uncommitted"), topics)

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        """partition -> first offset still in the log."""
        tps = [TopicPartition(topic, p) for p in partitions]
        found = await (await self._asker("read_uncommitted")).beginning_offsets(tps)
        return {tp.partition: offset for tp, offset in found.items()}

    async def end_offsets(
        self, topic: str, partitions: Sequence[int], *, isolation_level: Isolation = "read_uncommitted"
    ) -> Mapping[int, int]:
        """High watermark, or last stable offset with read_committed."""
        tps = [TopicPartition(topic, p) for p in partitions]
        found = await (await self._asker(isolation_level)).end_offsets(tps)
        return {tp.partition: offset for tp, offset in found.items()}

    async def _asker(self, isolation_level: Isolation) -> AIOKafkaConsumer:
        async with self._making:
            known = self._askers.get(isolation_level)
            if known is None:
                known = make_consumer(self._config, isolation_level=isolation_level)
                try:
                    await known.start()
                except BaseException:
                    await close_consumer(known)
                    raise
                self._askers[isolation_level] = known
            return known


async def _next(consumer: AIOKafkaConsumer, tp: TopicPartition, records_max: int) -> list[ConsumerRecord] | None:
    """The next records; empty when none came in time; None when the position is not in the log."""
    try:
        fetched = await consumer.getmany(tp, timeout_ms=POLL_MS, max_records=records_max)
    except OffsetOutOfRangeError:
        return None
    records: list[ConsumerRecord] = fetched.get(tp, [])
    return records
