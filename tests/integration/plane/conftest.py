"""A small world around planes on a real Kafka: a recording listener, agents that answer as told, conditions."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from hub_app.dev.kafka import Cluster, External
from hub_app.kafka.batch import Batch
from hub_app.kafka.client import KafkaConfig, make_consumer, make_producer
from hub_app.kafka.limits import Limits
from hub_app.kafka.patterns import PatternPlane
from hub_app.kafka.plane import ShardPlane
from hub_app.kafka.standing import Standing


class RealClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000


class Dice:
    def draw(self) -> float:
        return random.random()

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)


class Listener:
    """Records every call; starts where the group is committed unless told otherwise."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.open: set[int] = set()
        self.starts: Callable[[int, Mapping[str, int]], Mapping[str, int]] = lambda shard, committed: committed
        self.failures: dict[int, int] = {}
        self.gate: asyncio.Event | None = None

    async def suspended(self, shards: frozenset[int]) -> None:
        self.calls.append(("suspended", shards))

    async def resumed(self, shards: frozenset[int]) -> None:
        self.calls.append(("resumed", shards))

    async def closed(self, shard: int) -> None:
        self.calls.append(("closed", shard))
        self.open.discard(shard)

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        self.calls.append(("truncated", shard, committed, end))

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        self.calls.append(("opened", shard, dict(committed)))
        if self.gate is not None:
            await self.gate.wait()
        if self.failures.get(shard, 0) > 0:
            self.failures[shard] -= 1
            raise OSError("the folder is locked")
        self.open.add(shard)
        return self.starts(shard, committed)

    def of(self, what: str) -> list[tuple[Any, ...]]:
        return [call for call in self.calls if call[0] == what]


class Agent:
    """Takes batches, remembers what was done, answers by `answer` (done at once by default)."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.done: dict[tuple[str, int], int] = {}
        self.batches: list[Batch] = []
        self.in_flight: dict[tuple[str, int], int] = defaultdict(int)
        self.answer: Callable[[Batch], Awaitable[None]] = self.finish
        self._tasks: set[asyncio.Task[None]] = set()

    async def deliver(self, batch: Batch) -> None:
        key = (batch.topic, batch.partition)
        assert not self.in_flight[key], f"two batches of {key} at once"
        self.in_flight[key] += 1
        self.batches.append(batch)
        task = asyncio.create_task(self._answer(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, batch: Batch) -> None:
        self.in_flight[(batch.topic, batch.partition)] -= 1
        await self.answer(batch)

    async def finish(self, batch: Batch) -> None:
        key = (batch.topic, batch.partition)
        if batch.live:
            self.values[key] += [r.value for r in batch.records]
            self.done[key] = batch.next_offset
        batch.done()

    @property
    def count(self) -> int:
        return sum(len(v) for v in self.values.values())


class World:
    """Everything a plane test needs, closed at its end."""

    def __init__(self, bootstrap: str, prefix: str, admin: AIOKafkaAdminClient) -> None:
        self.config = KafkaConfig(brokers=bootstrap, metadata_max_age_ms=500)
        self.prefix = prefix
        self.admin = admin
        self.clock = RealClock()
        self.entropy = Dice()
        self.standing = Standing(self.clock)
        self._services: list[Any] = []
        self.listener = Listener()
        self.agent = Agent()

    async def started(self, service: Any) -> Any:
        self._services.append(service)
        await service.start()
        return service

    async def stop(self, service: Any) -> None:
        self._services.remove(service)
        await service.stop()

    def plane(self, topics: list[str], shards: int, **options: Any) -> ShardPlane:
        disk: set[int] = options.pop("disk", set())
        settings: dict[str, Any] = {
            "name": "plane",
            "group": self.prefix + "group",
            "url": "http://w1",
            "listener": self.listener,
            "deliver": self.agent.deliver,
            "commit": "after_batch",
            "shards_on_disk": lambda: disk,
            "standing": self.standing,
            "limits": Limits(retry_first_ms=50, retry_cap_ms=400),
        }
        settings |= options
        return ShardPlane(self.config, topics=topics, shards=shards, clock=self.clock, entropy=self.entropy, **settings)

    def patterns(self, pattern: str, **options: Any) -> PatternPlane:
        settings: dict[str, Any] = {
            "name": "ingest",
            "group": self.prefix + "ingest",
            "deliver": self.agent.deliver,
            "standing": self.standing,
        }
        settings |= options
        return PatternPlane(self.config, pattern=pattern, clock=self.clock, entropy=self.entropy, **settings)

    async def produce(self, topic: str, partition: int, values: list[bytes], **options: Any) -> None:
        producer = make_producer(self.config, **options)
        await producer.start()
        try:
            for value in values:
                await producer.send(topic, value, partition=partition)
            await producer.flush()
        finally:
            await producer.stop()

    async def committed(self, topic: str, partition: int, group: str | None = None) -> int | None:
        tp = TopicPartition(topic, partition)
        found = await self.admin.list_consumer_group_offsets(group or self.prefix + "group", partitions=[tp])
        offset = found[tp].offset if tp in found else -1  # a coordinator that is loading leaves it out
        return None if offset < 0 else int(offset)

    async def more_partitions(self, topic: str, count: int) -> None:
        """Adds partitions to a topic, up to `count`."""
        answer = await self.admin.create_partitions({topic: NewPartitions(count)})
        assert not any(error[1] for error in answer.topic_errors), answer

    async def commit_by_hand(self, topic: str, partition: int, offset: int) -> None:
        tp = TopicPartition(topic, partition)
        consumer = make_consumer(self.config, group_id=self.prefix + "group")
        await consumer.start()
        consumer.assign([tp])
        await consumer.commit({tp: offset})
        await consumer.stop()

    async def until(self, condition: Callable[[], Any], what: str = "", seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while True:
            found = condition()
            if isinstance(found, Awaitable):
                found = await found
            if found:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {what}; standing: {self.standing.reasons()}")
            await asyncio.sleep(0.01)

    async def close(self) -> None:
        for service in reversed(self._services):
            with suppress(Exception):
                await service.stop()


@pytest.fixture
async def world(kafka: Cluster | External, topic_prefix: str, admin: AIOKafkaAdminClient) -> AsyncIterator[World]:
    """A world on the shared Kafka."""
    made = World(kafka.bootstrap, topic_prefix, admin)
    yield made
    await made.close()


@pytest.fixture
async def world_on() -> AsyncIterator[Callable[[Cluster], Awaitable[World]]]:
    """`await world_on(cluster)`: a world on a Kafka of the test's own."""
    made: list[World] = []

    async def make(cluster: Cluster) -> World:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        made.append(World(cluster.bootstrap, "own.", admin))
        return made[-1]

    yield make
    for world in made:
        await world.close()
        await world.admin.close()


@pytest.fixture
def reading() -> Callable[..., Any]:
    """An unstarted group-less consumer."""
    return make_consumer
