"""`hub doctor`: what a deployment stands on, in the order in which it is needed; each finding says what to repair
(docs/operations.md, "The doctor")."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from hub_app.adapters.clock import SystemClock
from hub_app.adapters.resolver import SystemResolver
from hub_app.cli.doctor.cluster import examine_brokers, examine_clock
from hub_app.cli.doctor.disk import examine_disk
from hub_app.cli.doctor.finding import Finding, broken
from hub_app.cli.doctor.stored import examine_keys, examine_sinks, read_subscriptions
from hub_app.cli.doctor.topics import examine_rights, examine_topics, look
from hub_app.derived import kafka_config
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.subscription import Subscription
from hub_app.kafka.client import make_admin
from hub_app.kafka.looks import LookReader
from hub_app.kafka.rights import ClusterSeen
from hub_app.ports import Clock, Resolver
from hub_app.settings import Settings
from hub_app.topics import names

BROKER_S: Final = 10
PART_S: Final = 60


async def examine(
    settings: Settings, *, clock: Clock | None = None, resolver: Resolver | None = None, cafile: str | None = None
) -> list[Finding]:
    """Everything, whatever of it is broken. `resolver` and `cafile` are the system's when not given."""
    findings = examine_disk(settings.data_dir)
    admin = make_admin(kafka_config(settings))
    try:
        async with asyncio.timeout(BROKER_S):
            await admin.start()
            seen = await look(admin, settings)
    except Exception as error:
        await admin.close()
        return [*findings, _no_broker(settings, error), *examine_keys(settings, None)]
    try:
        findings += await _kafka(admin, seen, settings, clock or SystemClock())
    finally:
        await admin.close()
    subscriptions = await _subscriptions(settings, seen)
    findings += examine_keys(settings, subscriptions)
    if subscriptions is None:
        return findings
    if resolver is not None:
        return [*findings, *await examine_sinks(settings, subscriptions, resolver, cafile=cafile)]
    systems = SystemResolver()
    try:
        return [*findings, *await examine_sinks(settings, subscriptions, systems, cafile=cafile)]
    finally:
        await systems.close()


def _no_broker(settings: Settings, error: Exception) -> Finding:
    brokers, kind = ",".join(settings.kafka_brokers), type(error).__name__
    repair = "start it, or set STREAMING_HUB_KAFKA_BROKERS; look at TLS and SCRAM"
    if "Authentication" in kind or "Sasl" in kind:
        repair = "look at STREAMING_HUB_KAFKA_SCRAM_MECHANISM, _USERNAME and _PASSWORD"
    return broken("broker", f"{brokers}: {kind}", repair)


async def _kafka(admin: AIOKafkaAdminClient, seen: ClusterSeen, settings: Settings, clock: Clock) -> list[Finding]:
    """One part after the other; one that breaks off is a finding of its own."""
    findings: list[Finding] = []
    try:
        async with asyncio.timeout(PART_S):
            findings += await examine_brokers(admin, seen, settings)
            findings += examine_topics(seen, settings)
            findings += await examine_rights(admin, seen, settings)
    except (KafkaError, OSError) as error:
        repair = "look at the broker's log; this user may lack DESCRIBE_CONFIGS on the cluster"
        findings.append(broken("broker", f"stopped answering: {type(error).__name__}", repair))
    topic = names(settings.topic_prefix).operator
    if topic not in seen.topics:
        return [*findings, Finding("clock", True, f"not compared: {topic} is not there yet")]
    try:
        async with asyncio.timeout(BROKER_S):
            findings.append(await examine_clock(kafka_config(settings), topic, clock))
    except (KafkaError, OSError) as error:
        findings.append(broken("clock", f"{topic}: {type(error).__name__}", f"give this user WRITE on topic {topic}"))
    return findings


async def _subscriptions(settings: Settings, seen: ClusterSeen) -> list[Subscription] | None:
    """None when they cannot be read; why stands among the findings on topics and permissions."""
    topic = names(settings.topic_prefix).subscriptions
    if topic not in seen.topics:
        return []
    if seen.topics[topic].hidden:
        return None
    reader = LookReader(kafka_config(settings))
    try:
        async with asyncio.timeout(PART_S):
            return await read_subscriptions(reader, topic, seen.topics[topic].partitions)
    except (BrokerTrouble, TimeoutError):
        return None
    finally:
        await reader.on_stop()
