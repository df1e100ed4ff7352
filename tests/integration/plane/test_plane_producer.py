"""The producer on a real broker: outputs by partition, refused records as values."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from hub_app.kafka.outbox import TooLarge
from hub_app.kafka.producer import HubProducer
from hub_app.kafka.reader import RangeReader


async def read(world: Any, topic: str, partition: int) -> list[Any]:
    reader = RangeReader(world.config)
    try:
        end = (await reader.end_offsets(topic, [partition]))[partition]
        return [r async for batch in reader.read_range(topic, partition, 0, end) for r in batch]
    finally:
        await reader.on_stop()


async def test_outputs_are_written_in_order_with_their_offsets(world: Any, make_topic: Any) -> None:
    topic = await make_topic("out", 3)
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    box = producer.outbox()
    headers = (("ce-id", b"1"), ("ce-id", b"\xff\x00"))
    for i in range(3_000):
        assert box.add(topic, i % 3, b"k%d" % i, b"v%d" % i * 100, headers) is None
    assert len(box) == 3_000
    flushed = await box.flush()
    assert (flushed.records, flushed.refused, len(box)) == (3_000, [], 0)
    assert {p: list(flushed.offsets[(topic, p)]) for p in range(3)} == {p: list(range(1_000)) for p in range(3)}
    for p in range(3):
        records = await read(world, topic, p)
        assert [r.value for r in records] == [b"v%d" % i * 100 for i in range(p, 3_000, 3)]
        assert records[0].headers == headers
    assert (await box.flush()).records == 0
    box.add(topic, 0, None, b"again", [])
    assert list((await box.flush()).offsets[(topic, 0)]) == [1_000]


async def test_a_refused_record_is_found_and_everything_else_is_written(world: Any, make_topic: Any) -> None:
    compacted = await make_topic("state", 2, {"cleanup.policy": "compact"})
    plain = await make_topic("plain", 1)
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    box = producer.outbox()
    for i in range(200):
        box.add(compacted, 0, None if i in (3, 150) else b"k%d" % i, b"v%d" % i, [("n", b"%d" % i)])
        box.add(plain, 0, None, b"v%d" % i, [])
    flushed = await box.flush()
    assert [(r.topic, r.partition, r.key, r.value, r.headers) for r in flushed.refused] == [
        (compacted, 0, None, b"v3", [("n", b"3")]),
        (compacted, 0, None, b"v150", [("n", b"150")]),
    ]
    assert "InvalidRecord" in flushed.refused[0].reason
    assert flushed.records == 398
    offsets = list(flushed.offsets[(compacted, 0)])
    assert offsets == [None if i in (3, 150) else i - (i > 3) - (i > 150) for i in range(200)]
    assert [r.value for r in await read(world, compacted, 0)] == [b"v%d" % i for i in range(200) if i not in (3, 150)]
    assert [r.value for r in await read(world, plain, 0)] == [b"v%d" % i for i in range(200)]
    assert producer.replaced >= 1
    box.add(compacted, 0, b"k", b"later", [])
    assert list((await box.flush()).offsets[(compacted, 0)]) == [198]
    assert world.standing.reasons() == {}


async def test_others_who_share_the_producer_are_not_harmed(world: Any, make_topic: Any) -> None:
    topic = await make_topic("state", 1, {"cleanup.policy": "compact"})
    producer = await world.started(HubProducer(world.config, standing=world.standing))

    async def agent(name: int) -> int:
        box, refused = producer.outbox(), 0
        for turn in range(10):
            for i in range(20):
                bad = name == 0 and i == 7
                box.add(topic, 0, None if bad else b"%d/%d/%d" % (name, turn, i), b"v", [])
            refused += len((await box.flush()).refused)
        return refused

    assert await asyncio.gather(*(agent(n) for n in range(4))) == [10, 0, 0, 0]
    keys = [r.key for r in await read(world, topic, 0)]
    assert len(keys) == len(set(keys)) == 4 * 200 - 10
    for name in range(4):
        mine = [k for k in keys if k.startswith(b"%d/" % name)]
        wanted = [b"%d/%d/%d" % (name, t, i) for t in range(10) for i in range(20) if name or i != 7]
        assert mine == wanted, "each agent's order is kept"


async def test_a_record_past_the_limit_is_a_value_and_harms_nobody(world: Any, make_topic: Any) -> None:
    topic = await make_topic("big", 1, {"max.message.bytes": str(5 << 19)})
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    box = producer.outbox()
    box.add(topic, 0, None, b"small", [])
    answer = box.add(topic, 0, None, b"x" * (5 << 19), [])
    assert isinstance(answer, TooLarge)
    assert answer.size_bytes > answer.limit_bytes
    assert box.add(topic, 0, None, bytes(2_400_000), [("h", b"x" * 200_000)]) is None
    assert box.add(topic, 0, None, b"after", []) is None
    flushed = await box.flush()
    assert (flushed.records, flushed.refused) == (3, [])
    assert [len(r.value) for r in await read(world, topic, 0)] == [5, 2_400_000, 5]


async def test_a_topic_with_a_lower_limit_refuses_the_one_record(world: Any, make_topic: Any) -> None:
    topic = await make_topic("narrow", 1, {"max.message.bytes": "20000"})
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    box = producer.outbox()
    noise = random.Random(7).randbytes(30_000)
    box.add(topic, 0, None, b"a", [])
    box.add(topic, 0, None, noise, [])
    box.add(topic, 0, None, b"b", [])
    flushed = await box.flush()
    assert [r.value for r in await read(world, topic, 0)] == [b"a", b"b"]
    assert [r.value for r in flushed.refused] == [noise]


async def test_a_wrong_partition_is_raised_and_the_outbox_keeps_its_records(world: Any, make_topic: Any) -> None:
    topic = await make_topic("out", 1)
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    box = producer.outbox()
    box.add(topic, 5, None, b"x", [])
    with pytest.raises(AssertionError):
        await asyncio.wait_for(box.flush(), 10)
    assert len(box) == 1
    box.clear()
    box.add(topic, 0, None, b"x", [])
    assert (await box.flush()).records == 1
