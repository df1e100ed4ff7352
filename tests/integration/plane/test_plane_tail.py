"""Tails of compacted topics, and bounded reading for openings."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import NewTopic, RecordsToDelete

from hub_app.kafka.client import make_producer
from hub_app.kafka.reader import RangeReader
from hub_app.kafka.tail import TopicTail


class Table:
    """What a tail has applied."""

    def __init__(self) -> None:
        self.rows: dict[tuple[int, bytes | None], bytes | None] = {}
        self.applied: list[tuple[int, int]] = []

    def apply(self, partition: int, offset: int, key: Any, value: Any, headers: Any) -> None:
        self.applied.append((partition, offset))
        self.rows[(partition, key)] = value

    def reset(self, partition: int) -> None:
        self.rows = {k: v for k, v in self.rows.items() if k[0] != partition}


async def tail_of(world: Any, topic: str, table: Table) -> Any:
    reader = await world.started(RangeReader(world.config))
    tail = TopicTail(
        world.config,
        topic,
        table.apply,
        standing=world.standing,
        clock=world.clock,
        entropy=world.entropy,
        reader=reader,
        reset=table.reset,
    )
    return await world.started(tail)


async def keyed(world: Any, topic: str, partition: int, rows: dict[bytes, bytes | None], **options: Any) -> Any:
    producer = make_producer(world.config, **options)
    await producer.start()
    if options:
        await producer.begin_transaction()
    for key, value in rows.items():
        await producer.send(topic, value, key=key, partition=partition, headers=[("h", b"1")])
    return producer


async def test_a_tail_catches_up_and_goes_on(world: Any, make_topic: Any) -> None:
    topic = await make_topic("subs", 3, {"cleanup.policy": "compact"})
    for p in range(3):
        producer = await keyed(world, topic, p, {b"k%d" % i: b"v" for i in range(500)})
        await producer.stop()
    table = Table()
    tail = await tail_of(world, topic, table)
    await asyncio.wait_for(tail.all_read_to_end(), 20)
    assert len(table.rows) == 1_500
    assert tail.positions == {0: 500, 1: 500, 2: 500}
    producer = await keyed(world, topic, 1, {b"k1": None, b"new": b"w"})
    await producer.stop()
    assert await asyncio.wait_for(tail.read_to_end(1), 20) == 502
    assert table.rows[(1, b"k1")] is None
    assert table.rows[(1, b"new")] == b"w"
    await asyncio.wait_for(tail.caught_up(1, 502), 20)
    assert world.standing.reasons() == {}
    assert table.applied == sorted(set(table.applied), key=table.applied.index), "nothing twice"


async def test_only_committed_transactions_are_applied_and_markers_are_passed(world: Any, make_topic: Any) -> None:
    topic = await make_topic("subs", 1, {"cleanup.policy": "compact"})
    table = Table()
    tail = await tail_of(world, topic, table)
    producer = await keyed(world, topic, 0, {b"a": b"1"}, transactional_id=world.prefix + "t")
    await producer.commit_transaction()
    assert await asyncio.wait_for(tail.read_to_end(0), 20) == 2
    assert table.rows == {(0, b"a"): b"1"}
    await producer.begin_transaction()
    await producer.send(topic, b"2", key=b"a", partition=0)
    await producer.abort_transaction()
    assert await asyncio.wait_for(tail.read_to_end(0), 20) == 4
    await producer.begin_transaction()
    await (await producer.send(topic, b"3", key=b"a", partition=0))
    assert await asyncio.wait_for(tail.read_to_end(0), 20) == 4, "an open transaction is not waited for"
    assert table.rows == {(0, b"a"): b"1"}
    await producer.commit_transaction()
    await asyncio.wait_for(tail.read_to_end(0), 20)
    assert table.rows == {(0, b"a"): b"3"}
    await producer.stop()


async def test_a_tail_waits_for_its_topic(world: Any, make_topic: Any) -> None:
    table = Table()
    tail = await tail_of(world, world.prefix + "late", table)
    await world.until(lambda: "does not exist" in world.standing.reasons()[f"tail/{world.prefix}late"].text)
    await make_topic("late", 2, {"cleanup.policy": "compact"})
    await asyncio.wait_for(tail.all_read_to_end(), 20)
    assert tail.positions == {0: 0, 1: 0}


async def test_a_log_cut_below_the_position_is_read_again(world: Any, make_topic: Any) -> None:
    topic = await make_topic("subs", 1, {"cleanup.policy": "compact"})
    producer = await keyed(world, topic, 0, {b"k%d" % i: b"v" for i in range(50)})
    await producer.stop()
    table = Table()
    tail = await tail_of(world, topic, table)
    await asyncio.wait_for(tail.read_to_end(0), 20)
    await world.admin.delete_topics([topic])
    await world.until(lambda: _gone(world, topic))
    await make_topic("subs", 1, {"cleanup.policy": "compact"})
    producer = await keyed(world, topic, 0, {b"only": b"v"})
    await producer.stop()
    await world.until(lambda: table.rows == {(0, b"only"): b"v"})
    assert tail.positions == {0: 1}


async def _gone(world: Any, topic: str) -> bool:
    return topic not in await world.admin.list_topics()


async def test_ranges_end_where_they_should(world: Any, make_topic: Any) -> None:
    topic = await make_topic("attempts", 2)
    await world.produce(topic, 0, [b"%d" % i for i in range(5_000)])
    reader = await world.started(RangeReader(world.config))
    assert await reader.end_offsets(topic, [0, 1]) == {0: 5_000, 1: 0}

    async def values(start: int, stop: int, **options: Any) -> list[int]:
        found = reader.read_range(topic, 0, start, stop, **options)
        return [int(r.value) async for batch in found for r in batch]

    assert await values(10, 4_990, records_max=700) == list(range(10, 4_990))
    assert await values(7, 7) == []
    assert await values(4_990, 6_000) == list(range(4_990, 5_000)), "the log ends below: no waiting"
    await world.admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=100)})
    assert await values(0, 105) == [100, 101, 102, 103, 104]
    assert await reader.begin_offsets(topic, [0]) == {0: 100}


async def test_ranges_pass_control_records_and_aborted_ones(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    producer = make_producer(world.config, transactional_id=world.prefix + "t")
    await producer.start()
    for i in range(4):
        await producer.begin_transaction()
        await producer.send(topic, b"%d" % i, partition=0)
        await (producer.abort_transaction() if i >= 2 else producer.commit_transaction())
    await producer.stop()
    reader = await world.started(RangeReader(world.config))
    stop = (await reader.end_offsets(topic, [0], isolation_level="read_committed"))[0]
    assert stop == 8
    committed = reader.read_range(topic, 0, 0, stop, isolation_level="read_committed")
    assert [r.value async for batch in committed for r in batch] == [b"0", b"1"]
    everything = reader.read_range(topic, 0, 0, stop)
    assert [r.value async for batch in everything for r in batch] == [b"0", b"1", b"2", b"3"]


async def test_offset_for_time(world: Any, make_topic: Any) -> None:
    topic = await make_topic("attempts", 1)
    before = world.clock.now_ms()
    await world.produce(topic, 0, [b"a", b"b"])
    reader = await world.started(RangeReader(world.config))
    assert await reader.offset_for_time(topic, 0, before - 60_000) == 0
    assert await reader.offset_for_time(topic, 0, world.clock.now_ms() + 3_600_000) is None


async def test_a_topic_that_was_made_anew_has_another_id(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    reader = await world.started(RangeReader(world.config))
    (before,) = (await reader.topic_ids([topic, topic + "-none"])).items()
    assert (before[0], len(before[1])) == (topic, 16)
    assert await reader.topic_ids([topic]) == dict([before])
    await world.admin.delete_topics([topic])

    async def gone() -> bool:
        return not await reader.topic_ids([topic])

    await world.until(gone, "deleted")
    await world.admin.create_topics([NewTopic(topic, 2, 1)])

    async def back() -> bool:
        return bool(await reader.topic_ids([topic]))

    await world.until(back, "created")
    assert (await reader.topic_ids([topic]))[topic] != before[1]


async def test_many_openings_read_at_once(world: Any, make_topic: Any) -> None:
    topic = await make_topic("attempts", 8)
    for p in range(8):
        await world.produce(topic, p, [b"x"] * 100)
    reader = await world.started(RangeReader(world.config, ranges_at_once=3))

    async def count(p: int) -> int:
        return sum([len(batch) async for batch in reader.read_range(topic, p, 0, 100)])

    assert await asyncio.gather(*(count(p) for p in range(8))) == [100] * 8
