"""Header names that are not UTF-8: Kafka takes them, aiokafka raises for the whole fetch."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatch

from hub_app.kafka.batch import Batch
from tests.support.raw import RawName, RawRecord, write

ODD = RawRecord(b"k", b"odd", [("a", b"1"), (RawName(b"x-\xff\xc3("), b"\x00\xff"), ("n", None)])


def plain(*values: bytes) -> list[RawRecord]:
    return [RawRecord(None, value, [("h", value)]) for value in values]


@pytest.mark.parametrize("codec", ["NONE", "GZIP", "SNAPPY", "LZ4", "ZSTD"])
async def test_the_partition_goes_on_and_the_record_comes_whole(world: Any, make_topic: Any, codec: str) -> None:
    topic = await make_topic("lenient", 1)
    form = getattr(DefaultRecordBatch, f"CODEC_{codec}")
    plane = await world.started(world.patterns(topic))
    await world.until(lambda: plane.topics == [topic])
    for records in (plain(b"1", b"2"), [*plain(b"3"), ODD, *plain(b"4")], [ODD], [*plain(b"5")]):
        await write(world.config.brokers, topic, 0, records, codec=form)
    await world.until(lambda: world.agent.count == 7)
    assert world.agent.values[topic, 0] == [b"1", b"2", b"3", b"odd", b"4", b"odd", b"5"]
    [odd, again] = [r for batch in world.agent.batches for r in batch.records if r.value == b"odd"]
    assert (odd.key, odd.offset, again.offset) == (b"k", 3, 5)
    assert odd.headers == (("a", b"1"), ("x-\udcff\udcc3(", b"\x00\xff"), ("n", None))
    await plane.committed_up_to()
    assert await world.committed(topic, 0, world.prefix + "ingest") == 7
    assert world.standing.reasons() == {}


async def test_other_partitions_lose_nothing_by_it(world: Any, make_topic: Any) -> None:
    """Everything is there before the member joins: one fetch brings all, and fails as a whole."""
    topic = await make_topic("lenient", 4)
    for p in range(4):
        for start in range(0, 300, 50):
            await write(world.config.brokers, topic, p, plain(*(b"%d" % i for i in range(start, start + 50))))
        await write(world.config.brokers, topic, p, [ODD] if p % 2 else plain(b"odd"))
    await world.started(world.patterns(topic))
    await world.until(lambda: world.agent.count == 4 * 301)
    wanted = [*(b"%d" % i for i in range(300)), b"odd"]
    assert [world.agent.values[topic, p] for p in range(4)] == [wanted] * 4


async def test_aborted_records_stay_unseen(world: Any, make_topic: Any) -> None:
    topic = await make_topic("lenient", 1)
    async with AIOKafkaProducer(bootstrap_servers=world.config.brokers, transactional_id=topic) as producer:
        for value, ends in ((b"1", True), (b"never", False), (b"2", True)):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, value, partition=0)
            if value == b"2":
                await write(world.config.brokers, topic, 0, [ODD])
            await (producer.commit_transaction() if ends else producer.abort_transaction())
    await write(world.config.brokers, topic, 0, plain(b"3"))
    await world.started(world.patterns(topic))
    await world.until(lambda: world.agent.count == 4)
    assert world.agent.values[topic, 0] == [b"1", b"2", b"odd", b"3"]


async def test_a_failing_batch_is_read_again(world: Any, make_topic: Any) -> None:
    topic = await make_topic("lenient", 1)
    await write(world.config.brokers, topic, 0, [*plain(b"1"), ODD])
    failures = 0

    async def answer(batch: Batch) -> None:
        nonlocal failures
        failures += 1
        if failures < 3:
            batch.failed(OSError("not yet"))
        else:
            await world.agent.finish(batch)

    world.agent.answer = answer
    await world.started(world.patterns(topic))
    await world.until(lambda: world.agent.count == 2)
    assert world.agent.values[topic, 0] == [b"1", b"odd"]


async def test_it_is_read_beside_partitions_that_have_no_room(world: Any, make_topic: Any) -> None:
    """What waits of the others in the consumer is not taken for the one that failed."""
    topic = await make_topic("lenient", 3)
    held = asyncio.Event()

    async def answer(batch: Batch) -> None:
        if batch.partition != 1:
            await held.wait()
        await world.agent.finish(batch)

    world.agent.answer = answer
    many = [RawRecord(None, b"%d" % i + b"v" * 4_000, []) for i in range(200)]
    for p in (0, 2):
        for _ in range(10):
            await write(world.config.brokers, topic, p, many)
    plane = await world.started(world.patterns(topic))
    await world.until(lambda: {batch.partition for batch in world.agent.batches} == {0, 2})
    for number in range(20):
        await write(world.config.brokers, topic, 1, [ODD, *plain(b"%d" % number)])
        await world.until(lambda n=number: len(world.agent.values[topic, 1]) == 2 * (n + 1))
        assert plane._partitions.held_bytes < 10 << 20
    held.set()
    await world.until(lambda: world.agent.count == 4_040)
    assert world.standing.reasons() == {}
