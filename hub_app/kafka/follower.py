"""Following logs of shards that come and go, without a group: what a shard's owner keeps a view of.

The place in each log is the view's own, beside its rows, so nothing is committed and a lost view is read again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from hub_app.kafka import pace
from hub_app.kafka.client import KafkaConfig, make_consumer
from hub_app.kafka.closing import close_consumer

log = logging.getLogger(__name__)

POLL_MS: Final = 500
RECORDS_MAX: Final = 500
IDLE_S: Final = 0.25

Place = tuple[str, int]
"""(topic, partition)."""


class Follower:
    """`step` is called again and again (`forever.run_forever`); it raises what Kafka says."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        wanted: Callable[[], Mapping[Place, int]],
        deliver: Callable[[str, int, Sequence[Any], int], None],
        recreated: Callable[[str, int], None],
    ) -> None:
        """`wanted()`: the next offset of every log to be followed now. `deliver(topic, partition, records, next
        offset)` takes them in, in order; what it raises brings the same records again. `recreated(topic, partition)`:
        the log ends below that place, so it is another one; the place is then 0."""
        self._config, self._wanted, self._deliver, self._recreated = config, wanted, deliver, recreated
        self._consumer: AIOKafkaConsumer | None = None
        self._at: dict[Place, int] = {}

    async def step(self) -> None:
        """One poll, or a short rest when there is nothing to follow. Cancelled or failed, it lets its consumer go."""
        wanted = self._wanted()
        if not wanted:
            await self.close()
            await asyncio.sleep(IDLE_S)
            return
        try:
            await self._poll(wanted)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        self._at.clear()
        if consumer is not None:
            await close_consumer(consumer)

    async def _poll(self, wanted: Mapping[Place, int]) -> None:
        if self._consumer is None:
            self._consumer = make_consumer(self._config, fetch_max_wait_ms=POLL_MS)
            await self._consumer.start()
            pace.calm(self._consumer)
        consumer = self._consumer
        if wanted != self._at:
            await self._move(consumer, wanted)
        try:
            fetched = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_MAX)
        except OffsetOutOfRangeError:
            self._at.clear()  # looked at anew in the next step
            return
        for tp, records in fetched.items():
            place = (tp.topic, tp.partition)
            if place in self._at and self._wanted().get(place) == self._at[place]:
                self._deliver(*place, records, records[-1].offset + 1)
                self._at[place] = records[-1].offset + 1

    async def _move(self, consumer: AIOKafkaConsumer, wanted: Mapping[Place, int]) -> None:
        tps = [TopicPartition(*place) for place in sorted(wanted)]
        begins, ends = await consumer.beginning_offsets(tps), await consumer.end_offsets(tps)
        if consumer.assignment() != set(tps):
            consumer.assign(tps)
            self._at.clear()
        for tp in tps:
            place = (tp.topic, tp.partition)
            start = wanted[place]
            if start > ends[tp]:
                log.warning("%s/%d ends at %d, below %d: another log", *place, ends[tp], start)
                self._recreated(*place)
                start = 0
            if start < begins[tp]:
                self._deliver(*place, (), begins[tp])  # what retention took is gone
                start = begins[tp]
            if self._at.get(place) != start:
                consumer.seek(tp, start)
                self._at[place] = start
