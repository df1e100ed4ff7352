"""Everything a deployment can say, as one frozen value. `parse` reads the environment and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hub_app.topics import Retentions

RETENTIONS: Final = {
    "events_ms": "events_retention_ms",
    "dedup_window_ms": "dedup_window_ms",
    "attempts_ms": "attempts_retention_ms",
    "dead_letters_ms": "dead_letter_retention_ms",
    "observations_ms": "dlq_retention_ms",
}
"""Field of `topics.Retentions` -> setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kek:
    """A key-encryption key and the name of the variable it came from. The key never shows in `repr`."""

    name: str
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLimit:
    """A token bucket: `requests_max` in `window_s` seconds, counted in this worker alone."""

    requests_max: int
    window_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line of a listing: redacted value, where it came from (environment, default, derived), what it means."""

    name: str
    value: str
    source: str
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, checked, in the units the code uses: durations in integer milliseconds. `repr` hides secrets."""

    role: str  # all | ingest | delivery
    env: str
    log_level: str  # debug | info | warning | error
    log_format: str  # console | json
    http_host: str
    http_port: int
    http_advertised_url: str  # no trailing slash
    instance_id: str  # empty: dynamic membership
    data_dir: Path
    kafka_brokers: tuple[str, ...]  # host:port
    kafka_scram_mechanism: str  # empty | SCRAM-SHA-256 | SCRAM-SHA-512
    kafka_scram_username: str
    kafka_scram_password: str = field(repr=False)
    kafka_tls_enabled: bool
    kafka_ca_cert: str  # PEM text; empty: the system's authorities
    allow_insecure_kafka: bool
    allow_private_sinks: bool
    sink_allow_cidrs: tuple[str, ...]  # normalised networks, "10.1.0.0/16"
    shards: int
    topic_prefix: str
    topic_replication: int
    events_retention_ms: int
    metadata_max_age_ms: int
    dispatch_workers: int
    dispatch_claim_batch: int
    dispatch_idle_interval_ms: int
    dispatch_timeout_ms: int
    dispatch_connect_timeout_ms: int
    backoff_caps_ms: tuple[int, ...]  # one per failed attempt; attempts = entries + 1
    max_age_ms: int
    sender: str  # fast | aiohttp
    poison_threshold: int
    breaker_failures: int
    breaker_open_ms: int
    breaker_open_ms_max: int
    autodisable_enabled: bool
    autodisable_failure_window_ms: int
    autodisable_failure_spread_ms: int
    dedup_window_ms: int
    pull_rate: int  # requests per second and key
    pull_burst: int
    queue_lock_ms_min: int
    dlq_retention_ms: int
    dlq_prune_interval_ms: int
    dead_letter_retention_ms: int
    attempts_retention_ms: int
    idempotency_ttl_ms: int
    health_window_ms: int
    keks: tuple[Kek, ...]  # newest first; empty: nothing can be sealed
    admin_key: str = field(repr=False)  # empty: no bootstrap admin (in `local` the composition makes one)
    tenant_id: str
    multi_tenant_enabled: bool
    metrics_enabled: bool
    swagger_enabled: bool
    rate_limit_enabled: bool
    rate_limit: RateLimit
    rate_limit_writes: RateLimit
    rate_limit_reads: RateLimit
    shutdown_timeout_ms: int
    pre_stop_drain_timeout_ms: int
    otlp_endpoint: str
    warnings: tuple[str, ...] = ()  # one line each, to be logged at start
    entries: tuple[Entry, ...] = field(default=(), repr=False)  # every setting, redacted, in the order of the table

    @property
    def retentions(self) -> Retentions:
        """How long each topic keeps its records."""
        return Retentions(**{field: getattr(self, attribute) for field, attribute in RETENTIONS.items()})

    @property
    def is_local(self) -> bool:
        return self.env == "local"
