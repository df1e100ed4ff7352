"""A group-less reader of a compacted topic, from its beginning, for ever."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import mode
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from hub_app.kafka import pace
from hub_app.kafka.client import KafkaConfig, make_consumer
from hub_app.kafka.closing import close_consumer, ended
from hub_app.kafka.forever import run_forever
from hub_app.kafka.reader import RangeReader
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock, Entropy

log = logging.getLogger(__name__)

Apply = Callable[[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes]]], None]

WAIT_MS = 1_000
MARKERS_S = 0.25
POLL_AWAITED_MS = 10
SPREAD_OUT_RECORDS = 2_000
PARTITIONS_EVERY_S = 0.5


class TopicTail(mode.Service):  # type: ignore[misc]
    """Reads every partition of `topic` (`read_committed`) and calls `apply(partition, offset, key, value, headers)` in
    offset order. `apply` must not raise for any record; if it does, the partition stands still, visibly."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        apply: Apply,
        *,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        reader: RangeReader,
        reset: Callable[[int], None] | None = None,
    ) -> None:
        """`reader` is asked where partitions end: on another connection than the one a fetch waits on.
        `reset(partition)` is called when the log was re-created: forget that partition, it is read again."""
        super().__init__()
        self.topic = topic
        self._config = config
        self._apply = apply
        self._standing = standing
        self._entropy = entropy
        self._reader = reader
        self._reset = reset
        self._positions: dict[int, int] = {}
        self._moved = asyncio.Condition()
        self._waiters = 0
        self._awaited = asyncio.Event()
        self._connected = asyncio.Event()
        self._running: asyncio.Future[None] | None = None

    async def on_start(self) -> None:
        """Reads in the background; readiness shows the tail until it has its partitions."""
        self._standing.report(self._name, "is not being read yet")
        self._running = self.add_future(
            run_forever(self._name, self._session, standing=self._standing, entropy=self._entropy, cap_ms=5_000)
        )

    async def on_stop(self) -> None:
        """Stops reading."""
        if self._running is not None:
            await asyncio.wait([asyncio.ensure_future(ended(self._running))], timeout=30)
        self._standing.clear_under(self._name)

    @property
    def _name(self) -> str:
        return f"tail/{self.topic}"

    @property
    def positions(self) -> Mapping[int, int]:
        """partition -> next offset; everything below was applied."""
        return self._positions

    async def caught_up(self, partition: int, end_offset: int) -> None:
        """Returns once `positions[partition] >= end_offset`."""
        self._waiters += 1
        self._awaited.set()
        try:
            async with self._moved:
                await self._moved.wait_for(lambda: self._positions.get(partition, -1) >= end_offset)
        finally:
            self._waiters -= 1

    async def read_to_end(self, partition: int) -> int:
        """Waits until everything committed as of now was applied; returns how far it then was."""
        await self._read_up_to(await self._ends([partition]))
        return self._positions[partition]

    async def all_read_to_end(self) -> None:
        """`read_to_end` of every partition."""
        await self._connected.wait()
        await self._read_up_to(await self._ends(list(self._positions)))

    async def _read_up_to(self, ends: Mapping[int, tuple[int, int]]) -> None:
        for partition, (stable, _) in ends.items():
            await self.caught_up(partition, stable)
        # A broker answers a commit before it has written its markers; the last stable offset rises a moment later. An
        # open transaction looks the same from here, and is not waited for.
        with suppress(TimeoutError):
            async with asyncio.timeout(MARKERS_S):
                for partition, (stable, high) in ends.items():
                    if high > stable:
                        await self.caught_up(partition, high)

    async def _ends(self, partitions: Sequence[int]) -> Mapping[int, tuple[int, int]]:
        """(last stable offset, high watermark) of each, the second as of a little earlier. Waits for the broker as long
        as it takes."""
        reader, topic = self._reader, self.topic
        while True:
            await self._connected.wait()
            try:
                high = await reader.end_offsets(topic, partitions)
                stable = await reader.end_offsets(topic, partitions, isolation_level="read_committed")
                return {partition: (stable[partition], high[partition]) for partition in partitions}
            except Exception as exc:  # the session loop reports what is wrong
                log.debug("%s: end offsets: %r", self._name, exc)
            await asyncio.sleep(0.1)

    # -- reading ----------------------------------------------------------------------------------------------------

    async def _session(self) -> None:
        consumer = make_consumer(
            self._config,
            isolation_level="read_committed",
            fetch_max_wait_ms=WAIT_MS,
            max_partition_fetch_bytes=1 << 19,
        )
        try:
            await consumer.start()
            pace.calm(consumer)
            tps = await self._partitions(consumer)
            consumer.assign(tps)
            begins = await consumer.beginning_offsets(tps)
            for tp in tps:
                start = max(self._positions.setdefault(tp.partition, 0), begins[tp])
                consumer.seek(tp, start)
            self._connected.set()
            self._standing.clear(self._name)
            while True:
                await self._read(consumer, tps)
        finally:
            self._connected.clear()
            await close_consumer(consumer)

    async def _partitions(self, consumer: AIOKafkaConsumer) -> list[TopicPartition]:
        """Waits for the topic to exist (provisioning makes it)."""
        consumer._client.add_topic(self.topic)
        while True:
            await consumer._client.force_metadata_update()
            found = consumer.partitions_for_topic(self.topic)
            if found:
                return [TopicPartition(self.topic, p) for p in sorted(found)]
            self._standing.report(self._name, "the topic does not exist")
            await asyncio.sleep(PARTITIONS_EVERY_S)

    async def _read(self, consumer: AIOKafkaConsumer, tps: Sequence[TopicPartition]) -> None:
        try:
            fetched = await self._poll(consumer)
        except OffsetOutOfRangeError as exc:
            for tp in exc.args[0]:
                self._start_again(consumer, tp)
            return
        apply = self._apply
        for tp, records in fetched.items():
            partition = tp.partition
            for start in range(0, len(records), SPREAD_OUT_RECORDS):
                for r in records[start : start + SPREAD_OUT_RECORDS]:
                    apply(partition, r.offset, r.key, r.value, r.headers)
                    self._positions[partition] = r.offset + 1
                await asyncio.sleep(0)  # a long topic must not hold the loop at start
        # Also without records: control records and compaction move positions.
        moved = False
        for tp in tps:
            position = await consumer.position(tp)
            if position > self._positions[tp.partition]:
                self._positions[tp.partition] = position
                moved = True
        if moved or fetched:
            async with self._moved:
                self._moved.notify_all()

    async def _poll(self, consumer: AIOKafkaConsumer) -> Mapping[TopicPartition, Sequence[ConsumerRecord]]:
        """What has come. A control record moves a position and wakes nobody: whoever waits has it looked at often."""
        if self._waiters:
            polled: Mapping[TopicPartition, Sequence[ConsumerRecord]]
            polled = await consumer.getmany(timeout_ms=POLL_AWAITED_MS)
            return polled
        self._awaited.clear()
        polling = asyncio.ensure_future(consumer.getmany(timeout_ms=WAIT_MS))
        awaited = asyncio.ensure_future(self._awaited.wait())
        try:
            await asyncio.wait((polling, awaited), return_when=asyncio.FIRST_COMPLETED)
            return await polling if polling.done() else {}
        finally:
            for task in (polling, awaited):
                task.cancel()
            await asyncio.gather(polling, awaited, return_exceptions=True)

    def _start_again(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> None:
        log.warning("%s: partition %d was re-created and is read again", self._name, tp.partition)
        self._positions[tp.partition] = 0
        if self._reset is not None:
            self._reset(tp.partition)
        consumer.seek(tp, 0)
