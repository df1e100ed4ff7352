"""Pattern planes: topics as they appear, every codec, transactions with their gaps."""

from __future__ import annotations

import re
from typing import Any

import pytest

from hub_app.kafka.batch import Batch
from hub_app.kafka.client import make_producer


def numbered(count: int, tag: str = "") -> list[bytes]:
    return [b"%s%d" % (tag.encode(), i) for i in range(count)]


def pattern_of(world: Any) -> str:
    return rf"^{re.escape(world.prefix)}src\.[a-z]+\Z"


async def test_nothing_matches_and_then_topics_appear(world: Any, make_topic: Any) -> None:
    plane = await world.started(world.patterns(pattern_of(world), accepts=lambda t: not t.endswith("forbidden")))
    await world.until(lambda: "no topic matches" in world.standing.reasons()["ingest"].text)
    assert plane.topics == []
    first = await make_topic("src.first", 3)
    await make_topic("src.forbidden", 1)
    await make_topic("src.UPPER", 1)
    await make_topic("other.src.first", 1)
    for p in range(3):
        await world.produce(first, p, numbered(10))
    await world.until(lambda: world.agent.count == 30)
    assert plane.topics == [first]
    assert world.standing.reasons() == {}
    second = await make_topic("src.second", 1)
    await world.produce(second, 0, numbered(10))
    await world.until(lambda: world.agent.count == 40)
    assert plane.topics == [first, second]
    await plane.committed_up_to()
    group = world.prefix + "ingest"
    assert [await world.committed(first, p, group) for p in range(3)] == [10, 10, 10]
    assert {b.shard for b in world.agent.batches} == {-1}


@pytest.mark.parametrize("codec", ["lz4", "zstd", "snappy", "gzip", None])
async def test_every_codec_is_read(world: Any, make_topic: Any, codec: str | None) -> None:
    topic = await make_topic("src.codec", 1)
    values = [b"%05d" % i * 50 for i in range(500)]
    await world.produce(topic, 0, values, compression_type=codec)
    await world.started(world.patterns(pattern_of(world)))
    await world.until(lambda: world.agent.values[(topic, 0)] == values)


async def test_transactions_commit_abort_and_leave_gaps(world: Any, make_topic: Any) -> None:
    topic = await make_topic("src.txn", 1)
    group = world.prefix + "ingest"
    producer = make_producer(world.config, transactional_id=world.prefix + "p")
    await producer.start()
    try:
        for i in range(6):
            await producer.begin_transaction()
            for value in numbered(10, f"{i}-"):
                await producer.send(topic, value, partition=0)
            await (producer.abort_transaction() if i % 2 else producer.commit_transaction())
        plane = await world.started(world.patterns(pattern_of(world)))
        wanted = [v for i in (0, 2, 4) for v in numbered(10, f"{i}-")]
        await world.until(lambda: world.agent.values[(topic, 0)] == wanted)
        # Six transactions of ten records and a marker each: the position goes past what holds no record.
        await world.until(lambda: _at(world, topic, group, 66), "the last marker is passed", 15)
        await producer.begin_transaction()
        await (await producer.send(topic, b"open", partition=0))
        await world.produce(topic, 0, [b"behind"])
        assert world.agent.values[(topic, 0)] == wanted
        await producer.commit_transaction()
        await world.until(lambda: world.agent.values[(topic, 0)] == [*wanted, b"open", b"behind"])
        await plane.committed_up_to()
    finally:
        await producer.stop()


async def _at(world: Any, topic: str, group: str, offset: int) -> bool:
    return await world.committed(topic, 0, group) == offset


async def test_a_failing_partition_does_not_hold_another_topic(world: Any, make_topic: Any) -> None:
    good, bad = await make_topic("src.good", 1), await make_topic("src.bad", 1)

    async def answer(batch: Batch) -> None:
        if batch.topic == bad:
            batch.failed(OSError("down"))
        else:
            await world.agent.finish(batch)

    world.agent.answer = answer
    for topic in (good, bad):
        await world.produce(topic, 0, numbered(20))
    await world.started(world.patterns(pattern_of(world)))
    await world.until(lambda: world.agent.count == 20)
    await world.until(lambda: f"ingest/{bad}/0" in world.standing.reasons())
    world.agent.answer = world.agent.finish
    await world.until(lambda: world.agent.count == 40)
    assert world.standing.reasons() == {}


async def test_two_members_share_partitions_and_survive_each_other(world: Any, make_topic: Any) -> None:
    topic = await make_topic("src.shared", 4)
    first = await world.started(world.patterns(pattern_of(world)))
    other = type(world.agent)()
    second = await world.started(world.patterns(pattern_of(world), name="other", deliver=other.deliver))
    await world.until(lambda: len(first._partitions.flows) == len(second._partitions.flows) == 2)
    for p in range(4):
        await world.produce(topic, p, numbered(25))
    await world.until(lambda: world.agent.count + other.count == 100)
    assert world.agent.count == other.count == 50
    await world.stop(second)
    for p in range(4):
        await world.produce(topic, p, numbered(25))
    await world.until(lambda: world.agent.count == 150)


async def test_a_topic_created_again_is_read_from_its_start(world: Any, make_topic: Any) -> None:
    topic = await make_topic("src.again", 1)
    await world.produce(topic, 0, numbered(30))
    plane = await world.started(world.patterns(pattern_of(world)))
    await world.until(lambda: world.agent.count == 30)
    await plane.committed_up_to()
    await world.admin.delete_topics([topic])
    await world.until(lambda: _gone(world, topic))
    await make_topic("src.again", 1)
    await world.produce(topic, 0, numbered(5, "new"))
    await world.until(lambda: world.agent.values[(topic, 0)][30:] == numbered(5, "new"))


async def _gone(world: Any, topic: str) -> bool:
    return topic not in await world.admin.list_topics()
