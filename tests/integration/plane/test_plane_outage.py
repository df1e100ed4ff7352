"""A broker that is stopped, paused or killed: leases run out, everything waits, nothing is lost."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError

from hub_app.kafka.batch import Batch
from hub_app.kafka.limits import Limits
from hub_app.kafka.producer import DeadlinePassed, HubProducer
from hub_app.kafka.reader import RangeReader
from hub_app.kafka.tail import TopicTail

SESSION_MS = 6_000  # the least a broker allows


def numbered(count: int, tag: str = "") -> list[bytes]:
    return [b"%s%d" % (tag.encode(), i) for i in range(count)]


class Mirror:
    """An agent that writes every record to another topic before it answers, as the hub's agents do."""

    def __init__(self, producer: HubProducer, target: str) -> None:
        self.producer = producer
        self.target = target
        self.done = 0

    async def answer(self, batch: Batch) -> None:
        box = self.producer.outbox()
        for record in batch.records:
            box.add(self.target, batch.partition, record.key, record.value, [])
        try:
            await box.flush()
        except Exception as exc:
            batch.failed(exc)
        else:
            self.done += len(batch.records)
            batch.done()


async def world_with_topics(world_on: Any, cluster: Any) -> Any:
    world = await world_on(cluster)
    await world.admin.create_topics([NewTopic(n, 2, 1) for n in ("in", "out")])
    return world


async def read(world: Any, topic: str, partition: int) -> list[bytes]:
    reader = RangeReader(world.config)
    try:
        end = (await reader.end_offsets(topic, [partition]))[partition]
        return [r.value async for batch in reader.read_range(topic, partition, 0, end) for r in batch]
    finally:
        await reader.on_stop()


async def test_a_paused_broker_ends_the_lease_and_loses_nothing(make_kafka: Any, world_on: Any) -> None:
    cluster = make_kafka()
    world = await world_with_topics(world_on, cluster)
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    mirror = Mirror(producer, "out")
    world.agent.answer = mirror.answer
    limits = Limits(session_timeout_ms=SESSION_MS, batch_records_max=50)
    plane = await world.started(world.plane(["in"], 2, limits=limits))
    for p in range(2):
        await world.produce("in", p, numbered(200))
    await world.until(lambda: mirror.done == 400)
    clock = world.clock.monotonic_ms
    assert plane.lease.valid(clock())
    for p in range(2):
        await world.produce("in", p, numbered(200, "b"))
    cluster.pause()
    # It counts from a contact before the pause, so it ends before the broker, had it not slept, could have given the
    # shards away. (The slack is the poll's.)
    paused = clock()
    await world.until(lambda: not plane.lease.valid(clock()), "the lease runs out", 8)
    assert clock() - paused <= SESSION_MS + 250
    assert plane.lease.remaining_ms(clock()) == 0
    cluster.resume()
    await world.until(lambda: plane.lease.valid(clock()) and plane.open_shards == {0, 1}, "", 30)
    await world.until(lambda: mirror.done >= 800, "", 30)
    for p in range(2):
        seen = await read(world, "out", p)
        assert set(seen) == {*numbered(200), *numbered(200, "b")}
    await world.until(lambda: world.standing.reasons() == {}, "all is well again", 30)
    await plane.committed_up_to()
    assert [await world.committed("in", p) for p in range(2)] == [400, 400]


async def test_a_killed_broker_comes_back_and_everything_goes_on(make_kafka: Any, world_on: Any) -> None:
    cluster = make_kafka()
    world = await world_with_topics(world_on, cluster)
    await world.admin.create_topics([NewTopic("state", 1, 1, topic_configs={"cleanup.policy": "compact"})])
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    rows: dict[Any, Any] = {}
    reader = await world.started(RangeReader(world.config))
    tail = await world.started(
        TopicTail(
            world.config,
            "state",
            lambda p, o, key, value, h: rows.update({key: value}),
            standing=world.standing,
            clock=world.clock,
            entropy=world.entropy,
            reader=reader,
        )
    )
    mirror = Mirror(producer, "out")
    world.agent.answer = mirror.answer
    plane = await world.started(world.plane(["in"], 2, limits=Limits(batch_records_max=50)))
    await asyncio.wait_for(tail.all_read_to_end(), 20)
    for p in range(2):
        await world.produce("in", p, numbered(3_000))
    await world.until(lambda: mirror.done > 500)
    cluster.kill()
    box = producer.outbox()
    box.add("state", 0, b"k", b"written in an outage", [])
    writing = asyncio.create_task(box.flush())
    quick = producer.outbox()
    quick.add("out", 0, None, b"late", [])
    began = time.monotonic()
    try:
        await quick.flush(deadline_ms=300)
        raise AssertionError("nobody is there to acknowledge it")
    except DeadlinePassed:
        assert time.monotonic() - began < 2
    await world.until(lambda: producer.stalled_since_ms is not None, "the stall is visible", 10)
    await world.until(lambda: "producer" in world.standing.reasons())
    cluster.start()
    assert (await asyncio.wait_for(writing, 30)).records == 1
    await world.until(lambda: mirror.done >= 6_000, "", 40)
    for p in range(2):
        seen = await read(world, "out", p)
        assert set(seen) - {b"late"} == set(numbered(3_000))
    await world.until(lambda: rows.get(b"k") == b"written in an outage")
    await plane.committed_up_to()
    assert [await world.committed("in", p) for p in range(2)] == [3_000, 3_000]
    await world.until(lambda: world.standing.reasons() == {}, "all is well again", 30)


