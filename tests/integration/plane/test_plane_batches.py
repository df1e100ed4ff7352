"""Batches, commits, rewinds of one member."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete

from hub_app.kafka.batch import Batch
from hub_app.kafka.limits import Limits

N = 4


def numbered(count: int, tag: str = "") -> list[bytes]:
    return [b"%s%d" % (tag.encode(), i) for i in range(count)]


async def test_records_arrive_in_order_and_are_committed(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    for p in range(N):
        await world.produce(topic, p, numbered(2_500, f"{p}-"))
    plane = await world.started(world.plane([topic], N, limits=Limits(batch_records_max=400)))
    await world.until(lambda: world.agent.count == N * 2_500)
    assert all(world.agent.values[(topic, p)] == numbered(2_500, f"{p}-") for p in range(N))
    assert max(len(b.records) for b in world.agent.batches) <= 400
    assert plane.open_shards == frozenset(range(N))
    assert plane.owners == dict.fromkeys(range(N), "http://w1")
    await plane.committed_up_to()
    assert [await world.committed(topic, p) for p in range(N)] == [2_500] * N
    assert plane.lease.valid(world.clock.monotonic_ms())
    assert world.standing.reasons() == {}
    await world.stop(plane)
    assert world.listener.open == set()
    assert not plane.lease.valid(world.clock.monotonic_ms())


async def test_the_owner_commits_zero_for_a_topic_without_offsets(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    plane = await world.started(world.plane([topic], N))
    await world.until(lambda: plane.open_shards == set(range(N)))
    assert [await world.committed(topic, p) for p in range(N)] == [0] * N
    assert sorted(world.listener.of("opened")) == [("opened", p, {topic: 0}) for p in range(N)]


async def test_row_04_a_failing_partition_rewinds_alone_and_is_named(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    healed = asyncio.Event()

    async def answer(batch: Batch) -> None:
        if batch.partition == 2 and not healed.is_set():
            batch.failed(OSError("no room left on device"))
        else:
            await world.agent.finish(batch)

    world.agent.answer = answer
    for p in range(N):
        await world.produce(topic, p, numbered(100))
    plane = await world.started(world.plane([topic], N))
    await world.until(lambda: world.agent.count == (N - 1) * 100)
    stuck = f"plane/{topic}/2"
    await world.until(lambda: len([b for b in world.agent.batches if b.partition == 2]) >= 4)
    reason = world.standing.reasons()[stuck]
    assert "no room left on device" in reason.text
    assert list(world.standing.reasons()) == [stuck]
    await world.produce(topic, 0, numbered(100, "more"))
    await world.until(lambda: world.agent.count == (N - 1) * 100 + 100, "others go on")
    assert world.standing.reasons()[stuck].since_ms == reason.since_ms
    assert await world.committed(topic, 2) == 0
    healed.set()
    await world.until(lambda: world.agent.values[(topic, 2)] == numbered(100))
    assert world.standing.reasons() == {}
    await plane.committed_up_to()
    assert await world.committed(topic, 2) == 100


async def test_an_agent_that_raises_on_delivery_is_a_failed_batch(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    await world.produce(topic, 0, numbered(10))
    tries = 0

    async def deliver(batch: Batch) -> None:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise RuntimeError("channel closed")
        await world.agent.deliver(batch)

    await world.started(world.plane([topic], 1, deliver=deliver))
    await world.until(lambda: world.agent.count == 10)
    assert tries == 3


async def test_manual_commits_are_coalesced_and_monotone(world: Any, make_topic: Any) -> None:
    topic = await make_topic("deliveries", 2)
    await world.produce(topic, 0, numbered(50))
    plane = await world.started(world.plane([topic], 2, commit="manual"))
    await world.until(lambda: world.agent.count == 50)
    await plane.committed_up_to()
    assert await world.committed(topic, 0) == 0
    for offset in (3, 20, 7, 19):
        plane.commit({(topic, 0): offset, (topic, 1): 0, (topic, 9): 5})
    await plane.committed_up_to()
    assert [await world.committed(topic, p) for p in range(2)] == [20, 0]


async def test_back_pressure_by_shard(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    plane = await world.started(world.plane([topic], 2))
    await world.until(lambda: plane.open_shards == {0, 1})
    plane.pause(0, "memory")
    plane.pause(0, "disk")
    for p in range(2):
        await world.produce(topic, p, numbered(300))
    await world.until(lambda: len(world.agent.values[(topic, 1)]) == 300)
    plane.resume(0, "memory")
    await world.produce(topic, 1, numbered(1))
    await world.until(lambda: len(world.agent.values[(topic, 1)]) == 301)
    assert world.agent.values[(topic, 0)] == []
    plane.resume(0, "disk")
    await world.until(lambda: world.agent.values[(topic, 0)] == numbered(300))


async def test_memory_stays_bounded_while_agents_are_slow(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    value = b"x" * 4_000
    for p in range(N):
        await world.produce(topic, p, [value] * 2_000, compression_type=None)
    go = asyncio.Event()

    async def answer(batch: Batch) -> None:
        await go.wait()
        await world.agent.finish(batch)

    world.agent.answer = answer
    bound = 2 << 20
    limits = Limits(buffer_bytes_max=bound, partition_fetch_bytes_max=1 << 18, fetch_bytes_max=1 << 20)
    plane = await world.started(world.plane([topic], N, limits=limits))
    await world.until(lambda: plane._partitions.held_bytes >= bound)
    held = plane._partitions.held_bytes
    # One fetch may come on top of the bound.
    assert held < bound + 2 * (1 << 20)
    go.set()
    await world.until(lambda: world.agent.count == N * 2_000)
    assert all(len(world.agent.values[(topic, p)]) == 2_000 for p in range(N))
    await world.until(lambda: plane._partitions.held_bytes == 0)


async def test_an_opening_that_fails_is_tried_again_and_seen(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    world.listener.failures[1] = 2
    for p in range(2):
        await world.produce(topic, p, numbered(5))
    await world.started(world.plane([topic], 2))
    await world.until(lambda: "folder is locked" in world.standing.reasons().get("plane/1", ("", ""))[1])
    await world.until(lambda: world.agent.count == 10)
    assert world.standing.reasons() == {}
    assert [c for c in world.listener.calls if c[1] == 1][:4] == [
        ("opened", 1, {topic: 0}),
        ("closed", 1),
        ("opened", 1, {topic: 0}),
        ("closed", 1),
    ]


async def test_a_start_other_than_the_committed_one_is_obeyed(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    await world.produce(topic, 0, numbered(20))
    world.listener.starts = lambda shard, committed: {topic: 15}
    await world.started(world.plane([topic], 1))
    await world.until(lambda: world.agent.values[(topic, 0)] == numbered(20)[15:])


async def test_a_log_that_begins_later_without_an_offset_stops_the_shard(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    for p in range(2):
        await world.produce(topic, p, numbered(20))
    await world.admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=12)})
    await world.started(world.plane([topic], 2))
    await world.until(lambda: len(world.agent.values[(topic, 1)]) == 20)
    await world.until(lambda: "--reset-offsets" in world.standing.reasons().get("plane/0", ("", ""))[1])
    assert f"--topic {topic}:0" in world.standing.reasons()["plane/0"].text
    assert world.agent.values[(topic, 0)] == []


async def test_records_deleted_unread_stop_the_shard(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    await world.produce(topic, 0, numbered(20))
    plane = await world.started(world.plane([topic], 1))
    await world.until(lambda: world.agent.count == 20)
    await world.stop(plane)
    await world.produce(topic, 0, numbered(20))
    await world.admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=30)})
    await world.started(world.plane([topic], 1))
    await world.until(lambda: "deleted before they were read" in world.standing.reasons().get("plane/0", ("", ""))[1])
    assert world.agent.count == 20


async def test_a_log_that_ends_below_the_committed_offset_lowers_it_and_tells(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    await world.produce(topic, 0, numbered(3))
    await world.commit_by_hand(topic, 0, 20)
    plane = await world.started(world.plane([topic], 1))
    await world.until(lambda: plane.open_shards == {0})
    assert world.listener.calls == [("truncated", 0, 20, 3), ("opened", 0, {topic: 3})]
    assert await world.committed(topic, 0) == 3
    await world.produce(topic, 0, numbered(4, "new"))
    await world.until(lambda: world.agent.values[(topic, 0)] == numbered(4, "new"))
    await plane.committed_up_to()
    assert await world.committed(topic, 0) == 7


async def test_a_topic_created_again_under_a_running_plane_is_read_from_its_start(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 1)
    await world.produce(topic, 0, numbered(20))
    plane = await world.started(world.plane([topic], 1, disk={0}))
    await world.until(lambda: world.agent.count == 20)
    await plane.committed_up_to()
    world.listener.calls.clear()
    await world.admin.delete_topics([topic])
    await world.until(lambda: _missing(world, topic))
    assert await make_topic("facts", 1) == topic
    await world.produce(topic, 0, numbered(6, "new"))
    await world.until(lambda: world.agent.values[(topic, 0)][20:] == numbered(6, "new"), "", 30)
    assert world.listener.of("closed")
    assert world.listener.of("opened")[-1] == ("opened", 0, {topic: 0})


async def _missing(world: Any, topic: str) -> bool:
    return topic not in await world.admin.list_topics()


async def test_reopen_closes_and_opens_without_a_rebalance(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    await world.produce(topic, 0, numbered(5))
    plane = await world.started(world.plane([topic], 2))
    await world.until(lambda: world.agent.count == 5)
    await plane.committed_up_to()
    world.listener.calls.clear()
    plane.reopen(0, "disk full")
    await world.until(lambda: plane.open_shards == {0, 1} and world.listener.of("opened"))
    assert world.listener.calls == [("closed", 0), ("opened", 0, {topic: 5})]
    await world.produce(topic, 0, numbered(5))
    await world.until(lambda: world.agent.count == 10)


async def test_reopen_while_a_shard_is_being_opened_has_it_opened_once_more(world: Any, make_topic: Any) -> None:
    """What was found to be wrong meanwhile would stay so: an opening that ends well after that may not stand."""
    topic = await make_topic("facts", 1)
    world.listener.gate = asyncio.Event()
    plane = await world.started(world.plane([topic], 1))
    await world.until(lambda: len(world.listener.of("opened")) == 1)
    plane.reopen(0, "its table refused")
    world.listener.gate.set()
    await world.until(lambda: plane.open_shards == {0})
    assert [call[0] for call in world.listener.calls] == ["opened", "closed", "opened"]
    await world.produce(topic, 0, numbered(3))
    await world.until(lambda: world.agent.count == 3)
