"""What comes back to a member was another's meanwhile, unless the member was in every generation of its group."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.protocol.group import HeartbeatRequest

N = 2


def numbered(count: int, tag: str) -> list[bytes]:
    return [b"%s%d" % (tag.encode(), i) for i in range(count)]


async def cut_off(plane: Any, seconds: float) -> None:
    """The member's heartbeats do not go out for so long: the group goes on without it."""
    coordinator = plane._partitions.consumer._coordinator
    send = coordinator._send_req
    over = asyncio.get_running_loop().time() + seconds

    async def late(request: Any) -> Any:
        if isinstance(request, HeartbeatRequest):
            await asyncio.sleep(max(0.0, over - asyncio.get_running_loop().time()))
        return await send(request)

    coordinator._send_req = late


async def test_a_member_that_was_expelled_opens_its_shards_anew(world: Any, make_topic: Any) -> None:
    """As the only member: nobody else wanted them, but it cannot know."""
    topic = await make_topic("facts", N)
    await world.produce(topic, 0, numbered(5, "a"))
    plane = await world.started(world.plane([topic], N))
    await world.until(lambda: plane.open_shards == {0, 1} and world.agent.count == 5)
    await plane.committed_up_to()
    world.listener.calls.clear()
    await cut_off(plane, 12)
    await world.until(lambda: len(world.listener.of("opened")) == N, seconds=40)
    assert not world.listener.of("resumed")
    assert [call[1] for call in world.listener.of("closed")] == [0, 1]
    assert ("opened", 0, {topic: 5}) in world.listener.calls
    await world.produce(topic, 0, numbered(5, "b"))
    await world.until(lambda: world.agent.values[topic, 0] == [*numbered(5, "a"), *numbered(5, "b")])


async def test_a_member_of_every_generation_is_resumed(world: Any, make_topic: Any) -> None:
    topic = await make_topic("facts", N)
    plane = await world.started(world.plane([topic], N))
    await world.until(lambda: plane.open_shards == {0, 1})
    world.listener.calls.clear()
    other = await world.started(world.plane([topic], N, url="http://w2"))
    await world.until(lambda: other.open_shards and len(plane.open_shards) == 1, seconds=30)
    assert len(world.listener.of("resumed")) == 1
    await world.stop(other)
    await world.until(lambda: plane.open_shards == {0, 1}, seconds=30)
    assert len(world.listener.of("resumed")) == 2
