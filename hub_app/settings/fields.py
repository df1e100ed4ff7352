"""The table of settings: name, default, how its text is read, meaning. The order is the order of every listing."""

from __future__ import annotations

from typing import Final, NamedTuple

from hub_app.settings.readers import (
    Reader,
    boolean,
    brokers,
    certificates,
    choice,
    dev_kek,
    duration,
    durations,
    folder,
    listen_address,
    matching,
    networks,
    tenant,
    variable_names,
    web_url,
    whole,
)

PREFIX: Final = "STREAMING_HUB_"
_ANY: Final = r"[^\x00-\x1f\x7f]{1,1024}"


class Field(NamedTuple):
    """One setting. `default` is text and is read like any other. `in_local` is the default when ENV is `local`.
    `full`: the name stands alone, without the prefix. A secret's text is never shown."""

    name: str
    attribute: str
    read: Reader
    default: str
    meaning: str
    in_local: str | None = None
    secret: bool = False
    full: bool = False

    @property
    def variable(self) -> str:
        return self.name if self.full else PREFIX + self.name


FIELDS: Final[tuple[Field, ...]] = (
    Field(
        "ROLE",
        "role",
        choice("all", "ingest", "delivery"),
        "all",
        "which loops run; ingest: ingest and the inbox plane, delivery: the dispatch plane and the observer; `all` "
        "beside a split pair is safe (they share one consumer group); every role serves HTTP",
    ),
    Field(
        "ENV",
        "env",
        matching(r"[a-z0-9][a-z0-9_-]{0,62}", "lower-case letters, digits, - and _"),
        "local",
        "suffix of the consumer groups; `local` relaxes, all else is strict",
    ),
    Field("LOG_LEVEL", "log_level", choice("debug", "info", "warning", "error"), "info", "least level that is logged"),
    Field(
        "LOG_FORMAT", "log_format", choice("", "console", "json"), "", "console on a terminal, else json, when not set"
    ),
    Field("HTTP_LISTEN_ADDR", "http_listen", listen_address, "127.0.0.1:8080", "where the API is served"),
    Field(
        "HTTP_ADVERTISED_URL",
        "http_advertised_url",
        web_url(path=False),
        "",
        "how other workers reach this one, to forward; derived when not set",
    ),
    Field(
        "INSTANCE_ID",
        "instance_id",
        matching(r"[A-Za-z0-9._-]{1,200}", "up to 200 letters, digits, dots, - and _", empty=True),
        "",
        "stable name of this worker: static group membership",
    ),
    Field("DATA_DIR", "data_dir", folder, "./data", "RocksDB folders, locked by one worker"),
    Field("KAFKA_BROKERS", "kafka_brokers", brokers, "127.0.0.1:9092", "where to begin"),
    Field(
        "KAFKA_SCRAM_MECHANISM",
        "kafka_scram_mechanism",
        choice("", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "",
        "needed when there is a user",
    ),
    Field(
        "KAFKA_SCRAM_USERNAME",
        "kafka_scram_username",
        matching(_ANY, "text", empty=True),
        "",
        "with a password, or neither",
    ),
    Field(
        "KAFKA_SCRAM_PASSWORD",
        "kafka_scram_password",
        matching(_ANY, "text", empty=True),
        "",
        "with a user, or neither",
        secret=True,
    ),
    Field("KAFKA_TLS_ENABLED", "kafka_tls_enabled", boolean, "false", "TLS to the brokers"),
    Field(
        "KAFKA_CA_CERT",
        "kafka_ca_cert",
        certificates,
        "",
        "base64 of the authorities in PEM; the system's when not set",
        secret=True,
    ),
    Field(
        "ALLOW_INSECURE_KAFKA",
        "allow_insecure_kafka",
        boolean,
        "false",
        "plain-text Kafka outside `local`; never in `production`",
    ),
    Field("ALLOW_PRIVATE_SINKS", "allow_private_sinks", boolean, "false", "http, and private addresses, as sinks"),
    Field("SINK_ALLOW_CIDRS", "sink_allow_cidrs", networks, "", "networks that are allowed as sinks all the same"),
    Field(
        "SHARDS",
        "shards",
        whole(1, 512),
        "12",
        "partitions of every internal topic; fixed for the life of a topic prefix",
    ),
    Field(
        "TOPIC_PREFIX",
        "topic_prefix",
        matching(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[._-])", "letters, digits, dots, - and _, ending in a dot, - or _"),
        "hub.",
        "begins the name of every internal topic",
    ),
    Field("TOPIC_REPLICATION", "topic_replication", whole(1, 9), "3", "replication of internal topics", in_local="1"),
    Field(
        "EVENTS_RETENTION",
        "events_retention_ms",
        duration("1h", "90d"),
        "168h",
        "how long facts can be pulled and replayed",
    ),
    Field("METADATA_MAX_AGE", "metadata_max_age_ms", duration("100ms", "10m"), "30s", "how soon new topics are seen"),
    Field("DISPATCH_WORKERS", "dispatch_workers", whole(1, 4096), "8", "attempts at once in one process"),
    Field("DISPATCH_CLAIM_BATCH", "dispatch_claim_batch", whole(1, 1024), "16", "jobs claimed at once"),
    Field(
        "DISPATCH_IDLE_INTERVAL_MS",
        "dispatch_idle_interval_ms",
        whole(1, 60_000),
        "250",
        "longest wait for work, in milliseconds; new jobs and due times wake at once",
    ),
    Field(
        "DISPATCH_TIMEOUT",
        "dispatch_timeout_ms",
        duration("100ms", "2m"),
        "10s",
        "one attempt, all in all; a sink may set a lower one",
    ),
    Field(
        "DISPATCH_CONNECT_TIMEOUT",
        "dispatch_connect_timeout_ms",
        duration("10ms", "2m"),
        "5s",
        "connecting, as part of an attempt",
    ),
    Field(
        "BACKOFF",
        "backoff_caps_ms",
        durations("10ms", "24h", 20),
        "10s,1m,5m,30m,2h,5h,10h",
        "caps of the retry tiers; attempts = entries + 1",
    ),
    Field(
        "MAX_AGE",
        "max_age_ms",
        duration("1s", "30d"),
        "24h",
        "an attempt that starts this long after the fact was received is its last",
    ),
    Field("SENDER", "sender", choice("fast", "aiohttp"), "fast", "which HTTP client makes attempts"),
    Field("POISON_THRESHOLD", "poison_threshold", whole(2, 100), "5", "interrupted claims before a job is poisoned"),
    Field("BREAKER_FAILURES", "breaker_failures", whole(1, 1_000_000), "5", "failures in a row that open the breaker"),
    Field("BREAKER_OPEN", "breaker_open_ms", duration("100ms", "1h"), "30s", "how long it stays open at first"),
    Field("BREAKER_OPEN_MAX", "breaker_open_ms_max", duration("100ms", "24h"), "5m", "and at most"),
    Field("AUTODISABLE_ENABLED", "autodisable_enabled", boolean, "true", "disable subscriptions whose sink stays dead"),
    Field(
        "AUTODISABLE_FAILURE_WINDOW",
        "autodisable_failure_window_ms",
        duration("1s", "90d"),
        "120h",
        "since the first failure of the streak",
    ),
    Field(
        "AUTODISABLE_FAILURE_SPREAD",
        "autodisable_failure_spread_ms",
        duration("1s", "90d"),
        "12h",
        "between its first and last failure",
    ),
    Field("DEDUP_WINDOW", "dedup_window_ms", duration("1m", "90d"), "168h", "how long ids are remembered"),
    Field("PULL_RATE", "pull_rate", whole(1, 100_000), "100", "pull requests a second and key"),
    Field("PULL_BURST", "pull_burst", whole(1, 100_000), "200", "pull requests at once"),
    Field(
        "QUEUE_LOCK_MIN",
        "queue_lock_ms_min",
        duration("1s", "60s"),
        "60s",
        "the shortest lock that a queue may have; less is for tests",
    ),
    Field("DLQ_RETENTION", "dlq_retention_ms", duration("1h", "90d"), "168h", "producers' dead letters observed"),
    Field("DLQ_PRUNE_INTERVAL", "dlq_prune_interval_ms", duration("1s", "24h"), "1h", "how often they are pruned"),
    Field(
        "DEAD_LETTER_RETENTION",
        "dead_letter_retention_ms",
        duration("1h", "365d"),
        "720h",
        "the hub's own dead letters",
    ),
    Field("ATTEMPTS_RETENTION", "attempts_retention_ms", duration("1h", "365d"), "336h", "outcomes of attempts"),
    Field("IDEMPOTENCY_TTL", "idempotency_ttl_ms", duration("1m", "7d"), "24h", "how long an Idempotency-Key is known"),
    Field("HEALTH_WINDOW", "health_window_ms", duration("1h", "90d"), "720h", "how far back health counts outcomes"),
    Field(
        "KEK_REF",
        "kek_ref",
        variable_names,
        "",
        "name of the variable that holds the key (32 bytes in base64); several, newest first",
    ),
    Field("DEV_KEK", "dev_kek", dev_kek, "", "the key itself, only in `local`", secret=True),
    Field(
        "ADMIN_KEY",
        "admin_key",
        matching(r"[\x21-\x7e]{16,256}", "16 to 256 visible ASCII characters", empty=True),
        "",
        "bootstraps admin; in `local` one is made and printed when not set",
        secret=True,
    ),
    Field("TENANT_ID", "tenant_id", tenant, "default", "the tenant of records without one, in single-tenant mode"),
    Field("MULTI_TENANT_ENABLED", "multi_tenant_enabled", boolean, "false", "many tenants", full=True),
    Field("METRICS_ENABLED", "metrics_enabled", boolean, "true", "serve /metrics"),
    Field("SWAGGER_ENABLED", "swagger_enabled", boolean, "false", "serve the API explorer", in_local="true"),
    Field(
        "RATE_LIMIT_ENABLED",
        "rate_limit_enabled",
        boolean,
        "true",
        "rate limits of management routes, per key; counted by the worker that serves the tenant, so approximate",
        full=True,
    ),
    Field(
        "RATE_LIMIT_MAX",
        "rate_limit_max",
        whole(1, 10_000_000),
        "500",
        "requests of administrators, and probes, in a window",
    ),
    Field("RATE_LIMIT_WINDOW_SEC", "rate_limit_window_s", whole(1, 86_400), "60", "the window, in seconds"),
    Field("AGGRESSIVE_RATE_LIMIT_MAX", "rate_limit_writes_max", whole(1, 10_000_000), "100", "writes in a window"),
    Field(
        "AGGRESSIVE_RATE_LIMIT_WINDOW_SEC",
        "rate_limit_writes_window_s",
        whole(1, 86_400),
        "60",
        "the window, in seconds",
    ),
    Field("RELAXED_RATE_LIMIT_MAX", "rate_limit_reads_max", whole(1, 10_000_000), "1000", "reads in a window"),
    Field(
        "RELAXED_RATE_LIMIT_WINDOW_SEC", "rate_limit_reads_window_s", whole(1, 86_400), "60", "the window, in seconds"
    ),
    Field(
        "SHUTDOWN_TIMEOUT", "shutdown_timeout_ms", duration("1s", "80s"), "30s", "for HTTP, sources and dispatch to end"
    ),
    Field(
        "PRE_STOP_DRAIN_TIMEOUT",
        "pre_stop_drain_timeout_ms",
        duration("0s", "60s"),
        "5s",
        "not ready, before anything stops",
    ),
    Field("OTEL_EXPORTER_OTLP_ENDPOINT", "otlp_endpoint", web_url(path=True), "", "where traces go", full=True),
)
