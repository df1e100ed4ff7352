"""`hub send` and `hub doctor`: the commands that speak to Kafka themselves."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import time
from typing import Final, NamedTuple

from hub_app.derived import kafka_config, topic_specs
from hub_app.domain.instants import rfc3339
from hub_app.domain.sources import FACTS_PREFIX, is_source
from hub_app.kafka.client import make_admin, make_producer
from hub_app.settings import Settings

BROKER_S: Final = 10
DISK_FREE_BYTES_MIN: Final = 1 << 30


class Finding(NamedTuple):
    """One thing looked at. `repair` is what to do when it is not well; empty when it is."""

    what: str
    well: bool
    detail: str
    repair: str = ""


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


async def examine(settings: Settings) -> list[Finding]:
    """Everything that a deployment stands on, in the order in which it is needed."""
    return [_keys(settings), _disk(settings), *await _broker(settings)]


def _keys(settings: Settings) -> Finding:
    if settings.keks:
        return Finding("key for secrets", True, f"{len(settings.keks)} named")
    return Finding("key for secrets", False, "none", "set STREAMING_HUB_KEK_REF (docs/settings.md, Keys)")


def _disk(settings: Settings) -> Finding:
    folder = settings.data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    detail = f"{settings.data_dir}: {free >> 20} MiB free"
    if not os.access(folder, os.W_OK):
        return Finding("disk", False, f"{folder} cannot be written", "give it to the hub's user, or set DATA_DIR")
    if free < DISK_FREE_BYTES_MIN:
        return Finding("disk", False, detail, "make room, or set DATA_DIR to a larger disk")
    return Finding("disk", True, detail)


async def _broker(settings: Settings) -> list[Finding]:
    brokers = ",".join(settings.kafka_brokers)
    admin = make_admin(kafka_config(settings))
    try:
        async with asyncio.timeout(BROKER_S):
            await admin.start()
            there = set(await admin.list_topics())
    except Exception as error:
        detail = f"{brokers}: {type(error).__name__}"
        return [Finding("broker", False, detail, "start it, or set STREAMING_HUB_KAFKA_BROKERS; look at TLS and SCRAM")]
    finally:
        await admin.close()
    missing = [spec.name for spec in topic_specs(settings) if spec.name not in there]
    sources = [name for name in there if name.startswith(FACTS_PREFIX)]
    topics = Finding("topics of the hub", not missing, "all there")
    if missing:
        repair = "start a worker, which makes them; if it cannot, give its user CREATE on the cluster"
        topics = Finding("topics of the hub", False, f"{len(missing)} missing, the first: {missing[0]}", repair)
    repair = "" if sources else f"let a producer write to {FACTS_PREFIX}<source>, or try `hub send`"
    return [
        Finding("broker", True, brokers),
        topics,
        Finding("producers' topics", bool(sources), f"{len(sources)} there", repair),
    ]


def now_ms() -> int:
    return time.time_ns() // 1_000_000
