"""Helpers for tests on a real Kafka. Every test works below a topic prefix of its own, removed at its end."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hub_app.dev.kafka import Cluster, External

MakeTopic = Callable[..., Awaitable[str]]


@pytest.fixture
async def admin(kafka: Cluster | External) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client."""
    client = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def topic_prefix(admin: AIOKafkaAdminClient) -> AsyncIterator[str]:
    """`t<random>.`; for TOPIC_PREFIX, topic names, groups. Topics below it are deleted at the end of the test."""
    prefix = f"t{secrets.token_hex(4)}."
    yield prefix
    if mine := [name for name in await admin.list_topics() if name.startswith(prefix)]:
        await admin.delete_topics(mine)


@pytest.fixture
def make_topic(admin: AIOKafkaAdminClient, topic_prefix: str) -> MakeTopic:
    """`await make_topic("facts", partitions=3, config={"cleanup.policy": "compact"})` -> the full name."""

    async def make(name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        full = topic_prefix + name
        answer = await admin.create_topics([NewTopic(full, partitions, 1, topic_configs=dict(config or {}))])
        errors = [error for error in answer.topic_errors if error[1] != 0]  # returned, not raised
        assert not errors, errors
        return full

    return make