async def test_row_06_a_commit_that_fails_inside_a_revoke_repeats_work_at_most(make_kafka: Any, world_on: Any) -> None:
    """The broker falls asleep as a rebalance begins, for longer than a session: what was done meanwhile cannot be
    committed, and is somebody else's by the time it could."""
    cluster = make_kafka()
    world = await world_with_topics(world_on, cluster)
    held: list[Batch] = []
    finish, suspended = world.agent.finish, world.listener.suspended

    async def hold(batch: Batch) -> None:
        held.append(batch)

    async def fall_asleep(shards: frozenset[int]) -> None:
        world.listener.suspended = suspended
        await suspended(shards)
        cluster.pause()
        world.agent.answer = finish
        for batch in held:
            await finish(batch)

    world.agent.answer, world.listener.suspended = hold, fall_asleep
    limits = Limits(session_timeout_ms=SESSION_MS)
    for p in range(2):
        await world.produce("in", p, numbered(10))
    first = await world.started(world.plane(["in"], 2, limits=limits))
    await world.until(lambda: len(held) == 2)
    other = type(world.listener)(), type(world.agent)()
    second = world.plane(
        ["in"], 2, limits=limits, name="second", url="http://w2", listener=other[0], deliver=other[1].deliver
    )
    await world.started(second)
    await world.until(lambda: world.agent.count == 20, "done in the revoke")
    slept = time.monotonic()
    await world.until(lambda: time.monotonic() - slept > SESSION_MS / 1_000, "a session", 10)
    cluster.resume()
    await world.until(lambda: len(first.open_shards) == len(second.open_shards) == 1, "both go on", 40)
    for p in range(2):
        await world.produce("in", p, numbered(5, "more"))
        await world.until(lambda p=p: all_committed(world, p), "nothing is lost", 30)
        seen = [*world.agent.values["in", p], *other[1].values["in", p]]
        assert set(seen) == {*numbered(10), *numbered(5, "more")}
        assert len(seen) <= 25
    await world.until(lambda: world.standing.reasons() == {}, "all is well again", 30)


async def all_committed(world: Any, partition: int) -> bool:
    try:
        return bool(await world.committed("in", partition) == 15)
    except KafkaError:  # the broker has to find its groups again
        return False


async def test_starting_without_a_broker_waits_and_says_so(make_kafka: Any, world_on: Any) -> None:
    cluster = make_kafka()
    world = await world_with_topics(world_on, cluster)
    await world.produce("in", 0, numbered(10))
    cluster.stop()
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    plane = await world.started(world.plane(["in"], 2))
    await world.until(lambda: {"plane", "producer"} <= set(world.standing.reasons()))
    await world.until(lambda: "onnect" in world.standing.reasons()["plane"].text)
    box = producer.outbox()
    box.add("out", 0, None, b"x", [])
    writing = asyncio.create_task(box.flush())
    cluster.start()
    assert (await asyncio.wait_for(writing, 30)).records == 1
    await world.until(lambda: world.agent.count == 10, "", 30)
    await world.until(lambda: world.standing.reasons() == {}, "all is well", 30)
    assert plane.open_shards == {0, 1}


async def test_stopping_while_the_broker_is_away_is_bounded(make_kafka: Any, world_on: Any) -> None:
    cluster = make_kafka()
    world = await world_with_topics(world_on, cluster)
    producer = await world.started(HubProducer(world.config, standing=world.standing))
    plane = await world.started(world.plane(["in"], 2))
    await world.until(lambda: plane.open_shards == {0, 1})
    box = producer.outbox()
    box.add("out", 0, None, b"x", [])
    await box.flush()
    cluster.pause()
    box.add("out", 0, None, b"y", [])
    writing = asyncio.create_task(box.flush())
    await asyncio.sleep(0)
    began = time.monotonic()
    await world.stop(plane)
    await world.stop(producer)
    assert time.monotonic() - began < 40
    assert world.listener.open == set()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    cluster.resume()
