"""Connections that broke a moment ago, and a member whose client has died inside."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError, KafkaError

from hub_app.kafka.client import KafkaConfig, make_admin, make_consumer, make_producer
from hub_app.kafka.limits import Limits


async def broken(client: Any) -> None:
    """Its connections are closed, and nobody has noticed yet: as between a reset and the reader's turn."""
    assert client._conns
    for connection in client._conns.values():
        connection._read_task.cancel()
        connection._writer.transport.abort()
    await asyncio.sleep(0.05)
    for connection in client._conns.values():
        connection._reader = asyncio.StreamReader()
        assert connection.connected()


async def has_coordinator(client: Any) -> bool:
    try:
        return await client.coordinator_lookup(0, "any") is not None
    except KafkaError:
        return False


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
async def test_a_request_over_a_broken_connection_is_a_broken_connection(world: Any, kind: str) -> None:
    config: KafkaConfig = world.config
    made: Any = {"consumer": make_consumer, "producer": make_producer, "admin": make_admin}[kind](config)
    await made.start()
    try:
        client = made.client if kind == "producer" else made._client
        [node, *_] = [broker.nodeId for broker in client.cluster.brokers()]
        await world.until(lambda: has_coordinator(client))  # a new broker has none for a moment
        await broken(client)
        with pytest.raises(KafkaConnectionError, match="handler is closed"):
            await client.coordinator_lookup(0, "any")
        assert await client.coordinator_lookup(0, "any") == node
        await asyncio.wait_for(client.force_metadata_update(), 10)
    finally:
        await (made.close() if kind == "admin" else made.stop())


async def test_without_the_guard_whoever_keeps_metadata_dies(world: Any) -> None:
    """Why there is one. When this fails, aiokafka or uvloop have changed, and the guard can go."""
    consumer = AIOKafkaConsumer(bootstrap_servers=world.config.brokers, metadata_max_age_ms=500)
    await consumer.start()
    try:
        assert await consumer._client.ready(1)
        await broken(consumer._client)
        [died] = (await asyncio.wait([consumer._client._sync_task], timeout=10))[0]
        assert isinstance(died.exception(), RuntimeError)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer._client.force_metadata_update(), 1)
    finally:
        with pytest.raises(RuntimeError):
            await consumer.stop()
        for connection in list(consumer._client._conns.values()):
            connection.close()


async def test_a_member_without_contact_begins_anew(world: Any, make_topic: Any) -> None:
    """Whatever its client may have died of: it has all its requests to the group unanswered here."""
    topic = await make_topic("facts", 2)
    plane = await world.started(world.plane([topic], 2, limits=Limits(no_contact_ms=1_000, session_timeout_ms=6_000)))
    await world.until(lambda: plane.open_shards == {0, 1})
    first = plane._partitions.consumer

    async def unanswered(_request: Any) -> None:
        await asyncio.Event().wait()

    first._coordinator._send_req = unanswered
    await world.until(lambda: plane._partitions.consumer not in (None, first), seconds=40)
    await world.until(lambda: plane.lease.valid(world.clock.monotonic_ms()) and plane.open_shards == {0, 1}, seconds=30)
    await world.produce(topic, 0, [b"1"])
    await world.until(lambda: world.agent.count == 1)


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
async def test_a_client_closes_although_its_metadata_task_lost_a_cancellation(world: Any, kind: str) -> None:
    """aiokafka cancels it once and waits for its end: a worker that looked at its topics just then never started."""
    config: KafkaConfig = world.config
    made: Any = {"consumer": make_consumer, "producer": make_producer, "admin": make_admin}[kind](config)
    await made.start()
    client = made.client if kind == "producer" else made._client
    keeps = client._sync_task
    answer = asyncio.get_running_loop().create_future()

    async def update() -> None:
        await asyncio.wait_for(answer, 60)
        await keeps

    client._sync_task = asyncio.create_task(update())
    await asyncio.sleep(0.01)
    answer.set_result(None)
    async with asyncio.timeout(10):
        await (made.close() if kind == "admin" else made.stop())
    assert keeps.cancelled()
