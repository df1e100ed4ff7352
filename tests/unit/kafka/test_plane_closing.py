"""Closing a shard whose opening does not hear that it is cancelled."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.plane import Shard, ShardPlane
from hub_app.kafka.standing import Standing
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy


class Listener:
    def __init__(self) -> None:
        self.closed_shards: list[int] = []

    async def closed(self, shard: int) -> None:
        self.closed_shards.append(shard)


async def test_an_opening_that_loses_its_cancellation_does_not_hold_the_plane() -> None:
    """As `asyncio.wait_for` of Python 3.11 does when it comes as its work ends: the opening went on, and waited for the
    lock of whoever waited for it."""
    listener, clock = Listener(), FakeClock()
    plane = ShardPlane(
        KafkaConfig(brokers="127.0.0.1:1"),
        name="dispatch",
        group="g",
        topics=["t"],
        shards=1,
        url="http://127.0.0.1",
        listener=cast("Any", listener),
        deliver=cast("Any", None),
        commit="manual",
        shards_on_disk=list,
        standing=Standing(clock),
        clock=clock,
        entropy=FakeEntropy(),
    )
    shard = Shard(frozenset({"t"}))

    async def opening() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await plane._install(0, shard, {}, {})

    shard.opening = asyncio.create_task(opening())
    await asyncio.sleep(0)
    async with asyncio.timeout(5), plane._calls:
        await plane._close(0, shard)
    assert (listener.closed_shards, shard.is_open, shard.opening) == ([0], False, None)
