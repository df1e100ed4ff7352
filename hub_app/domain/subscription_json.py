"""A subscription as JSON: its record in the log, and the read model of the API."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from hub_app.domain.filters import FieldProblem, Filter, parse_filters, to_json
from hub_app.domain.instants import rfc3339
from hub_app.domain.limits import SECOND_MS
from hub_app.domain.queue_sinks import duration_ms, duration_text
from hub_app.domain.subscription import QueueSink, SealedText, Sink, Subscription, Verification, WebhookSink

MASK: Final = "***"
"""Shown instead of the value of a static header that looks like a credential."""

_CREDENTIAL: Final = re.compile(r"auth|token|secret|key|passw|cookie|credential|session|signature", re.IGNORECASE)


def sink_json(sink: Sink) -> dict[str, object]:
    """As a request writes it."""
    if isinstance(sink, QueueSink):
        return {
            "type": "queue",
            "topic": sink.topic,
            "name": sink.name,
            "receiveLockDurationInSeconds": sink.lock_ms // SECOND_MS,
            "maxDeliveryCount": sink.deliveries_max,
            "eventTimeToLive": duration_text(sink.ttl_ms),
        }
    return {"type": "webhook", "url": sink.url, "headers": dict(sink.headers), "timeout_ms": sink.timeout_ms}


def to_record(subscription: Subscription) -> dict[str, object]:
    """Plain JSON values for the log, sealed secrets included. Instants stay integers of milliseconds."""
    plain = {name: getattr(subscription, name) for name in subscription.__slots__}
    return plain | {
        "event_types": list(subscription.event_types),
        "origin": list(subscription.origin),
        "filters": to_json(subscription.filters),
        "sink": _sink_record(subscription.sink),
        "verification_state": subscription.verification_state.value,
    }


def from_record(record: Mapping[str, object]) -> Subscription:
    """The inverse of `to_record`. ValueError when the record cannot be one; unknown fields are ignored, so that a
    worker of an older version reads what a newer one wrote."""
    get = _Reader(record)
    filters = parse_filters(record.get("filters"))
    if filters and isinstance(filters[0], FieldProblem):
        raise ValueError(f"filters: {filters[0]}")
    return Subscription(
        id=get.text("id"),
        tenant=get.text("tenant"),
        name=get.text("name"),
        event_types=get.texts("event_types"),
        origin=get.texts("origin"),
        filters=tuple(one for one in filters if isinstance(one, Filter)),
        sink=_sink_of(record.get("sink")),
        destination=get.text("destination"),
        enabled=get.flag("enabled"),
        verification_state=Verification(get.text("verification_state")),
        disabled_reason=get.text_or_none("disabled_reason"),
        disabled_at_ms=get.number_or_none("disabled_at_ms"),
        enabled_at_ms=get.number("enabled_at_ms"),
        inactive_since_ms=get.number_or_none("inactive_since_ms"),
        created_at_ms=get.number("created_at_ms"),
        updated_at_ms=get.number("updated_at_ms"),
        revision=get.number("revision"),
        secret=get.text("secret"),
        previous_secret=get.text_or_none("previous_secret"),
        previous_secret_until_ms=get.number_or_none("previous_secret_until_ms"),
    )


def to_public(subscription: Subscription) -> dict[str, object]:
    """The read model of the API; never a secret. Static headers that look like credentials are masked."""
    disabled_at_ms = subscription.disabled_at_ms
    sink = sink_json(subscription.sink)
    if isinstance(subscription.sink, WebhookSink):
        sink["headers"] = {
            name: MASK if looks_secret(name) or isinstance(value, SealedText) else value
            for name, value in subscription.sink.headers
        }
    return {
        "id": subscription.id,
        "tenant": subscription.tenant,
        "name": subscription.name,
        "event_types": list(subscription.event_types),
        "origin": list(subscription.origin),
        "filters": to_json(subscription.filters),
        "sink": sink,
        "enabled": subscription.enabled,
        "verification_state": subscription.verification_state.value,
        "disabled_reason": subscription.disabled_reason,
        "disabled_at": None if disabled_at_ms is None else rfc3339(disabled_at_ms),
        "created_at": rfc3339(subscription.created_at_ms),
        "updated_at": rfc3339(subscription.updated_at_ms),
        "revision": subscription.revision,
        "destination": subscription.destination,
    }


def looks_secret(header: str) -> bool:
    """Whether the value of a static header of this name is not shown again."""
    return _CREDENTIAL.search(header) is not None


def _sink_record(sink: Sink) -> dict[str, object]:
    plain = sink_json(sink)
    if isinstance(sink, WebhookSink):
        plain["headers"] = {
            name: {"sealed": str(value), "chars": value.chars} if isinstance(value, SealedText) else value
            for name, value in sink.headers
        }
    return plain


def _header_of(value: object) -> str:
    if isinstance(value, Mapping):
        get = _Reader(value)
        return SealedText(get.text("sealed"), get.number("chars"))
    return _Reader({"headers": value}).text("headers")


def _sink_of(obj: object) -> Sink:
    if isinstance(obj, Mapping) and obj.get("type") == "queue":
        return _queue_of(obj)
    if not isinstance(obj, Mapping) or obj.get("type") != "webhook":
        raise ValueError("sink: not one that this version knows")
    get, headers = _Reader(obj), obj.get("headers")
    if not isinstance(headers, Mapping):
        raise _malformed("headers", "an object")
    pairs = tuple((name, _header_of(value)) for name, value in headers.items())
    return WebhookSink(url=get.text("url"), headers=pairs, timeout_ms=get.number("timeout_ms"))


def _queue_of(obj: Mapping[str, object]) -> QueueSink:
    get, ttl_ms = _Reader(obj), duration_ms(obj.get("eventTimeToLive"))
    if ttl_ms is None:
        raise _malformed("eventTimeToLive", "a duration")
    return QueueSink(
        topic=get.text("topic"),
        name=get.text("name"),
        lock_ms=get.number("receiveLockDurationInSeconds") * SECOND_MS,
        deliveries_max=get.number("maxDeliveryCount"),
        ttl_ms=ttl_ms,
    )


class _Reader:
    """Typed fields of a record; ValueError names the field that is not what it must be."""

    def __init__(self, record: Mapping[str, object]) -> None:
        self._record = record

    def text(self, name: str) -> str:
        value = self._record.get(name)
        if not isinstance(value, str):
            raise _malformed(name, "a text")
        return value

    def number(self, name: str) -> int:
        value = self._record.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _malformed(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        value = self._record.get(name)
        if not isinstance(value, bool):
            raise _malformed(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._record.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _malformed(name, "a list of texts")
        return tuple(value)

    def text_or_none(self, name: str) -> str | None:
        return None if self._record.get(name) is None else self.text(name)

    def number_or_none(self, name: str) -> int | None:
        return None if self._record.get(name) is None else self.number(name)


def _malformed(name: str, wanted: str) -> ValueError:
    return ValueError(f"{name}: not {wanted}")
