"""Settings at their edges: what is taken, what is refused, and in which words."""

from __future__ import annotations

import base64
import dataclasses
from pathlib import Path

import pytest
import trustme

from hub_app.settings import RateLimit, SettingProblem, Settings, parse
from hub_app.settings.fields import FIELDS, PREFIX

KEY = base64.b64encode(bytes(range(32))).decode()
PEM = trustme.CA().cert_pem.bytes()
HOUR_MS = 3_600_000


def good(**given: str) -> Settings:
    settings = parse(environ(**given))
    assert isinstance(settings, Settings), settings
    return settings


def bad(**given: str) -> tuple[SettingProblem, ...]:
    problems = parse(environ(**given))
    assert not isinstance(problems, Settings)
    return problems


def environ(**given: str) -> dict[str, str]:
    """Names without the prefix get it, unless they stand alone."""
    alone = {field.name for field in FIELDS if field.full}
    return {
        name if name in alone or name.startswith(("_", PREFIX)) else PREFIX + name: text for name, text in given.items()
    }


def names(problems: tuple[SettingProblem, ...]) -> list[str]:
    return [problem.name.removeprefix(PREFIX) for problem in problems]


# -- defaults ----------------------------------------------------------------------------------------------------------
DEFAULTS = {
    "role": "all",
    "env": "local",
    "log_level": "info",
    "log_format": "json",
    "http_host": "127.0.0.1",
    "http_port": 8080,
    "http_advertised_url": "http://127.0.0.1:8080",
    "instance_id": "",
    "data_dir": Path("data"),
    "kafka_brokers": ("127.0.0.1:9092",),
    "kafka_scram_mechanism": "",
    "kafka_scram_username": "",
    "kafka_scram_password": "",
    "kafka_tls_enabled": False,
    "kafka_ca_cert": "",
    "allow_insecure_kafka": False,
    "allow_private_sinks": False,
    "sink_allow_cidrs": (),
    "shards": 12,
    "topic_prefix": "hub.",
    "topic_replication": 1,
    "events_retention_ms": 168 * HOUR_MS,
    "metadata_max_age_ms": 30_000,
    "dispatch_workers": 8,
    "dispatch_claim_batch": 16,
    "dispatch_idle_interval_ms": 250,
    "dispatch_timeout_ms": 10_000,
    "dispatch_connect_timeout_ms": 5_000,
    "backoff_caps_ms": (10_000, 60_000, 300_000, 1_800_000, 2 * HOUR_MS, 5 * HOUR_MS, 10 * HOUR_MS),
    "max_age_ms": 24 * HOUR_MS,
    "sender": "fast",
    "poison_threshold": 5,
    "breaker_failures": 5,
    "breaker_open_ms": 30_000,
    "breaker_open_ms_max": 300_000,
    "autodisable_enabled": True,
    "autodisable_failure_window_ms": 120 * HOUR_MS,
    "autodisable_failure_spread_ms": 12 * HOUR_MS,
    "dedup_window_ms": 168 * HOUR_MS,
    "pull_rate": 100,
    "pull_burst": 200,
    "queue_lock_ms_min": 60_000,
    "dlq_retention_ms": 168 * HOUR_MS,
    "dlq_prune_interval_ms": HOUR_MS,
    "dead_letter_retention_ms": 720 * HOUR_MS,
    "attempts_retention_ms": 336 * HOUR_MS,
    "idempotency_ttl_ms": 24 * HOUR_MS,
    "health_window_ms": 720 * HOUR_MS,
    "keks": (),
    "admin_key": "",
    "tenant_id": "default",
    "multi_tenant_enabled": False,
    "metrics_enabled": True,
    "swagger_enabled": True,
    "rate_limit_enabled": True,
    "rate_limit": RateLimit(requests_max=500, window_s=60),
    "rate_limit_writes": RateLimit(requests_max=100, window_s=60),
    "rate_limit_reads": RateLimit(requests_max=1000, window_s=60),
    "shutdown_timeout_ms": 30_000,
    "pre_stop_drain_timeout_ms": 5_000,
    "otlp_endpoint": "",
}


def test_the_defaults_are_those_of_the_document() -> None:
    settings = good()
    found = {field.name: getattr(settings, field.name) for field in dataclasses.fields(settings)}
    assert {name: found[name] for name in found if name not in ("warnings", "entries")} == DEFAULTS


def test_an_empty_variable_is_not_set() -> None:
    assert good(SHARDS="", ADMIN_KEY="").shards == 12


