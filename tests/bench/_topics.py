"""What the topics of a deployment hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient


@contextlib.asynccontextmanager
async def _reading(bootstrap: str, wanted: Callable[[str], bool]) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer that has all partitions of these topics."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        told = await admin.describe_topics([name for name in await admin.list_topics() if wanted(name)])
    finally:
        await admin.close()
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, fetch_max_wait_ms=50)
    await consumer.start()
    try:
        consumer.assign([TopicPartition(one["topic"], p["partition"]) for one in told for p in one["partitions"]])
        yield consumer
    finally:
        await consumer.stop()


def ends(bootstrap: str, prefix: str) -> dict[str, int]:
    """Records ever written to each topic of a deployment."""

    async def look() -> dict[str, int]:
        async with _reading(bootstrap, lambda name: name.startswith(prefix)) as consumer:
            found: dict[str, int] = {}
            for place, end in (await consumer.end_offsets(list(consumer.assignment()))).items():
                found[place.topic] = found.get(place.topic, 0) + end
            return found

    return asyncio.run(look())


def read(bootstrap: str, topic: str, take: Callable[[ConsumerRecord], Any]) -> list[Any]:
    """`take` of every record that a topic holds now, in the order of each partition."""

    async def look() -> list[Any]:
        async with _reading(bootstrap, topic.__eq__) as consumer:
            places = list(consumer.assignment())
            stops = await consumer.end_offsets(places)
            await consumer.seek_to_beginning(*places)
            found: list[Any] = []
            while any([await consumer.position(place) < stops[place] for place in places]):
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found += [take(record) for record in records]
            return found

    return asyncio.run(look())
