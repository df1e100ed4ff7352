"""The only place that makes Kafka clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConfig:
    """How to reach the brokers. `ca_pem_base64` is base64 of a PEM bundle; empty means the system's store.
    `scram_mechanism` is empty, SCRAM-SHA-256, SCRAM-SHA-512 or PLAIN; user and password come with it."""

    brokers: str
    client_id: str = "streaming-hub"
    scram_mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    tls: bool = False
    ca_pem_base64: str = ""
    metadata_max_age_ms: int = 30_000
    request_timeout_ms: int = 40_000


def make_consumer(
    config: KafkaConfig,
    *,
    group_id: str | None = None,
    group_instance_id: str | None = None,
    assignor: object | None = None,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_uncommitted",
    auto_offset_reset: Literal["earliest", "none"] = "none",
    fetch_max_wait_ms: int = 20,
    max_partition_fetch_bytes: int = 1 << 18,
    fetch_max_bytes: int = 1 << 22,
    **overrides: Any,
) -> AIOKafkaConsumer:
    """An unstarted consumer that never commits by itself. Session 10 s, heartbeat 0.5 s, rebalance 30 s."""
    raise NotImplementedError


def make_producer(config: KafkaConfig, *, transactional_id: str | None = None, **overrides: Any) -> AIOKafkaProducer:
    """An unstarted producer: acks=all, idempotent, lz4, linger 0."""
    raise NotImplementedError


def make_admin(config: KafkaConfig) -> AIOKafkaAdminClient:
    """An unstarted admin client."""
    raise NotImplementedError


def brokers_of(config: KafkaConfig) -> Sequence[str]:
    """`host:port` of each bootstrap broker."""
    raise NotImplementedError
