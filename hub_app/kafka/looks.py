"""Reading for people's questions: apart from the readings of shard openings, which they must not hold up."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

from aiokafka import ConsumerRecord
from aiokafka.errors import KafkaError

from hub_app.domain.errors import BrokerTrouble
from hub_app.kafka.reader import RangeReader

__all__ = ["LookReader"]


class LookReader(RangeReader):
    """Whatever Kafka says is BrokerTrouble. Close it with `on_stop`; it needs no start."""

    async def read_range(
        self, topic: str, partition: int, start: int, stop: int, **more: Any
    ) -> AsyncGenerator[Sequence[ConsumerRecord], None]:
        with _trouble():
            async with aclosing(super().read_range(topic, partition, start, stop, **more)) as batches:
                async for records in batches:
                    yield records

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        with _trouble():
            return await super().offset_for_time(topic, partition, time_ms)

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        with _trouble():
            return await super().begin_offsets(topic, partitions)

    async def end_offsets(self, topic: str, partitions: Sequence[int], **more: Any) -> Mapping[int, int]:
        with _trouble():
            return await super().end_offsets(topic, partitions, **more)


@contextmanager
def _trouble() -> Iterator[None]:
    try:
        yield
    except (KafkaError, OSError) as error:  # TimeoutError is one
        raise BrokerTrouble(f"{type(error).__name__}: {error}") from error