@pytest.mark.parametrize(
    ("given", "attribute", "value"),
    [
        ({"ENV": "staging", "KAFKA_TLS_ENABLED": "true"}, "topic_replication", 3),
        ({"ENV": "staging", "KAFKA_TLS_ENABLED": "true"}, "swagger_enabled", False),
        ({"ENV": "staging", "KAFKA_TLS_ENABLED": "true", "SWAGGER_ENABLED": "true"}, "swagger_enabled", True),
    ],
)
def test_local_relaxes(given: dict[str, str], attribute: str, value: object) -> None:
    assert getattr(good(**given), attribute) == value


def test_the_log_format_follows_the_terminal_unless_set() -> None:
    formats = [parse(environ(LOG_FORMAT=text), terminal=True) for text in ("", "json")]
    assert [settings.log_format for settings in formats if isinstance(settings, Settings)] == ["console", "json"]


@pytest.mark.parametrize(
    ("listen", "hostname", "host", "url"),
    [
        (":9000", "worker-1", "0.0.0.0", "http://worker-1:9000"),
        ("0.0.0.0:9000", "worker-1", "0.0.0.0", "http://worker-1:9000"),
        ("[::]:9000", "worker-1", "::", "http://worker-1:9000"),
        ("10.0.0.7:9000", "worker-1", "10.0.0.7", "http://10.0.0.7:9000"),
        ("[::1]:9000", "worker-1", "::1", "http://[::1]:9000"),
    ],
)
def test_the_advertised_url_is_derived(listen: str, hostname: str, host: str, url: str) -> None:
    settings = parse(environ(HTTP_LISTEN_ADDR=listen), hostname=hostname)
    assert isinstance(settings, Settings)
    assert (settings.http_host, settings.http_port, settings.http_advertised_url) == (host, 9000, url)


# -- edges -------------------------------------------------------------------------------------------------------------
ACCEPTED = [
    ("SHARDS", "1", "shards", 1),
    ("SHARDS", "512", "shards", 512),
    ("METADATA_MAX_AGE", "250ms", "metadata_max_age_ms", 250),
    ("METADATA_MAX_AGE", "10m", "metadata_max_age_ms", 600_000),
    ("DEDUP_WINDOW", "7d", "dedup_window_ms", 168 * HOUR_MS),
    ("DISPATCH_IDLE_INTERVAL_MS", "60000", "dispatch_idle_interval_ms", 60_000),
    ("BACKOFF", "10ms", "backoff_caps_ms", (10,)),
    ("BACKOFF", "1s,1s,2s", "backoff_caps_ms", (1_000, 1_000, 2_000)),
    ("PRE_STOP_DRAIN_TIMEOUT", "0s", "pre_stop_drain_timeout_ms", 0),
    ("MULTI_TENANT_ENABLED", "TRUE", "multi_tenant_enabled", True),
    ("RATE_LIMIT_ENABLED", "0", "rate_limit_enabled", False),
    ("KAFKA_BROKERS", "kafka-1:9092,[fd00::1]:9093", "kafka_brokers", ("kafka-1:9092", "[fd00::1]:9093")),
    ("SINK_ALLOW_CIDRS", "10.1.0.0/16,fd00::/8", "sink_allow_cidrs", ("10.1.0.0/16", "fd00::/8")),
    ("TENANT_ID", "á tenant/1", "tenant_id", "á tenant/1"),
    ("TENANT_ID", "x" * 256, "tenant_id", "x" * 256),
    ("ADMIN_KEY", "x" * 16, "admin_key", "x" * 16),
    ("HTTP_ADVERTISED_URL", "https://hub-1.example:443/", "http_advertised_url", "https://hub-1.example:443"),
    ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/v1", "otlp_endpoint", "http://collector:4318/v1"),
    ("TOPIC_PREFIX", "team-a_", "topic_prefix", "team-a_"),
    ("INSTANCE_ID", "hub-0", "instance_id", "hub-0"),
    ("KAFKA_CA_CERT", base64.b64encode(PEM).decode(), "kafka_ca_cert", PEM.decode()),
    ("AGGRESSIVE_RATE_LIMIT_MAX", "7", "rate_limit_writes", RateLimit(requests_max=7, window_s=60)),
    ("RELAXED_RATE_LIMIT_WINDOW_SEC", "9", "rate_limit_reads", RateLimit(requests_max=1000, window_s=9)),
]


@pytest.mark.parametrize(("name", "text", "attribute", "value"), ACCEPTED)
def test_taken(name: str, text: str, attribute: str, value: object) -> None:
    assert getattr(good(**{name: text}), attribute) == value


