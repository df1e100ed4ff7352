"""Topics that appear while a static member is away: it comes back to its old assignment, and reads them as well."""

from __future__ import annotations

import time
from typing import Any

import pytest

from hub_app.kafka import coverage
from hub_app.kafka.limits import Limits

N = 2
SECONDS = 8.0


def values(count: int) -> list[bytes]:
    return [b"%d" % i for i in range(count)]


def one(world: Any, kind: str, prefix: str, **options: Any) -> Any:
    """A static member over every topic below the prefix whose name begins with `kind`."""
    form = prefix + kind
    options = {"instance_id": "w1", **options}
    if kind == "source":
        return world.patterns(form.replace(".", r"\.") + ".*", **options)
    return world.plane([], N, also=lambda topic: topic.startswith(form), **options)


@pytest.mark.parametrize("kind", ["source", "retry"])
async def test_a_topic_that_came_while_a_static_member_was_away_is_read(
    world: Any, make_topic: Any, topic_prefix: str, kind: str
) -> None:
    old = await make_topic(f"{kind}.old", N)
    await world.produce(old, 0, values(3))
    member = await world.started(one(world, kind, topic_prefix))
    await world.until(lambda: world.agent.count == 3)
    generation = member._generation
    await world.stop(member)
    new = await make_topic(f"{kind}.new", N)
    for partition in range(N):
        await world.produce(new, partition, values(5))
    member = await world.started(one(world, kind, topic_prefix))
    began = time.monotonic()
    await world.until(lambda: sum(len(world.agent.values[new, p]) for p in range(N)) == 5 * N)
    assert time.monotonic() - began < SECONDS
    assert member._generation - generation == 1, "one rebalance, no more"
    await world.until(lambda: not world.standing.reasons())


async def test_a_topic_with_more_partitions_than_before_is_read_whole(
    world: Any, make_topic: Any, topic_prefix: str
) -> None:
    """Two static members; the leader is one that made no assignment since it started."""
    topic = await make_topic("source.a", N)
    members = [
        await world.started(one(world, "source", topic_prefix, instance_id=f"w{n}", name=f"ingest{n}"))
        for n in range(2)
    ]
    await world.produce(topic, 0, values(1))
    await world.until(lambda: world.agent.count == 1)
    for member in members:
        await world.stop(member)
    await world.more_partitions(topic, 2 * N)
    for partition in range(N, 2 * N):
        await world.produce(topic, partition, values(2))
    for n in range(2):
        await world.started(one(world, "source", topic_prefix, instance_id=f"w{n}", name=f"ingest{n}"))
    await world.until(lambda: world.agent.count == 1 + 2 * N, "all partitions are read", SECONDS)


async def test_what_no_rebalance_mends_is_shown_and_does_not_start_storms(
    world: Any, make_topic: Any, topic_prefix: str
) -> None:
    """The group says that one partition is nobody's, whatever is done."""
    topic = await make_topic("source.a", N)
    member = one(world, "source", topic_prefix, limits=Limits(session_timeout_ms=10_000))
    seen: list[float] = []

    async def look(consumer: Any, group: str) -> coverage.Group | None:
        found = await coverage.look_at(consumer, group)
        seen.append(time.monotonic())
        return None if found is None else found._replace(given=found.given - {(topic, 1)})

    member._coverage._look_at = look
    await world.started(member)
    await world.until(lambda: "ingest/coverage" in world.standing.reasons())
    reason = world.standing.reasons()["ingest/coverage"]
    assert (reason.text, reason.blocks) == (f"read by nobody: {topic}/1", True)
    before = member.rebalances
    began = time.monotonic()
    await world.until(lambda: time.monotonic() - began > 4)
    assert member.rebalances - before <= 1
