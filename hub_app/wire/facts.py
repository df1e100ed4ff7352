"""`hub.facts`: an admitted event. Key: tenant. Value: the payload, byte for byte.

    hub-tenant hub-topic hub-received-at hub-origin-partition hub-origin-offset hub-schema, then the event's headers

The origin is where the record lay in `lerian.streaming.<hub-topic>`; both are empty for an event published over HTTP.
"""

from __future__ import annotations

from functools import lru_cache

from hub_app.domain.cloudevents import Accept
from hub_app.domain.fact import Fact
from hub_app.domain.ids import seq_of
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import TEXTS_MAX
from hub_app.domain.sources import FACTS_PREFIX
from hub_app.wire.record import (
    SCHEMA,
    SCHEMA_HEADER,
    Headers,
    HeadersRead,
    Unreadable,
    carried,
    instant,
    number,
    own_headers,
    text,
)

_LAYOUT = ["hub-tenant", "hub-topic", "hub-received-at", "hub-origin-partition", "hub-origin-offset", "hub-schema"]
_OWN = len(_LAYOUT)


def write(accept: Accept, *, received_at_ms: int, origin: tuple[int, int] | None) -> Headers:
    """Headers of the facts record; its key is `accept.key`, its value the payload (null as empty).
    `origin` is (partition, offset) in the producer's topic; None for an event published over HTTP."""
    partition, offset = (b"%d" % origin[0], b"%d" % origin[1]) if origin else (b"", b"")
    return [
        ("hub-tenant", accept.key),
        ("hub-topic", accept.topic.encode()),
        ("hub-received-at", rfc3339_bytes(received_at_ms)),
        ("hub-origin-partition", partition),
        ("hub-origin-offset", offset),
        SCHEMA_HEADER,
        *accept.headers,
    ]


def read(headers: HeadersRead, value: bytes | None, *, epoch: int, offset: int) -> Fact | Unreadable:
    """The fact of a record at `offset` of its shard's partition in `epoch`. Total."""
    found: dict[str, bytes] = dict(headers)  # type: ignore[arg-type]  # a null fails below, as a value of no use
    try:
        in_order = [name for name, _ in headers[:_OWN]] == _LAYOUT
        if found["hub-schema"] != SCHEMA:
            return Unreadable(f"fact: schema {found['hub-schema']!r}")
        type = found["ce-type"]
        return Fact(
            seq_of(epoch, offset),
            text(found["hub-tenant"]),
            text(found["hub-topic"]),
            text(found["ce-source"]),
            found["ce-id"].decode(),
            text(type),
            _event_type(type, found.get("ce-resourcetype"), found.get("ce-eventtype")),
            carried(headers[_OWN:] if in_order else headers),
            value or b"",
            instant(found["hub-received-at"]),
        )
    except KeyError as missing:
        return Unreadable(f"fact: no {missing.args[0]}")
    except (ValueError, TypeError, AttributeError) as error:
        return Unreadable(f"fact: {error}")


def origin(headers: HeadersRead) -> tuple[str, int, int] | None:
    """Where the fact came from, as (topic, partition, offset); None for a published one, or when that is unreadable."""
    own = own_headers(headers)
    try:
        place = number(own["hub-origin-partition"]), number(own["hub-origin-offset"])
        return f"{FACTS_PREFIX}{text(own['hub-topic'])}", *place
    except (KeyError, ValueError):
        return None


@lru_cache(maxsize=TEXTS_MAX)
def _event_type(type: bytes, resource: bytes | None, event: bytes | None) -> str:
    if resource and event:
        return f"{text(resource)}.{text(event)}"
    return text(type)