REFUSED = [
    *(("SHARDS", text) for text in ("0", "513", "-1", "1.0", " 12", "twelve", "\uff11\uff12", "0x10")),
    *(("METADATA_MAX_AGE", text) for text in ("30", "30 s", "1h30m", "99ms", "601s", "-5s", "30S", "1.5s", "٣s")),
    *(("DISPATCH_IDLE_INTERVAL_MS", text) for text in ("250ms", "0", "60001")),
    *(("BACKOFF", text) for text in ("10s,", ",", "10s;1m", "1m,10s", "9ms", ",".join(["1s"] * 21))),
    *(("MULTI_TENANT_ENABLED", text) for text in ("yes", "on", " true")),
    *(("ROLE", text) for text in ("ALL", "dispatch")),
    *(("ENV", text) for text in ("Production", "a b", "-x", "x" * 64)),
    *(
        ("HTTP_LISTEN_ADDR", text)
        for text in ("8080", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "::1:80", "a b:1")
    ),
    *(("KAFKA_BROKERS", text) for text in ("kafka-1", "kafka-1:9092,", ":9092", "kafka-1:9092 kafka-2:9092")),
    *(("SINK_ALLOW_CIDRS", text) for text in ("10.1.2.3/8", "10.0.0.0/33", "example.com", "10.0.0.0/8,")),
    *(("TENANT_ID", text) for text in ("a\x1fb", "\x7f", "x" * 257, "é" * 129, "\udcff")),
    *(("ADMIN_KEY", text) for text in ("x" * 15, "x" * 257, "with a blank in it", "schlüssel-schlüssel")),
    *(("HTTP_ADVERTISED_URL", text) for text in ("hub:80", "ftp://hub", "http://", "http://u:p@hub", "http://hub/x")),
    *(("OTEL_EXPORTER_OTLP_ENDPOINT", text) for text in ("http://user:secret@collector", "http://c?token=secret")),
    *(("TOPIC_PREFIX", text) for text in ("hub", ".hub.", "hub/", "lerian.streaming.")),
    *(("INSTANCE_ID", text) for text in ("a b", "x" * 201, "ä")),
    *(("KAFKA_CA_CERT", text) for text in ("not base64!", base64.b64encode(b"no pem").decode(), PEM.decode())),
    *(
        ("DEV_KEK", text)
        for text in ("short", base64.b64encode(bytes(31)).decode(), base64.b64encode(bytes(33)).decode())
    ),
    *(("KEK_REF", text) for text in ("hub_kek", "A B", "A,", "A,A", KEY)),
    ("KAFKA_SCRAM_MECHANISM", "PLAIN"),
    ("SENDER", "httpx"),
    ("POISON_THRESHOLD", "1"),
    ("TOPIC_REPLICATION", "10"),
    ("PRE_STOP_DRAIN_TIMEOUT", "0"),
    ("IDEMPOTENCY_TTL", "8d"),
]


@pytest.mark.parametrize(("name", "text"), REFUSED)
def test_refused_by_name_with_the_accepted_form(name: str, text: str) -> None:
    problems = bad(**{name: text})
    assert names(problems) == [name]
    assert len(problems[0].detail) > len("expected ")


RELATED = [
    ("DISPATCH_CONNECT_TIMEOUT", {"DISPATCH_TIMEOUT": "5s", "DISPATCH_CONNECT_TIMEOUT": "5001ms"}),
    ("BREAKER_OPEN", {"BREAKER_OPEN": "301s"}),
    ("AUTODISABLE_FAILURE_SPREAD", {"AUTODISABLE_FAILURE_WINDOW": "11h"}),
    ("SHUTDOWN_TIMEOUT", {"SHUTDOWN_TIMEOUT": "76s"}),
    ("MAX_AGE", {"MAX_AGE": "73h"}),
    ("MAX_AGE", {"MAX_AGE": "30d"}),
    ("ATTEMPTS_RETENTION", {"ATTEMPTS_RETENTION": "239h"}),
    ("DEAD_LETTER_RETENTION", {"DEAD_LETTER_RETENTION": "167h"}),
    ("EVENTS_RETENTION", {"EVENTS_RETENTION": "337h"}),
    ("KAFKA_SCRAM_PASSWORD", {"KAFKA_SCRAM_PASSWORD": "p"}),
    ("KAFKA_SCRAM_PASSWORD", {"KAFKA_SCRAM_USERNAME": "u", "KAFKA_SCRAM_MECHANISM": "SCRAM-SHA-512"}),
    ("KAFKA_SCRAM_MECHANISM", {"KAFKA_SCRAM_USERNAME": "u", "KAFKA_SCRAM_PASSWORD": "p"}),
    ("DEV_KEK", {"ENV": "staging", "KAFKA_TLS_ENABLED": "true", "DEV_KEK": KEY}),
]


