"""`hub.observations`: producers' dead letters, in short. Key: the topic they lay in. Value: JSON, with the payload's
first 16 KiB in base64. Error texts may hold personal data: for administrators alone."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any, Final

import orjson

from hub_app.domain.instants import rfc3339
from hub_app.domain.limits import KIB
from hub_app.domain.observed import observation_id, read
from hub_app.wire.record import SCHEMA_HEADER, HeadersRead, Record, Unreadable, cut

PAYLOAD_BYTES_KEPT: Final = 16 * KIB
TEXT_BYTES_KEPT: Final = 4 * KIB


def write(
    topic: str,
    partition: int,
    offset: int,
    at_ms: int,
    headers: Sequence[tuple[str, bytes | None]],
    value: bytes | None,
) -> Record:
    """The observation of a record of `lerian.streaming.<source>.dlq`. Always fits."""
    seen, payload = read(headers), value or b""
    body = {
        "id": observation_id(seen, topic, partition, offset),
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "at": rfc3339(at_ms),
        "source_topic": _kept(seen.source_topic),
        "error_class": _kept(seen.error_class),
        "error_message": _kept(seen.error_message),
        "retries": seen.retries,
        "first_failure_at": _instant(seen.first_failure_ms),
        "producer": _kept(seen.producer),
        "origin": seen.origin._asdict() if seen.origin else None,
        "cause_kind": _kept(seen.cause_kind),
        "tenant": _kept(seen.tenant),
        "event_id": _kept(seen.event_id),
        "event_type": _kept(seen.event_type),
        "payload_omitted": seen.payload_omitted,
        "payload_bytes": seen.payload_bytes if seen.payload_omitted else len(payload),
        "payload_base64": base64.b64encode(payload[:PAYLOAD_BYTES_KEPT]).decode(),
        "payload_cut": len(payload) > PAYLOAD_BYTES_KEPT,
    }
    return Record(topic.encode(), orjson.dumps(body), [SCHEMA_HEADER])


def read_value(value: bytes | None, _headers: HeadersRead = ()) -> dict[str, Any] | Unreadable:
    """Total."""
    try:
        body = orjson.loads(value or b"")
    except orjson.JSONDecodeError as error:
        return Unreadable(f"observation: {error}")
    return body if isinstance(body, dict) and "id" in body else Unreadable("observation: another shape")


def _kept(text: str) -> str:
    return cut(text, TEXT_BYTES_KEPT).decode()


def _instant(ms: int | None) -> str | None:
    try:
        return None if ms is None else rfc3339(ms)
    except ValueError:
        return None
