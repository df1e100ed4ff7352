"""The only place that makes Kafka clients: one set of time-outs, one security set-up."""

from __future__ import annotations

import base64
import binascii
import ssl
from dataclasses import dataclass, field
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import BrokerResponseError, kafka_errors

from hub_app.kafka.connections import guard

Isolation = Literal["read_committed", "read_uncommitted"]

SESSION_TIMEOUT_MS = 10_000
HEARTBEAT_INTERVAL_MS = 500
REBALANCE_TIMEOUT_MS = 30_000
# A member lives by its heartbeats; partitions that stand still are shown in readiness instead of leaving the group.
POLL_INTERVAL_MS = 24 * 3_600_000
BATCH_BYTES_MAX = 1 << 19


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


class InvalidRecord(BrokerResponseError):  # type: ignore[misc]
    """The broker refuses a record for what it is (no key on a compacted topic, ...). Unknown to aiokafka, which would
    call it a server error and hide whose fault it is."""

    errno = 87
    message = "INVALID_RECORD"


def make_consumer(
    config: KafkaConfig,
    *,
    group_id: str | None = None,
    group_instance_id: str | None = None,
    assignor: object | None = None,
    isolation_level: Isolation = "read_uncommitted",
    auto_offset_reset: Literal["earliest", "none"] = "none",
    fetch_max_wait_ms: int = 25,
    max_partition_fetch_bytes: int = 1 << 18,
    fetch_max_bytes: int = 1 << 22,
    session_timeout_ms: int = SESSION_TIMEOUT_MS,
    **overrides: Any,
) -> AIOKafkaConsumer:
    """An unstarted consumer that never commits by itself. Session 10 s, heartbeat 0.5 s, rebalance 30 s.

    `max_partition_fetch_bytes` bounds what one partition brings at a time (a larger record is brought all the same)."""
    if assignor is not None:
        overrides["partition_assignment_strategy"] = (assignor,)
    consumer = AIOKafkaConsumer(
        **_connection(config),
        group_id=group_id,
        group_instance_id=group_instance_id or None,
        enable_auto_commit=False,
        auto_offset_reset=auto_offset_reset,
        isolation_level=isolation_level,
        fetch_max_wait_ms=fetch_max_wait_ms,
        max_partition_fetch_bytes=max_partition_fetch_bytes,
        fetch_max_bytes=fetch_max_bytes,
        metadata_max_age_ms=config.metadata_max_age_ms,
        session_timeout_ms=session_timeout_ms,
        heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
        rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
        max_poll_interval_ms=POLL_INTERVAL_MS,
        **overrides,
    )
    guard(consumer._client)
    return consumer


def make_producer(config: KafkaConfig, *, transactional_id: str | None = None, **overrides: Any) -> AIOKafkaProducer:
    """An unstarted producer: acks=all, idempotent, lz4, linger 0, batches of at most 512 KiB before compression."""
    kafka_errors.setdefault(InvalidRecord.errno, InvalidRecord)
    options: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "compression_type": "lz4",
        "linger_ms": 0,
        "max_batch_size": BATCH_BYTES_MAX,
        "max_request_size": 8 << 20,
        "transactional_id": transactional_id,
        "metadata_max_age_ms": config.metadata_max_age_ms,
    }
    producer = AIOKafkaProducer(**_connection(config), **(options | overrides))
    guard(producer.client)
    return producer


def make_admin(config: KafkaConfig) -> AIOKafkaAdminClient:
    """An unstarted admin client."""
    admin = AIOKafkaAdminClient(**_connection(config), metadata_max_age_ms=config.metadata_max_age_ms)
    guard(admin._client)
    return admin


def brokers_of(config: KafkaConfig) -> list[str]:
    """`host:port` of each bootstrap broker."""
    return [b.strip() for b in config.brokers.split(",") if b.strip()]


def _connection(config: KafkaConfig) -> dict[str, Any]:
    security = ("SASL_" if config.scram_mechanism else "") + ("SSL" if config.tls else "PLAINTEXT")
    options: dict[str, Any] = {
        "bootstrap_servers": brokers_of(config),
        "client_id": config.client_id,
        "request_timeout_ms": config.request_timeout_ms,
        "security_protocol": security,
    }
    if config.scram_mechanism:
        options["sasl_mechanism"] = config.scram_mechanism
        options["sasl_plain_username"] = config.username
        options["sasl_plain_password"] = config.password
    if config.tls:
        options["ssl_context"] = tls_context(config.ca_pem_base64)
    return options


def tls_context(ca_pem_base64: str) -> ssl.SSLContext:
    """Verifying client context. With a CA given, only that CA is trusted. ValueError when it is not base64 PEM."""
    if not ca_pem_base64:
        return ssl.create_default_context()
    try:
        pem = base64.b64decode("".join(ca_pem_base64.split()), validate=True).decode("ascii")
        return ssl.create_default_context(cadata=pem)
    except (binascii.Error, UnicodeDecodeError, ssl.SSLError) as exc:
        raise ValueError("the CA certificate must be base64 of a PEM file") from exc
