"""What settings must be to each other. Each relation names the setting to change and says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from hub_app.settings.readers import duration_text

HOUR_MS: Final = 3_600_000
WORK_RETENTION_MS: Final = 240 * HOUR_MS  # hub.deliveries and hub.retry.*
UNATTEMPTED_GRACE_MS: Final = 24 * HOUR_MS  # a job never attempted dies this long after MAX_AGE
INACTIVE_GRACE_MS: Final = 96 * HOUR_MS  # a job of an inactive subscription is given up after this
DRAIN_MS_MAX: Final = 80_000

Values = Mapping[str, Any]


class Relation(NamedTuple):
    """`broken` gives the detail when the relation does not hold; it is asked only when all of `needs` could be read."""

    name: str
    needs: tuple[str, ...]
    broken: Callable[[Values], str | None]


def job_life_ms(max_age_ms: int, backoff_caps_ms: tuple[int, ...]) -> int:
    """The longest a delivery can be unfinished: until its last attempt, waiting for it, and disabled or deferred."""
    return max_age_ms + UNATTEMPTED_GRACE_MS + INACTIVE_GRACE_MS + max(backoff_caps_ms)


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


def _prefix_is_not_a_producers(v: Values) -> str | None:
    if v["topic_prefix"].startswith("lerian."):
        return "internal topics would carry producers' names: expected a prefix that does not begin with lerian."
    return None


def _a_job_fits(v: Values) -> str | None:
    life_ms = job_life_ms(v["max_age_ms"], v["backoff_caps_ms"])
    if life_ms <= WORK_RETENTION_MS:
        return None
    return (
        f"a job could live {duration_text(life_ms)} (with the longest BACKOFF, 24h unattempted and 96h inactive), "
        f"and its topics keep {duration_text(WORK_RETENTION_MS)}: expected a shorter age"
    )


def _attempts_outlive_jobs(v: Values) -> str | None:
    life_ms = job_life_ms(v["max_age_ms"], v["backoff_caps_ms"])
    if v["attempts_retention_ms"] >= life_ms:
        return None
    return f"a job can live {duration_text(life_ms)}, and its outcomes must be kept as long"


def at_most(name: str, attribute: str, other: str, other_attribute: str) -> Relation:
    def broken(v: Values) -> str | None:
        over = v[attribute] > v[other_attribute]
        return f"expected at most {other} ({duration_text(v[other_attribute])})" if over else None

    return Relation(name, (attribute, other_attribute), broken)


def _drain_fits(v: Values) -> str | None:
    total_ms = v["shutdown_timeout_ms"] + v["pre_stop_drain_timeout_ms"]
    if total_ms <= DRAIN_MS_MAX:
        return None
    return f"{duration_text(total_ms)} with PRE_STOP_DRAIN_TIMEOUT: expected at most {duration_text(DRAIN_MS_MAX)}"


RELATIONS: Final[tuple[Relation, ...]] = (
    Relation("KAFKA_TLS_ENABLED", ("kafka_tls_enabled", "env", "allow_insecure_kafka"), _plain_text),
    Relation("KAFKA_SCRAM_MECHANISM", ("kafka_scram_username", "kafka_scram_mechanism"), _user_needs_mechanism),
    Relation("KAFKA_SCRAM_PASSWORD", ("kafka_scram_username", "kafka_scram_password"), _user_and_password),
    Relation("DEV_KEK", ("dev_kek", "env"), _dev_kek_is_local),
    Relation("TOPIC_PREFIX", ("topic_prefix",), _prefix_is_not_a_producers),
    Relation("MAX_AGE", ("max_age_ms", "backoff_caps_ms"), _a_job_fits),
    Relation("ATTEMPTS_RETENTION", ("attempts_retention_ms", "max_age_ms", "backoff_caps_ms"), _attempts_outlive_jobs),
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
