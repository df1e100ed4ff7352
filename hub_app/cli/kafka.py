"""`hub send`: publishes a sample fact, as a producer would."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import Final

from hub_app.derived import kafka_config
from hub_app.domain.instants import rfc3339
from hub_app.domain.sources import FACTS_PREFIX, is_source
from hub_app.kafka.client import make_producer
from hub_app.settings import Settings

BROKER_S: Final = 10


def sample_headers(source: str, tenant: str, event_type: str, *, now_ms: int) -> list[tuple[str, bytes]]:
    """A fact's headers; `event_type` is `<resource>.<event>`. ValueError for what could not be one."""
    resource, dot, event = event_type.partition(".")
    if not is_source(source):
        raise ValueError("a source is lower-case letters, digits, '_' and '-'")
    if not dot or not resource or not event or "." in event:
        raise ValueError("a type is <resource>.<event>, as in loan_application.approved")
    attributes = {
        "specversion": "1.0",
        "id": secrets.token_hex(8),
        "source": source,
        "type": f"studio.lerian.{source}.{event_type}",
        "time": rfc3339(now_ms),
        "schemaversion": "1.0.0",
        "resourcetype": resource,
        "eventtype": event,
        "tenantid": tenant,
        "datacontenttype": "application/json",
    }
    return [(f"ce-{name}", value.encode()) for name, value in attributes.items()]


async def send(settings: Settings, source: str, headers: list[tuple[str, bytes]], body: bytes) -> tuple[str, int, int]:
    """Publishes the fact as a producer would: (topic, partition, offset)."""
    topic = f"{FACTS_PREFIX}{source}"
    producer = make_producer(kafka_config(settings))
    async with asyncio.timeout(BROKER_S):
        await producer.start()
        try:
            sent = await (await producer.send(topic, body, key=dict(headers)["ce-tenantid"], headers=headers))
        finally:
            await producer.stop()
    return topic, sent.partition, sent.offset


def now_ms() -> int:
    return time.time_ns() // 1_000_000
