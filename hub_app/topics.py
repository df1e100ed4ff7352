"""Topics as data: what they are called, how they are kept, and which partition a key belongs to (docs/topics.md)."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from hub_app.domain.limits import (
    DAY_MS,
    HOUR_MS,
    MESSAGE_BYTES_MAX,
    OUTAGE_MS_MAX,
    PARTITIONS_MAX,
    SEGMENT_MS,
    SOURCE_BYTES_MAX,
    SUSPENDED_MS_MAX,
    TOMBSTONE_MS,
    TOPIC_NAME_BYTES_MAX,
)
from hub_app.domain.sources import FACTS_PREFIX, observed_source_of, source_of

__all__ = [
    "INGEST_PATTERN",
    "OBSERVER_PATTERN",
    "Names",
    "Retentions",
    "TopicSpec",
    "internal_topics",
    "names",
    "observed_source_of",
    "partition_for",
    "prefix_problem",
    "retention_problems",
    "source_of",
    "tier_name",
    "tiers",
]

# -- producers' topics -------------------------------------------------------------------------------------------------
# For Kafka clients, which use `re.match`: anchored at both ends, length rule included. `source_of` is the rule itself.
_SOURCE = rf"[a-z0-9][a-z0-9_-]{{0,{SOURCE_BYTES_MAX - 1}}}"
INGEST_PATTERN = rf"^{re.escape(FACTS_PREFIX)}{_SOURCE}\Z"
OBSERVER_PATTERN = rf"^{re.escape(FACTS_PREFIX)}{_SOURCE}\.dlq\Z"

# -- the hub's own topics ----------------------------------------------------------------------------------------------
_PREFIX = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]*[._-]", re.ASCII)
_RETRY = re.compile(r"[a-z0-9]+", re.ASCII)
_UNITS = ((DAY_MS, "d"), (HOUR_MS, "h"), (60_000, "m"), (1_000, "s"), (1, "ms"))


class Names(NamedTuple):
    """Full names of one deployment's topics; make it with `names(prefix)`."""

    prefix: str
    facts: str
    quarantine: str
    deliveries: str
    parked: str
    attempts: str
    dlq: str
    queue: str
    subscriptions: str
    keys: str
    operations: str
    health: str
    meta: str
    observations: str
    operator: str

    def retry(self, tier: str) -> str:
        """Topic of a tier: `hub.retry.10s`."""
        return f"{self.prefix}retry.{tier}"

    def is_retry(self, topic: str) -> bool:
        """Whether `topic` is one that dispatch reads beside `deliveries`: every tier, known to this curve or not, and
        the parked one. So a changed curve strands nothing."""
        head = f"{self.prefix}retry."
        return topic.startswith(head) and _RETRY.fullmatch(topic, len(head)) is not None


def names(prefix: str) -> Names:
    """The names under `prefix` (`hub.`)."""
    plain = [prefix + field for field in Names._fields[1:]]
    plain[Names._fields.index("parked") - 1] = f"{prefix}retry.parked"
    return Names(prefix, *plain)


def prefix_problem(prefix: str) -> str | None:
    """Why a prefix cannot be used, as one line, or None."""
    if not _PREFIX.fullmatch(prefix):
        return "a topic prefix is letters, digits, '.', '_', '-', and ends with one of the three"
    if source_of(f"{prefix}facts") or prefix.startswith(FACTS_PREFIX):
        return f"a topic prefix may not make topics that look like producers' ({FACTS_PREFIX}<source>)"
    if max(map(len, names(prefix)[1:])) > TOPIC_NAME_BYTES_MAX:
        return f"a topic prefix leaves no room: Kafka's names end at {TOPIC_NAME_BYTES_MAX} characters"
    return None


def tier_name(cap_ms: int) -> str:
    """Name of a back-off step: its cap in the largest unit that divides it (10_000 -> `10s`, 7_200_000 -> `2h`).
    ValueError for a cap below one millisecond."""
    if cap_ms < 1:
        raise ValueError("a back-off cap is at least one millisecond")
    size, unit = next((size, unit) for size, unit in _UNITS if cap_ms % size == 0)
    return f"{cap_ms // size}{unit}"


def tiers(caps_ms: Sequence[int]) -> tuple[str, ...]:
    """The distinct tiers of a curve, in its order."""
    return tuple(dict.fromkeys(map(tier_name, caps_ms)))


