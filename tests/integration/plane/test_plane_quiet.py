"""How often a plane asks: seldom while everything rests, often as soon as something could be kept waiting by it."""

from __future__ import annotations

from typing import Any

from hub_app.kafka.limits import Limits

LIMITS = Limits()


def wait_ms(plane: Any) -> Any:
    return plane._partitions.consumer._fetcher._fetch_max_wait_ms


async def test_a_plane_at_rest_waits_long_and_one_at_work_does_not(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    seen: list[int] = []

    async def answer(batch: Any) -> None:
        seen.append(wait_ms(plane))
        batch.done()

    world.agent.answer = answer
    plane = await world.started(world.plane([topic], 2, limits=LIMITS))
    await world.until(lambda: plane.open_shards == {0, 1})
    assert wait_ms(plane) == LIMITS.fetch_wait_ms
    await world.until(lambda: wait_ms(plane) == LIMITS.quiet_wait_ms)
    await world.produce(topic, 0, [b"a"])
    await world.until(lambda: seen)
    assert seen == [LIMITS.fetch_wait_ms], "before the next fetch is sent"
    await world.until(lambda: wait_ms(plane) == LIMITS.quiet_wait_ms)


async def test_a_plane_that_holds_a_shard_back_stays_awake(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", 2)
    plane = await world.started(world.plane([topic], 2, limits=LIMITS))
    await world.until(lambda: plane.open_shards == {0, 1})
    await world.until(lambda: wait_ms(plane) == LIMITS.quiet_wait_ms)
    plane.pause(0, "full")
    await world.until(lambda: wait_ms(plane) == LIMITS.fetch_wait_ms)
    plane.resume(0, "full")
    await world.until(lambda: wait_ms(plane) == LIMITS.quiet_wait_ms)
