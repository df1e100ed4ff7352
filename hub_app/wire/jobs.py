"""`hub.deliveries`, `hub.retry.<tier>`, `hub.retry.parked`: a delivery to be made. Key: tenant and destination. Value:
the payload, byte for byte.

    hub-delivery-id hub-subscription hub-subscriptions-offset hub-destination hub-series hub-attempt hub-moves
    hub-not-before hub-reclaims, hub-tenant hub-topic hub-seq hub-received-at hub-schema, then the event's headers

Everything from `hub-tenant` on is the same for all deliveries of a fact: made once (`shared`), appended to each.
An empty `hub-not-before` means at once; an empty `hub-series` the ordinary delivery.
"""

from __future__ import annotations

from binascii import hexlify, unhexlify
from collections.abc import Iterable, Sequence

from hub_app.domain.delivery import Job
from hub_app.domain.fact import Fact
from hub_app.domain.ids import DELIVERY_ID_BYTES
from hub_app.domain.instants import rfc3339_bytes
from hub_app.wire.record import (
    SCHEMA,
    SCHEMA_HEADER,
    Header,
    Headers,
    HeadersRead,
    Unreadable,
    carried,
    instant,
    instant_or_zero,
    instant_text,
    number,
    own_headers,
    small,
    text,
)

__all__ = ["LAYOUT", "carried", "read", "read_block", "read_record", "shared", "write", "write_shared"]

LAYOUT = [
    "hub-delivery-id",
    "hub-subscription",
    "hub-subscriptions-offset",
    "hub-destination",
    "hub-series",
    "hub-attempt",
    "hub-moves",
    "hub-not-before",
    "hub-reclaims",
    "hub-tenant",
    "hub-topic",
    "hub-seq",
    "hub-received-at",
    "hub-schema",
]
_OWN = len(LAYOUT)


def shared(fact: Fact) -> Headers:
    """What all deliveries of a fact have in common, for `write_shared`."""
    return [
        ("hub-tenant", fact.tenant.encode()),
        ("hub-topic", fact.topic.encode()),
        ("hub-seq", b"%d" % fact.seq),
        ("hub-received-at", rfc3339_bytes(fact.received_at_ms)),
        SCHEMA_HEADER,
        *fact.headers,
    ]


def write_shared(job: Job, shared: Headers) -> Headers:
    """Headers of a matched job; `shared` is that of its fact, and left as it is."""
    return [
        ("hub-delivery-id", hexlify(job.delivery_id)),
        ("hub-subscription", job.subscription.encode()),
        ("hub-subscriptions-offset", b"%d" % job.subscriptions_offset),
        ("hub-destination", job.destination.encode()),
        ("hub-series", job.series.encode()),
        ("hub-attempt", b"%d" % job.attempt),
        ("hub-moves", b"%d" % job.moves),
        ("hub-not-before", instant_text(job.not_before_ms)),
        ("hub-reclaims", b"%d" % job.reclaims),
        *shared,
    ]


def write(job: Job, headers: Iterable[Header] = ()) -> Headers:
    """Headers of a job's record; `headers` are the event's own (`carried`). The key is `ids.destination_key`."""
    return [
        ("hub-delivery-id", hexlify(job.delivery_id)),
        ("hub-subscription", job.subscription.encode()),
        ("hub-subscriptions-offset", b"%d" % job.subscriptions_offset),
        ("hub-destination", job.destination.encode()),
        ("hub-series", job.series.encode()),
        ("hub-attempt", b"%d" % job.attempt),
        ("hub-moves", b"%d" % job.moves),
        ("hub-not-before", instant_text(job.not_before_ms)),
        ("hub-reclaims", b"%d" % job.reclaims),
        ("hub-tenant", job.tenant.encode()),
        ("hub-topic", job.topic.encode()),
        ("hub-seq", b"%d" % job.seq),
        ("hub-received-at", rfc3339_bytes(job.received_at_ms)),
        SCHEMA_HEADER,
        *headers,
    ]


def read(headers: HeadersRead) -> Job | Unreadable:
    """The job of a record. Total. The event's headers are `carried(headers)`; `read_record` gives both at once."""
    return read_block(headers, 0)


def read_record(headers: HeadersRead) -> tuple[Job, tuple[Header, ...]] | Unreadable:
    """(job, the event's own headers) of a record. Total."""
    job = read_block(headers, 0)
    if isinstance(job, Unreadable):
        return job
    if [name for name, _ in headers[:_OWN]] == LAYOUT:
        headers = headers[_OWN:]
    return job, carried(headers)


def read_block(headers: HeadersRead, start: int) -> Job | Unreadable:
    """The job whose block of headers begins at `start`, or wherever its headers are. Total."""
    block = headers[start : start + _OWN]
    try:
        if [name for name, _ in block] == LAYOUT:
            return _job([data or b"" for _, data in block])
        own = own_headers(headers)
        return _job([own[name] for name in LAYOUT])
    except KeyError as missing:
        return Unreadable(f"job: no {missing.args[0]}")
    except ValueError as error:
        return Unreadable(f"job: {error}")


def _job(values: Sequence[bytes]) -> Job | Unreadable:
    id, subscription, offset, destination, series, attempt, moves, not_before, reclaims, *rest = values
    tenant, topic, seq, received_at, schema = rest
    if schema != SCHEMA:
        return Unreadable(f"job: schema {schema!r}")
    if len(id) != 2 * DELIVERY_ID_BYTES:
        return Unreadable("job: hub-delivery-id is not 32 hexadecimal digits")
    tries = small(attempt)
    if not tries:
        return Unreadable("job: hub-attempt counts from 1")
    return Job(
        unhexlify(id),
        tries,
        small(moves),
        text(tenant),
        text(destination),
        text(subscription),
        text(series),
        number(seq),
        text(topic),
        instant(received_at),
        instant_or_zero(not_before),
        small(offset),
        small(reclaims),
    )