# -- how they are kept -------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Retentions:
    """How long each topic keeps its records, in milliseconds. Facts are kept for `dedup_window_ms + events_ms`, since a
    rebuild needs the ids of the window before the oldest fact that can still be pulled."""

    events_ms: int = 168 * HOUR_MS
    dedup_window_ms: int = 168 * HOUR_MS
    quarantine_ms: int = 240 * HOUR_MS
    deliveries_ms: int = 240 * HOUR_MS
    attempts_ms: int = 336 * HOUR_MS
    dead_letters_ms: int = 720 * HOUR_MS
    queue_ms: int = 336 * HOUR_MS
    observations_ms: int = 168 * HOUR_MS
    operator_ms: int = 336 * HOUR_MS

    @property
    def facts_ms(self) -> int:
        return self.dedup_window_ms + self.events_ms


class TopicSpec(NamedTuple):
    """A topic as it must be. `config` holds Kafka's own names and texts."""

    name: str
    partitions: int
    replication: int
    config: Mapping[str, str]


def internal_topics(
    prefix: str,
    shards: int,
    replication: int,
    retentions: Retentions,
    caps_ms: Sequence[int],
) -> tuple[TopicSpec, ...]:
    """Every topic of the hub, in the order of the journey. `caps_ms` is the back-off curve."""
    own = names(prefix)
    kept = (
        (own.facts, retentions.facts_ms),
        (own.quarantine, retentions.quarantine_ms),
        (own.deliveries, retentions.deliveries_ms),
        *((own.retry(tier), retentions.deliveries_ms) for tier in tiers(caps_ms)),
        (own.parked, retentions.deliveries_ms),
        (own.attempts, retentions.attempts_ms),
        (own.dlq, retentions.dead_letters_ms),
        (own.queue, retentions.queue_ms),
        (own.observations, retentions.observations_ms),
        (own.operator, retentions.operator_ms),
    )
    compacted = (own.subscriptions, own.keys, own.operations, own.health)
    always = {
        "message.timestamp.type": "LogAppendTime",
        "segment.ms": str(SEGMENT_MS),
        "max.message.bytes": str(MESSAGE_BYTES_MAX),
        "min.insync.replicas": "2" if replication >= 3 else "1",
        "unclean.leader.election.enable": "false",
    }
    compact = {**always, "cleanup.policy": "compact", "delete.retention.ms": str(TOMBSTONE_MS)}
    return (
        *(
            TopicSpec(name, shards, replication, {**always, "cleanup.policy": "delete", "retention.ms": str(ms)})
            for name, ms in kept
        ),
        *(TopicSpec(name, shards, replication, compact) for name in compacted),
        TopicSpec(own.meta, 1, replication, compact),
    )


def retention_problems(retentions: Retentions, caps_ms: Sequence[int], max_age_ms: int) -> tuple[str, ...]:
    """What keeps too little, one line each: a job must not outlive the topics it is rebuilt from.

    A job is attempted until `max_age_ms` and one tier later, dies unattempted at twice that age, and once suspended is
    given up after 96 h more; the log that carries it is written anew at each attempt and each parking.
    """
    life_ms = max(2 * max_age_ms, max_age_ms + max(caps_ms, default=0)) + SUSPENDED_MS_MAX
    least_ms = max(life_ms, OUTAGE_MS_MAX)
    wanted = (
        ("deliveries and retry", retentions.deliveries_ms, least_ms),
        ("attempts", retentions.attempts_ms, retentions.deliveries_ms),
        ("dlq", retentions.dead_letters_ms, OUTAGE_MS_MAX),
        ("queue", retentions.queue_ms, retentions.events_ms),
    )
    return tuple(
        f"{what}: kept for {tier_name(kept)}, but {tier_name(least)} are needed"
        for what, kept, least in wanted
        if kept < least
    )


# -- which partition ---------------------------------------------------------------------------------------------------
@lru_cache(maxsize=PARTITIONS_MAX)
def partition_for(key: bytes, n: int) -> int:
    """The partition of `key` among `n`, as Kafka's Java producer chooses it: murmur2, sign bit off, modulo."""
    return (murmur2(key) & 0x7FFFFFFF) % n


def murmur2(data: bytes) -> int:
    """32-bit murmur2 with the seed of Kafka's `Utils.murmur2`, unsigned."""
    length = len(data)
    words = length // 4
    h = 0x9747B28C ^ length
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * 0x5BD1E995 & 0xFFFFFFFF
        k = (k ^ k >> 24) * 0x5BD1E995 & 0xFFFFFFFF
        h = h * 0x5BD1E995 & 0xFFFFFFFF ^ k
    rest = data[words * 4 :]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * 0x5BD1E995 & 0xFFFFFFFF
    h = (h ^ h >> 13) * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ h >> 15
