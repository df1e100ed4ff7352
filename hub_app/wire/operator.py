"""`hub.operator`: what people are told about their subscriptions and sinks. Key and partition: tenant. Value: JSON.

    {"id": "op_…", "kind": "breaker.opened", "at": "…", "destination": "https://…", "subscription": null, "mark": "…",
     "detail": "…"}

Written at least once: a repeat has the same `id`.
"""

from __future__ import annotations

import orjson

from hub_app.domain.ids import tenant_key
from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.wire.record import SCHEMA_HEADER, Record, Unreadable


def to_json(event: OperatorEvent) -> dict[str, object]:
    """As the record and the API show it."""
    return {
        "id": event.id,
        "kind": event.kind.value,
        "at": rfc3339(event.at_ms),
        "destination": event.destination or None,
        "subscription": event.subscription or None,
        "detail": event.detail,
    }


def write(event: OperatorEvent) -> Record:
    value = orjson.dumps({**to_json(event), "mark": event.mark})
    return Record(tenant_key(event.tenant), value, [SCHEMA_HEADER])


def read(key: bytes | None, value: bytes | None) -> OperatorEvent | Unreadable:
    """What a record says. Total."""
    try:
        body = orjson.loads(value or b"")
        texts = [body[name] or "" for name in ("destination", "subscription", "mark", "detail")]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("not a text")
        return OperatorEvent((key or b"").decode(), OperatorKind(body["kind"]), parse_rfc3339(body["at"]), *texts)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unreadable(f"operator event: {error!r}")
