"""Topics as they must be: created when missing, checked when present."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import NoError, NotControllerError, TopicAlreadyExistsError, for_code

from hub_app.kafka.client import KafkaConfig, make_admin

OFFSETS_RETENTION_MINUTES_MIN = 20_160
CREATE_TIMEOUT_MS = 30_000
VISIBLE_LOOKS = 50
VISIBLE_LOOK_S = 0.1
# Sources of a described config: set on the topic itself; everything else is somebody's default.
DYNAMIC_TOPIC_CONFIG = 1


class TopicSpec(Protocol):
    """What `hub_app.topics` describes."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def replication(self) -> int: ...
    @property
    def config(self) -> Mapping[str, str]: ...


class Problem(NamedTuple):
    """One line for people. `fatal`: the worker must not start; else a warning."""

    fatal: bool
    subject: str
    text: str


class Provisioned(NamedTuple):
    """`cluster_id` of the broker, names created now, configs altered (`topic.key`), problems found."""

    cluster_id: str
    created: Sequence[str]
    altered: Sequence[str]
    problems: Sequence[Problem]


async def provision(config: KafkaConfig, specs: Sequence[TopicSpec], *, local: bool) -> Provisioned:
    """Idempotent, safe to run by several workers at once. A topic with another number of partitions stops it before
    anything is made: what a wrong setting would create, the right one could not use. Raises only when the broker
    cannot be reached."""
    admin = make_admin(config)
    try:
        await admin.start()
        cluster = await admin.describe_cluster()
        existing = set(await admin.list_topics())
        cluster_id = str(cluster.get("cluster_id") or "")
        problems = await _check_partitions(admin, [s for s in specs if s.name in existing])
        if problems:
            return Provisioned(cluster_id, (), (), problems)
        created, problems = await _create(admin, [s for s in specs if s.name not in existing])
        broken = {p.subject for p in problems}
        problems += await _check_partitions(
            admin, [s for s in specs if s.name not in existing and s.name not in broken]
        )
        # Also those that somebody created a moment ago, which not every broker had told of.
        altered, trouble = await _align(admin, [s for s in specs if s.name not in broken.union(created)])
        problems += trouble
        problems += await check_brokers(admin, [b["node_id"] for b in cluster["brokers"]], local=local)
        return Provisioned(cluster_id, created, altered, problems)
    finally:
        await admin.close()


async def _create(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> tuple[list[str], list[Problem]]:
    """create_topics returns its errors. One that another worker created a moment ago is no error."""
    if not specs:
        return [], []
    new = [NewTopic(s.name, s.partitions, s.replication, topic_configs=dict(s.config)) for s in specs]
    for attempt in range(3):
        response = await admin.create_topics(new, timeout_ms=CREATE_TIMEOUT_MS)
        codes = {name: (for_code(code), text) for name, code, text in response.topic_errors}
        if attempt < 2 and any(error is NotControllerError for error, _ in codes.values()):
            await asyncio.sleep(1)
            continue
        break
    created = [name for name, (error, _) in codes.items() if error is NoError]
    problems = [
        Problem(True, name, f"cannot be created: {text or error.__name__}")
        for name, (error, text) in codes.items()
        if error not in (NoError, TopicAlreadyExistsError)
    ]
    return created, problems


async def _check_partitions(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> list[Problem]:
    """New topics take a moment until every broker tells of them."""
    by_name = {s.name: s for s in specs}
    if not by_name:
        return []
    counts: dict[str, int] = {}
    for _ in range(VISIBLE_LOOKS):
        described = await admin.describe_topics(list(by_name))
        counts = {t["topic"]: len(t["partitions"]) for t in described if not t["error_code"]}
        if len(counts) == len(by_name):
            break
        await asyncio.sleep(VISIBLE_LOOK_S)
    problems = [Problem(True, name, "does not exist after its creation") for name in by_name if name not in counts]
    problems += [
        Problem(True, name, f"has {count} partitions, but {by_name[name].partitions} are wanted")
        for name, count in counts.items()
        if count != by_name[name].partitions
    ]
    return problems


async def _align(admin: AIOKafkaAdminClient, specs: Sequence[TopicSpec]) -> tuple[list[str], list[Problem]]:
    """Sets what differs. alter_configs resets every key it is not given, so what others set on the topic is given
    along."""
    if not specs:
        return [], []
    resources = [ConfigResource(ConfigResourceType.TOPIC, s.name) for s in specs]
    described = await _described(admin, resources)
    for _ in range(VISIBLE_LOOKS):
        if len(described) == len(resources):
            break
        await asyncio.sleep(VISIBLE_LOOK_S)  # somebody has created it a moment ago
        described = await _described(admin, resources)
    changes, altered, problems = [], [], []
    for spec in specs:
        present = described.get(spec.name)
        if present is None:
            problems.append(Problem(False, spec.name, "its configuration cannot be read"))
            continue
        drift = [key for key, value in spec.config.items() if present.get(key, (None, 0))[0] != value]
        if drift:
            own = {k: v for k, (v, source) in present.items() if source == DYNAMIC_TOPIC_CONFIG and v is not None}
            changes.append(ConfigResource(ConfigResourceType.TOPIC, spec.name, {**own, **spec.config}))
            altered += [f"{spec.name}.{key}" for key in drift]
    if changes:
        for response in await admin.alter_configs(changes):
            for code, text, _, name in response.resources:
                if for_code(code) is not NoError:
                    altered = [a for a in altered if not a.startswith(f"{name}.")]
                    problems.append(Problem(False, name, f"its configuration differs and cannot be set: {text}"))
    return altered, problems


async def check_brokers(admin: AIOKafkaAdminClient, nodes: Sequence[int], *, local: bool) -> list[Problem]:
    """Committed offsets must outlive a week of the whole fleet being down, and a margin."""
    problems = []
    for node in nodes:
        described = await _described(admin, [ConfigResource(ConfigResourceType.BROKER, str(node))])
        value, _ = described.get(str(node), {}).get("offsets.retention.minutes", (None, 0))
        if value is not None and int(value) < OFFSETS_RETENTION_MINUTES_MIN:
            text = f"offsets.retention.minutes is {value}; at least {OFFSETS_RETENTION_MINUTES_MIN} are needed"
            problems.append(Problem(not local, f"broker {node}", text))
    return problems


async def _described(
    admin: AIOKafkaAdminClient, resources: Sequence[ConfigResource]
) -> Mapping[str, Mapping[str, tuple[str | None, int]]]:
    """resource name -> config key -> (value, source)."""
    found: dict[str, dict[str, tuple[str | None, int]]] = {}
    for response in await admin.describe_configs(list(resources)):
        for resource in response.to_object()["resources"]:
            if for_code(resource["error_code"]) is NoError:
                found[resource["resource_name"]] = {
                    entry["config_names"]: (entry["config_value"], entry.get("config_source", 0))
                    for entry in _entries(resource)
                }
    return found


def _entries(resource: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    entries: Sequence[Mapping[str, Any]] = resource["config_entries"]
    return entries
