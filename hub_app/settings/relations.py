"""What settings must be to each other. Each relation names the setting to change and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hub_app.settings.model import RETENTIONS
from hub_app.topics import Retentions, prefix_problem, retention_problems, tier_name

DRAIN_MS_MAX: Final = 80_000

Values = Mapping[str, Any]


class Relation(NamedTuple):
    """`broken` gives the detail when the relation does not hold; it is asked only when all of `needs` could be read."""

    name: str
    needs: tuple[str, ...]
    broken: Callable[[Values], str | None]


def _plain_text(v: Values) -> str | None:
    if v["kafka_tls_enabled"] or v["env"] == "local":
        return None
    if v["env"] == "production":
        return "plain-text Kafka is refused in production; set it to true (ALLOW_INSECURE_KAFKA does not help there)"
    if v["allow_insecure_kafka"]:
        return None
    return "plain-text Kafka outside `local`: set it to true, or set STREAMING_HUB_ALLOW_INSECURE_KAFKA=true"


def _user_needs_mechanism(v: Values) -> str | None:
    if v["kafka_scram_username"] and not v["kafka_scram_mechanism"]:
        return "there is a user but no mechanism: expected SCRAM-SHA-256 or SCRAM-SHA-512"
    return None


def _user_and_password(v: Values) -> str | None:
    if bool(v["kafka_scram_username"]) != bool(v["kafka_scram_password"]):
        return "user and password belong together: set both, or neither"
    return None


def _dev_kek_is_local(v: Values) -> str | None:
    return (
        "only in `local`; elsewhere name the key's variable in KEK_REF"
        if v["dev_kek"] and v["env"] != "local"
        else None
    )


def _prefix(v: Values) -> str | None:
    return prefix_problem(v["topic_prefix"])


def _kept_long_enough(topic: str) -> Callable[[Values], str | None]:
    """A job must not outlive the topics it is rebuilt from: the rule, and its words, are those of the topics."""

    def broken(v: Values) -> str | None:
        retentions = Retentions(**{field: v[attribute] for field, attribute in RETENTIONS.items()})
        problems = retention_problems(retentions, v["backoff_caps_ms"], v["max_age_ms"])
        return next((problem for problem in problems if problem.startswith(topic)), None)

    return broken


def at_most(name: str, attribute: str, other: str, other_attribute: str) -> Relation:
    def broken(v: Values) -> str | None:
        over = v[attribute] > v[other_attribute]
        return f"expected at most {other} ({tier_name(v[other_attribute])})" if over else None

    return Relation(name, (attribute, other_attribute), broken)


def _drain_fits(v: Values) -> str | None:
    total_ms = v["shutdown_timeout_ms"] + v["pre_stop_drain_timeout_ms"]
    if total_ms <= DRAIN_MS_MAX:
        return None
    return f"{tier_name(total_ms)} with PRE_STOP_DRAIN_TIMEOUT: expected at most {tier_name(DRAIN_MS_MAX)}"


_KEPT: Final = (*RETENTIONS.values(), "backoff_caps_ms", "max_age_ms")
RELATIONS: Final[tuple[Relation, ...]] = (
    Relation("KAFKA_TLS_ENABLED", ("kafka_tls_enabled", "env", "allow_insecure_kafka"), _plain_text),
    Relation("KAFKA_SCRAM_MECHANISM", ("kafka_scram_username", "kafka_scram_mechanism"), _user_needs_mechanism),
    Relation("KAFKA_SCRAM_PASSWORD", ("kafka_scram_username", "kafka_scram_password"), _user_and_password),
    Relation("DEV_KEK", ("dev_kek", "env"), _dev_kek_is_local),
    Relation("TOPIC_PREFIX", ("topic_prefix",), _prefix),
    Relation("MAX_AGE", _KEPT, _kept_long_enough("deliveries")),
    Relation("ATTEMPTS_RETENTION", _KEPT, _kept_long_enough("attempts")),
    Relation("DEAD_LETTER_RETENTION", _KEPT, _kept_long_enough("dlq")),
    Relation("EVENTS_RETENTION", _KEPT, _kept_long_enough("queue")),
    Relation("SHUTDOWN_TIMEOUT", ("shutdown_timeout_ms", "pre_stop_drain_timeout_ms"), _drain_fits),
    at_most("DISPATCH_CONNECT_TIMEOUT", "dispatch_connect_timeout_ms", "DISPATCH_TIMEOUT", "dispatch_timeout_ms"),
    at_most("BREAKER_OPEN", "breaker_open_ms", "BREAKER_OPEN_MAX", "breaker_open_ms_max"),
    at_most(
        "AUTODISABLE_FAILURE_SPREAD",
        "autodisable_failure_spread_ms",
        "AUTODISABLE_FAILURE_WINDOW",
        "autodisable_failure_window_ms",
    ),
)