@pytest.mark.parametrize(("name", "given"), RELATED)
def test_refused_for_what_it_is_to_another(name: str, given: dict[str, str]) -> None:
    assert names(bad(**given)) == [name]


@pytest.mark.parametrize(
    "given",
    [
        {"DISPATCH_TIMEOUT": "5s", "DISPATCH_CONNECT_TIMEOUT": "5s"},
        {"BREAKER_OPEN": "5m"},
        {"AUTODISABLE_FAILURE_WINDOW": "12h"},
        {"SHUTDOWN_TIMEOUT": "75s"},
        {"MAX_AGE": "72h"},
        {"ATTEMPTS_RETENTION": "240h"},
        {"DEAD_LETTER_RETENTION": "168h"},
        {"EVENTS_RETENTION": "336h"},
        {"KAFKA_SCRAM_USERNAME": "u", "KAFKA_SCRAM_PASSWORD": "p", "KAFKA_SCRAM_MECHANISM": "SCRAM-SHA-256"},
    ],
)
def test_taken_at_the_very_edge(given: dict[str, str]) -> None:
    good(**given)


# -- plain-text Kafka --------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("env", "tls", "allowed", "starts"),
    [
        ("local", "false", "false", True),
        ("staging", "false", "false", False),
        ("staging", "false", "true", True),
        ("staging", "true", "false", True),
        ("production", "false", "false", False),
        ("production", "false", "true", False),
        ("production", "true", "false", True),
    ],
)
def test_plain_text_kafka(env: str, tls: str, allowed: str, starts: bool) -> None:
    given = {"ENV": env, "KAFKA_TLS_ENABLED": tls, "ALLOW_INSECURE_KAFKA": allowed}
    if starts:
        good(**given)
    else:
        assert names(bad(**given)) == ["KAFKA_TLS_ENABLED"]


# -- keys --------------------------------------------------------------------------------------------------------------
def test_keys_come_from_the_named_variables_newest_first() -> None:
    other = base64.urlsafe_b64encode(bytes(255 - n for n in range(32))).decode().rstrip("=")
    settings = good(KEK_REF="_NEW,_OLD", DEV_KEK=KEY, _NEW=f" {other}\n", _OLD=KEY)
    assert [(kek.name, kek.key[0]) for kek in settings.keks] == [("_NEW", 255), ("_OLD", 0), (PREFIX + "DEV_KEK", 0)]


def test_every_named_variable_that_holds_no_key_is_named() -> None:
    problems = bad(KEK_REF="_A,_B,_C", _A="short-secret", _C=KEY)
    assert [(problem.name, problem.value_shown) for problem in problems] == [
        (PREFIX + "KEK_REF", "_A"),
        (PREFIX + "KEK_REF", "_B"),
    ]
    assert "_A does not hold" in problems[0].detail
    assert "_B is not set" in problems[1].detail


# -- secrets -----------------------------------------------------------------------------------------------------------
SECRETS = {
    "KAFKA_SCRAM_USERNAME": "u",
    "KAFKA_SCRAM_MECHANISM": "SCRAM-SHA-256",
    "KAFKA_SCRAM_PASSWORD": "very-secret-password",
    "ADMIN_KEY": "very-secret-admin-key",
    "DEV_KEK": KEY,
}


def test_no_secret_is_shown() -> None:
    settings = good(**SECRETS)
    shown = repr(settings) + repr(settings.entries)
    assert settings.kafka_scram_password == "very-secret-password"
    for secret in ("very-secret", KEY, str(bytes(range(32)))):
        assert secret not in shown
    hidden = {entry.name.removeprefix(PREFIX) for entry in settings.entries if entry.value == "(hidden)"}
    assert hidden == {"KAFKA_SCRAM_PASSWORD", "ADMIN_KEY", "DEV_KEK"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ADMIN_KEY", "very-secret key"),
        ("DEV_KEK", "very-secret"),
        ("KAFKA_SCRAM_PASSWORD", "very-secret\n"),
        ("KEK_REF", KEY),
    ],
)
def test_no_refused_secret_is_shown(name: str, text: str) -> None:
    [problem] = (p for p in bad(**{name: text}) if p.name == PREFIX + name)
    assert "very-secret" not in str(problem)
    assert KEY not in str(problem)


