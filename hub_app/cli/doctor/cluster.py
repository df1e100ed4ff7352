"""The brokers: reached, set as the hub needs them, and of one time with this machine."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient

from hub_app.cli.doctor.finding import Finding, broken
from hub_app.kafka.client import KafkaConfig, make_producer
from hub_app.kafka.provisioning import check_brokers
from hub_app.kafka.rights import ClusterSeen
from hub_app.ports import Clock
from hub_app.settings import Settings

SKEW_MS_MAX: Final = 2_000
PROBE_KEY: Final = b"\0doctor"
"""No tenant can have this name, so no route ever shows the record."""


async def examine_brokers(admin: AIOKafkaAdminClient, seen: ClusterSeen, settings: Settings) -> list[Finding]:
    count = len(seen.brokers)
    findings = [Finding("broker", True, f"{count} at {', '.join(seen.brokers)}")]
    if count < settings.topic_replication:
        detail = f"{count} brokers, but STREAMING_HUB_TOPIC_REPLICATION is {settings.topic_replication}"
        findings = [broken("broker", detail, "add brokers, or lower the setting before the first start")]
    cluster = await admin.describe_cluster()
    nodes = [row["node_id"] for row in cluster["brokers"]]
    problems = await check_brokers(admin, nodes, local=settings.is_local)
    for problem in problems:
        repair = "set it in the brokers' configuration and restart them"
        findings.append(Finding(problem.subject, not problem.fatal, problem.text, repair))
    if not problems:
        findings.append(Finding("broker's settings", True, "committed offsets are kept for long enough"))
    return findings


async def examine_clock(config: KafkaConfig, topic: str, clock: Clock) -> Finding:
    """Writes one record, which nobody reads, to a topic of broker time, and compares. Raises what Kafka answered."""
    producer = make_producer(replace(config, client_id="streaming-hub-doctor"))
    await producer.start()
    try:
        await producer.partitions_for(topic)
        began_ms, began = clock.now_ms(), clock.monotonic_ms()
        sent = await (await producer.send(topic, b"", key=PROBE_KEY, partition=0))
        took_ms = clock.monotonic_ms() - began
    finally:
        await producer.stop()
    return judge_clock(began_ms, took_ms, sent.timestamp)


def judge_clock(began_ms: int, took_ms: int, broker_ms: int) -> Finding:
    """The broker's time lies between sending and acknowledgement, if both clocks are right."""
    ahead_ms = broker_ms - (began_ms + took_ms // 2)
    detail = f"the broker's is {abs(ahead_ms)} ms {'ahead of' if ahead_ms >= 0 else 'behind'} this machine's"
    if abs(ahead_ms) > SKEW_MS_MAX + took_ms // 2:
        repair = "let both follow the same time (NTP): due times are this machine's, deduplication goes by the broker's"
        return broken("clock", detail, repair)
    return Finding("clock", True, f"{detail}, measured within {took_ms} ms")
