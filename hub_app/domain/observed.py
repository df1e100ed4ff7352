"""What a producer's dead letter says of itself (docs/wire.md, "Producers' dead-letter headers"). Reading never fails.

Of a repeated header the last one counts. Bytes that are no UTF-8, attributes that are broken, a source that is not the
topic's, classes and kinds that nobody knows: all are normal here, and kept as they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from hub_app.domain.ids import SEP
from hub_app.domain.instants import parse_rfc3339

PREFIX: Final = "x-lerian-dlq-"
OFFSET_MAX: Final = (1 << 63) - 1
CLASSES: Final = (
    "serialization_error",
    "validation_error",
    "auth_error",
    "topic_not_found",
    "broker_unavailable",
    "network_timeout",
    "context_canceled",
    "broker_overloaded",
)


class Origin(NamedTuple):
    """Where the record lay that a consumer gave up. Void as a whole if any part is malformed."""

    topic: str
    partition: int
    offset: int


class Observed(NamedTuple):
    """`retries` and `first_failure_ms` are None where they make no sense; texts are empty where they are absent."""

    source_topic: str
    error_class: str
    error_message: str
    retries: int | None
    first_failure_ms: int | None
    producer: str
    origin: Origin | None
    cause_kind: str
    payload_omitted: bool
    payload_bytes: int | None
    tenant: str
    event_id: str
    event_type: str


def read(headers: Sequence[tuple[str, bytes | None]]) -> Observed:
    """Total."""
    last = {name.lower(): (value or b"").decode("utf-8", "replace") for name, value in headers}

    def own(name: str) -> str:
        return last.get(PREFIX + name, "")

    return Observed(
        source_topic=own("source-topic"),
        error_class=own("error-class"),
        error_message=own("error-message"),
        retries=_count(own("retry-count")),
        first_failure_ms=_instant(own("first-failure-at")),
        producer=own("producer-id"),
        origin=_origin(own("source-topic"), own("source-partition"), own("source-offset")),
        cause_kind=own("cause-kind"),
        payload_omitted=own("payload-omitted") == "true",
        payload_bytes=_count(own("payload-bytes")),
        tenant=last.get("ce-tenantid", last.get("ce_tenantid", "")),
        event_id=last.get("ce-id", last.get("ce_id", "")),
        event_type=last.get("ce-type", last.get("ce_type", "")),
    )


def observation_id(observed: Observed, topic: str, partition: int, offset: int) -> str:
    """The same for records about one origin: never told by `ce-id`. Without an origin, that of the record's own
    place."""
    place = observed.origin or Origin(topic, partition, offset)
    kind = "origin" if observed.origin else "record"
    text = SEP.join((kind, place.topic, str(place.partition), str(place.offset)))
    return "obs_" + blake2b(text.encode(), digest_size=16).hexdigest()


def _origin(topic: str, partition: str, offset: str) -> Origin | None:
    p, o = _count(partition), _count(offset)
    return Origin(topic, p, o) if topic and p is not None and p < 1 << 31 and o is not None else None


def _count(text: str) -> int | None:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    count = int(text)
    return count if count <= OFFSET_MAX else None


def _instant(text: str) -> int | None:
    try:
        return parse_rfc3339(text)
    except ValueError:
        return None
