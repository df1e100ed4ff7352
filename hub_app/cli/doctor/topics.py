"""The topics of the hub and of producers, and what this user may do with them, with groups and with transactions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from hub_app.cli.doctor.finding import Finding, broken, some
from hub_app.derived import kafka_config, topic_specs
from hub_app.domain.sources import FACTS_PREFIX
from hub_app.kafka.rights import ClusterSeen, Right, TopicSeen, group_rights, see_cluster
from hub_app.kafka.transactions import TransactionalProducer
from hub_app.settings import Settings
from hub_app.topics import TopicSpec, names, observed_source_of, source_of

OF_TOPIC: Final = (Right.DESCRIBE, Right.READ, Right.WRITE, Right.DESCRIBE_CONFIGS, Right.ALTER_CONFIGS)
OF_SOURCE: Final = (Right.DESCRIBE, Right.READ)
OF_GROUP: Final = (Right.DESCRIBE, Right.READ)
TRANSACTION_S: Final = 10
WHAT = "topics of the hub"


async def look(admin: AIOKafkaAdminClient, settings: Settings) -> ClusterSeen:
    """The hub's topics and those of producers that this user can see."""
    wanted = [spec.name for spec in topic_specs(settings)]
    there = [name for name in await admin.list_topics() if source_of(name) or observed_source_of(name)]
    return await see_cluster(admin, [*wanted, *there])


def examine_topics(seen: ClusterSeen, settings: Settings) -> list[Finding]:
    specs = topic_specs(settings)
    missing = [spec.name for spec in specs if spec.name not in seen.topics]
    findings = [Finding(WHAT, True, f"all {len(specs)} there")]
    if missing:
        repair = "start a worker, which makes them"
        if Right.CREATE not in seen.rights:
            repair = "this user may not make them: give it CREATE on the cluster or on topics of this prefix"
        findings = [broken(WHAT, f"{len(missing)} missing: {some(missing)}", repair)]
    for spec in specs:
        topic = seen.topics.get(spec.name)
        if topic is not None and not topic.hidden:
            findings += _form(spec, topic)
    sources = [name for name in seen.topics if source_of(name)]
    repair = "" if sources else f"let a producer write to {FACTS_PREFIX}<source>, or try `hub send`"
    return [*findings, Finding("producers' topics", bool(sources), f"{len(sources)} there", repair)]


def _form(spec: TopicSpec, topic: TopicSeen) -> Iterable[Finding]:
    if topic.partitions != spec.partitions:
        detail = f"has {topic.partitions} partitions, but STREAMING_HUB_SHARDS is {spec.partitions}"
        yield broken(spec.name, detail, "docs/operations.md, Wrong number of partitions")
    if topic.leaderless:
        repair = "bring back the brokers that hold them"
        yield broken(spec.name, f"{topic.leaderless} of its partitions have no leader", repair)
    elif topic.thin:
        detail = f"{topic.thin} of its partitions have replicas that are behind or gone"
        yield broken(spec.name, detail, "bring back the brokers that hold them")


async def examine_rights(admin: AIOKafkaAdminClient, seen: ClusterSeen, settings: Settings) -> list[Finding]:
    """One line where all is allowed; else one for each thing, with the rights that lack."""
    wanted: dict[str, tuple[Right, ...]] = {spec.name: OF_TOPIC for spec in topic_specs(settings)}
    wanted |= {name: OF_SOURCE for name in seen.topics if name not in wanted}
    findings = [
        finding
        for name, rights in wanted.items()
        if (topic := seen.topics.get(name)) is not None
        if (finding := _lack("topic", name, rights, topic.rights)) is not None
    ]
    groups = [f"streaming-hub{part}.{settings.env}" for part in ("", "-inbox", "-dispatch", "-dlq")]
    for group in groups:
        finding = _lack("group", group, OF_GROUP, await group_rights(admin, group))
        findings += [finding] if finding is not None else []
    findings += await _transactions(settings)
    if findings:
        return findings
    detail = f"{len(wanted)} topics read, written and described; {len(groups)} groups joined; transactions begun"
    return [Finding("permissions", True, detail)]


def _lack(kind: str, name: str, wanted: Sequence[Right], allowed: frozenset[Right]) -> Finding | None:
    lacking = ", ".join(right.name for right in wanted if right not in allowed)
    if not lacking:
        return None
    return broken("permissions", f"{kind} {name}: no {lacking}", f"give this user {lacking} on {kind} {name}")


async def _transactions(settings: Settings) -> list[Finding]:
    """Begins under an id of the owners' prefix that no owner has, so that nobody is fenced; writes nothing."""
    id = f"{names(settings.topic_prefix).prefix}owner.doctor"
    producer = TransactionalProducer(kafka_config(settings), id)
    repair = f"give this user WRITE and DESCRIBE on transactional ids that begin with {id.removesuffix('doctor')}"
    try:
        async with asyncio.timeout(TRANSACTION_S):
            await producer.start()
    except TimeoutError:
        return [broken("permissions", f"transactional id {id}: no answer", "look at the broker's transaction topic")]
    except KafkaError as error:
        return [broken("permissions", f"transactional id {id}: {type(error).__name__}", repair)]
    finally:
        await producer.close()
    return []
