"""`hub.queue`: what happened to the events of queues. Key: tenant. Value: one line per event.

    hub-action hub-tenant hub-subscription hub-series hub-at hub-until hub-schema

    enqueued        <seq> <received at, RFC 3339>      the queue has these events
    locked          <seq> <delivery>                   received; the lock ends at hub-until
    renewed         <seq> <delivery>                   the lock ends at hub-until
    released        <seq> <delivery>                   to be received again from hub-until on, empty: at once
    acknowledged    <seq> <delivery>                   done
    buried          <seq> <delivery>                   in hub.dlq

`hub-series` is empty, or the operation that put the events there once more. A record speaks of the row that has its
series and its delivery, and changes no other: so reading a part of the log again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import NamedTuple

from hub_app.domain.ids import tenant_key
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import QUEUE_MARKS_PER_RECORD_MAX
from hub_app.wire.record import (
    SCHEMA,
    SCHEMA_HEADER,
    HeadersRead,
    Record,
    Unreadable,
    instant,
    instant_or_zero,
    instant_text,
    number,
    own_headers,
    text,
)

_ENQUEUED = b"enqueued"


class Action(Enum):
    LOCKED = "locked"
    RENEWED = "renewed"
    RELEASED = "released"
    ACKNOWLEDGED = "acknowledged"
    BURIED = "buried"


_ACTIONS = {action.value.encode(): action for action in Action}


class Enqueued(NamedTuple):
    """Events of one queue: (seq, received at), in the order of seq."""

    tenant: str
    subscription: str
    series: str
    at_ms: int
    events: tuple[tuple[int, int], ...]


class Marked(NamedTuple):
    """What happened to deliveries: (seq, delivery). `until_ms` as the action says."""

    action: Action
    tenant: str
    subscription: str
    series: str
    at_ms: int
    until_ms: int
    marks: tuple[tuple[int, int], ...]


def write_enqueued(
    tenant: str, subscription: str, events: Iterable[tuple[int, int]], *, at_ms: int, series: str = ""
) -> Iterator[Record]:
    """One record, or several when there are very many events; none for none."""
    rest = iter(events)
    while some := tuple(islice(rest, QUEUE_MARKS_PER_RECORD_MAX)):
        lines = [b"%d %b\n" % (seq, rfc3339_bytes(received_at_ms)) for seq, received_at_ms in some]
        yield _record(_ENQUEUED, tenant, subscription, series, at_ms, 0, lines)


def write_marked(marked: Marked) -> Iterator[Record]:
    """As `write_enqueued`."""
    action, tenant, subscription, series, at_ms, until_ms, marks = marked
    rest = iter(marks)
    while some := tuple(islice(rest, QUEUE_MARKS_PER_RECORD_MAX)):
        lines = [b"%d %d\n" % mark for mark in some]
        yield _record(action.value.encode(), tenant, subscription, series, at_ms, until_ms, lines)


def _record(
    action: bytes, tenant: str, subscription: str, series: str, at_ms: int, until_ms: int, lines: list[bytes]
) -> Record:
    headers = [
        ("hub-action", action),
        ("hub-tenant", tenant.encode()),
        ("hub-subscription", subscription.encode()),
        ("hub-series", series.encode()),
        ("hub-at", rfc3339_bytes(at_ms)),
        ("hub-until", instant_text(until_ms)),
        SCHEMA_HEADER,
    ]
    return Record(tenant_key(tenant), b"".join(lines), headers)


def read(headers: HeadersRead, value: bytes | None) -> Enqueued | Marked | Unreadable:
    """What a record says. Total."""
    own = own_headers(headers)
    try:
        if own["hub-schema"] != SCHEMA:
            return Unreadable(f"queue: schema {own['hub-schema']!r}")
        names = text(own["hub-tenant"]), text(own["hub-subscription"]), text(own["hub-series"])
        at_ms, lines = instant(own["hub-at"]), [line.split(b" ") for line in (value or b"").splitlines()]
        if own["hub-action"] == _ENQUEUED:
            return Enqueued(*names, at_ms, tuple([(number(seq), instant(at)) for seq, at in lines]))
        action, until_ms = _ACTIONS[own["hub-action"]], instant_or_zero(own["hub-until"])
        return Marked(action, *names, at_ms, until_ms, tuple([(number(seq), number(n)) for seq, n in lines]))
    except KeyError as missing:
        return Unreadable(f"queue: no {missing.args[0]!r}")
    except ValueError as error:
        return Unreadable(f"queue: {error}")