# -- telling -----------------------------------------------------------------------------------------------------------
def test_every_problem_at_once_in_the_order_of_the_table() -> None:
    problems = bad(
        SHARDS="x", ROLE="x", BACKOFF="x", DISPATCH_TIMEOUT="1s", ENV="production", RATE_LIMIT_ENABLED="maybe"
    )
    assert names(problems) == [
        "ROLE",
        "KAFKA_TLS_ENABLED",
        "SHARDS",
        "DISPATCH_CONNECT_TIMEOUT",
        "BACKOFF",
        "RATE_LIMIT_ENABLED",
    ]


def test_a_problem_is_one_line() -> None:
    [problem] = bad(ROLE="two\nlines" + "x" * 200)
    line = str(problem)
    assert line.startswith("STREAMING_HUB_ROLE=two\\nlines")
    assert "\n" not in line
    assert len(line) < 200
    assert line.endswith("expected all or ingest or delivery")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (PREFIX + "SHARD", ["STREAMING_HUB_SHARDS"]),
        (PREFIX + "DISPATCH_TIMEOUTS", ["STREAMING_HUB_DISPATCH_TIMEOUT?"]),
        (PREFIX + "ZZZZZZZZZZZZ", ["is not a setting"]),
        (PREFIX + "MULTI_TENANT_ENABLED", ["no effect", "named MULTI_TENANT_ENABLED"]),
        (PREFIX + "RATE_LIMIT_ENABLED", ["no effect", "named RATE_LIMIT_ENABLED"]),
        (PREFIX + "OTEL_EXPORTER_OTLP_ENDPOINT", ["no effect"]),
    ],
)
def test_unknown_names_warn(name: str, words: list[str]) -> None:
    settings = parse({name: "secret-value"})
    assert isinstance(settings, Settings)
    [warning] = (warning for warning in settings.warnings if name in warning.split())
    assert all(word in warning for word in words)
    assert "secret-value" not in warning


def test_the_prefixed_name_changes_nothing() -> None:
    settings = parse({PREFIX + "MULTI_TENANT_ENABLED": "true"})
    assert isinstance(settings, Settings)
    assert not settings.multi_tenant_enabled


def test_a_variable_that_holds_a_key_is_no_unknown_name() -> None:
    environment = {PREFIX + "KEK_REF": PREFIX + "KEK_2026", PREFIX + "KEK_2026": KEY}
    settings = parse(environment)
    assert isinstance(settings, Settings)
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({}, "KEK_REF"),
        ({"KAFKA_SCRAM_MECHANISM": "SCRAM-SHA-256"}, "KAFKA_SCRAM_MECHANISM"),
        ({"KAFKA_CA_CERT": base64.b64encode(PEM).decode()}, "KAFKA_CA_CERT"),
        ({"ENV": "staging", "ALLOW_INSECURE_KAFKA": "true"}, "plain text"),
        ({"ENV": "staging", "KAFKA_TLS_ENABLED": "true", "ALLOW_PRIVATE_SINKS": "true"}, "ALLOW_PRIVATE_SINKS"),
    ],
)
def test_what_is_odd_but_works_warns(given: dict[str, str], word: str) -> None:
    assert any(word in warning for warning in good(**given).warnings)


def test_entries_tell_value_source_and_meaning() -> None:
    entries = {entry.name: entry for entry in good(SHARDS="3", HTTP_LISTEN_ADDR=":1").entries}
    assert list(entries) == [field.variable for field in FIELDS]
    assert all(entry.meaning for entry in entries.values())
    sources = {name: entries[PREFIX + name].source for name in ("SHARDS", "HTTP_ADVERTISED_URL", "ROLE", "LOG_FORMAT")}
    assert sources == {
        "SHARDS": "environment",
        "HTTP_ADVERTISED_URL": "derived",
        "ROLE": "default",
        "LOG_FORMAT": "derived",
    }
    assert entries[PREFIX + "HTTP_ADVERTISED_URL"].value == "http://localhost:1"


def test_retentions_are_those_of_the_settings() -> None:
    retentions = good(EVENTS_RETENTION="100h", DEDUP_WINDOW="50h", DLQ_RETENTION="2h").retentions
    assert retentions.facts_ms == 150 * HOUR_MS
    assert retentions.observations_ms == 2 * HOUR_MS
