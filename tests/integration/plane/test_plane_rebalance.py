"""Several members: shards go together, stay where they are, and nothing is lost on the way."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from hub_app.kafka.assignor import OwnerReader, read_owners
from hub_app.kafka.batch import Batch
from hub_app.kafka.limits import Limits

N = 6


def numbered(count: int, tag: str = "") -> list[bytes]:
    return [b"%s%d" % (tag.encode(), i) for i in range(count)]


class Second:
    """Another member's listener and agent, beside the world's own."""

    def __init__(self, world: Any) -> None:
        self.listener = type(world.listener)()
        self.agent = type(world.agent)()

    def plane(self, world: Any, topics: list[str], shards: int, **options: Any) -> Any:
        options = {"listener": self.listener, "deliver": self.agent.deliver, "url": "http://w2", **options}
        return world.plane(topics, shards, name="second", **options)


async def test_two_members_share_and_kept_shards_are_only_resumed(world: Any, make_topic: Any) -> None:
    topics = [await make_topic(t, N) for t in ("deliveries", "retry.1m")]
    for t in topics:
        for p in range(N):
            await world.produce(t, p, numbered(50, f"{t}{p}"))
    first = await world.started(world.plane(topics, N))
    await world.until(lambda: world.agent.count == 2 * N * 50)
    world.listener.calls.clear()
    other = Second(world)
    second = await world.started(other.plane(world, topics, N))
    await world.until(lambda: len(second.open_shards) == N // 2)
    await world.until(lambda: len(first.open_shards) == N // 2)
    assert first.open_shards | second.open_shards == set(range(N))
    kept = first.open_shards
    await world.until(lambda: len(world.listener.of("closed")) == N // 2)
    assert world.listener.calls[:2] == [("suspended", frozenset(range(N))), ("resumed", kept)]
    assert {c[1] for c in world.listener.of("closed")} == second.open_shards
    assert world.listener.of("opened") == []
    assert other.listener.of("opened") == [
        ("opened", c[1], dict.fromkeys(topics, 50)) for c in other.listener.of("opened")
    ]
    owners = dict.fromkeys(kept, "http://w1") | dict.fromkeys(second.open_shards, "http://w2")
    assert first.owners == second.owners == owners
    assert await read_owners(world.admin, world.prefix + "group") == owners
    reader = OwnerReader(world.admin, world.prefix + "group", now_ms=world.clock.monotonic_ms)
    assert await reader.owners() == owners
    for t in topics:
        for p in range(N):
            await world.produce(t, p, numbered(50, "again"))
    await world.until(lambda: world.agent.count + other.agent.count == 2 * N * 100)
    await world.stop(second)
    await world.until(lambda: first.open_shards == set(range(N)))
    assert {c[1] for c in world.listener.of("opened")} == set(range(N)) - kept


async def test_a_batch_in_flight_survives_a_rebalance_that_keeps_its_shard(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    held: list[Batch] = []

    async def answer(batch: Batch) -> None:
        held.append(batch)

    world.agent.answer = answer
    for p in range(2):
        await world.produce(topic, p, numbered(10))
    first = await world.started(world.plane([topic], 2))
    await world.until(lambda: len(held) == 2)
    other = Second(world)
    began = time.monotonic()
    second = await world.started(other.plane(world, [topic], 2))
    await world.until(lambda: len(second.open_shards) == 1)
    assert time.monotonic() - began < 10, "an agent that does not answer holds a rebalance up only for so long"
    kept = next(iter(first.open_shards))
    for batch in held:
        assert batch.live is (batch.partition == kept)
        await world.agent.finish(batch)
    await first.committed_up_to()
    await world.until(lambda: other.agent.count == 10, "the new owner reads what was not committed")
    assert await world.committed(topic, kept) == 10
    assert len(world.agent.values[(topic, kept)]) == 10


async def test_what_is_done_is_committed_in_the_revoke(world: Any, make_topic: Any) -> None:
    """A batch that is answered while the group waits is committed by its old owner: the new one starts behind it."""
    topic = await make_topic("facts", 2)
    held: list[Batch] = []

    async def answer(batch: Batch) -> None:
        held.append(batch)

    world.agent.answer = answer
    for p in range(2):
        await world.produce(topic, p, numbered(10))
    first = await world.started(world.plane([topic], 2))
    await world.until(lambda: len(held) == 2)
    other = Second(world)
    second = await world.started(other.plane(world, [topic], 2))
    await world.until(lambda: world.listener.of("suspended"))
    for batch in held:
        batch.done()
    await world.until(lambda: len(second.open_shards) == 1 and len(first.open_shards) == 1)
    assert [call[2] for call in other.listener.of("opened")] == [{topic: 10}]
    assert other.agent.count == 0


async def test_members_come_and_go_under_load_and_nothing_is_lost(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    agents = [world.agent]
    enough = asyncio.Event()
    rounds = 0

    async def feed() -> None:
        nonlocal rounds
        while not enough.is_set():
            for p in range(N):
                await world.produce(topic, p, numbered(50, f"{rounds}-{p}-"))
            rounds += 1

    first = await world.started(world.plane([topic], N, limits=Limits(batch_records_max=20)))
    feeding = asyncio.create_task(feed())
    for _ in range(3):
        other = Second(world)
        agents.append(other.agent)
        second = await world.started(other.plane(world, [topic], N, limits=Limits(batch_records_max=20)))
        await world.until(lambda s=second: len(s.open_shards) == N // 2)
        await world.until(lambda a=other.agent: a.count > 20)
        await world.stop(second)
    enough.set()
    await feeding

    def seen(p: int) -> set[bytes]:
        return {v for a in agents for v in a.values[(topic, p)]}

    await world.until(lambda: all(len(seen(p)) == rounds * 50 for p in range(N)))
    await first.committed_up_to()
    assert [await world.committed(topic, p) for p in range(N)] == [rounds * 50] * N


async def test_an_opening_that_takes_long_is_cancelled_when_its_shard_leaves(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    world.listener.gate = asyncio.Event()
    first = await world.started(world.plane([topic], 2))
    await world.until(lambda: len(world.listener.of("opened")) == 2)
    assert world.standing.reasons()["plane/0"].text == "is being opened"
    other = Second(world)
    second = await world.started(other.plane(world, [topic], 2))
    await world.until(lambda: len(second.open_shards) == 1)
    left = next(iter(second.open_shards))
    await world.until(lambda: world.listener.of("closed") == [("closed", left)])
    world.listener.gate.set()
    await world.until(lambda: first.open_shards == {1 - left})
    assert len(world.listener.of("opened")) == 2
    assert not [n for n in world.standing.reasons() if n.startswith("plane")]


async def test_a_topic_that_appears_is_read_by_shards_of_all_members(world: Any, make_topic: Any) -> None:
    topic = await make_topic("deliveries", 2)
    prefix = world.prefix + "retry."
    also = {"also": lambda t: t.startswith(prefix)}
    first = await world.started(world.plane([topic], 2, **also))
    other = Second(world)
    second = await world.started(other.plane(world, [topic], 2, **also))
    await world.until(lambda: len(first.open_shards) == len(second.open_shards) == 1)
    new = await make_topic("retry.5m", 2)
    for p in range(2):
        await world.produce(new, p, numbered(10))
    await world.until(lambda: world.agent.count + other.agent.count == 20)
    assert world.agent.count == other.agent.count == 10


async def test_extend_reads_another_topic(world: Any, make_topic: Any) -> None:
    topics = [await make_topic(t, 1) for t in ("a", "b")]
    for t in topics:
        await world.produce(t, 0, numbered(10))
    plane = await world.started(world.plane(topics[:1], 1))
    await world.until(lambda: world.agent.count == 10)
    plane.extend(topics[1:])
    await world.until(lambda: world.agent.count == 20)
    assert world.agent.values[(topics[1], 0)] == numbered(10)


async def test_a_static_member_that_restarts_disturbs_nobody(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 4)
    first = await world.started(world.plane([topic], 4, instance_id="w-1"))
    other = Second(world)
    second = await world.started(other.plane(world, [topic], 4, instance_id="w-2"))
    await world.until(lambda: len(first.open_shards) == len(second.open_shards) == 2)
    mine = second.open_shards
    await world.stop(second)
    world.listener.calls.clear()
    again = Second(world)
    third = await world.started(again.plane(world, [topic], 4, instance_id="w-2"))
    await world.until(lambda: third.open_shards == mine)
    assert world.listener.calls == []
    assert third.lease.valid(world.clock.monotonic_ms())


async def test_a_second_process_with_the_same_id_ends_the_first(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    first = await world.started(world.plane([topic], 2, instance_id="w-1"))
    await world.until(lambda: len(first.open_shards) == 2)
    other = Second(world)
    second = await world.started(other.plane(world, [topic], 2, instance_id="w-1"))
    await world.until(lambda: first.fenced and not first.open_shards)
    assert "INSTANCE_ID w-1" in world.standing.reasons()["plane/instance"].text
    await world.until(lambda: len(second.open_shards) == 2)
    await world.produce(topic, 0, numbered(5))
    await world.until(lambda: other.agent.count == 5)
    assert not first.lease.valid(world.clock.monotonic_ms())
    assert not second.fenced
