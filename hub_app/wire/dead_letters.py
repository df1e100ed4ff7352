"""`hub.dlq`: deliveries given up. Key: tenant. Value: the payload, byte for byte, unless it would not fit.

    hub-reason hub-status hub-error hub-died-at, then the job's headers (`wire.jobs`), then the event's

A record that would be larger than a topic takes goes without its value and says so: `hub-payload-omitted: true` and
`hub-payload-bytes`. The fact itself is still in `hub.facts`, at `hub-seq`.

What people did with one stands in a record without value, after it in the log:

    hub-mark (redriven, discarded) hub-delivery-id hub-tenant hub-series hub-at hub-schema
"""

from __future__ import annotations

from binascii import hexlify, unhexlify
from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from hub_app.domain.delivery import Job
from hub_app.domain.ids import tenant_key
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import RECORD_BYTES_MAX
from hub_app.wire import jobs
from hub_app.wire.record import (
    OMITTED,
    SCHEMA,
    SCHEMA_HEADER,
    Header,
    Headers,
    HeadersRead,
    Record,
    Unreadable,
    carried,
    error_text,
    instant,
    number,
    own_headers,
    record_bytes,
    text,
)


class DeadLetter(NamedTuple):
    """A delivery given up: `job` as it was last to be attempted, why, and the last attempt's status and error.
    `value` is None where the payload was left out (`payload_bytes` tells how large it was)."""

    job: Job
    reason: str
    at_ms: int
    status: int | None
    error: str
    headers: tuple[Header, ...]
    value: bytes | None
    payload_bytes: int


class MarkKind(StrEnum):
    REDRIVEN = "redriven"
    DISCARDED = "discarded"


class Mark(NamedTuple):
    """What became of a dead letter. `series` is that of the new delivery, empty where it was discarded."""

    kind: MarkKind
    tenant: str
    delivery_id: bytes
    series: str
    at_ms: int


def write_mark(mark: Mark) -> Record:
    headers: Headers = [
        ("hub-mark", mark.kind.value.encode()),
        ("hub-delivery-id", hexlify(mark.delivery_id)),
        ("hub-tenant", mark.tenant.encode()),
        ("hub-series", mark.series.encode()),
        ("hub-at", rfc3339_bytes(mark.at_ms)),
        SCHEMA_HEADER,
    ]
    return Record(tenant_key(mark.tenant), b"", headers)


def write(
    job: Job,
    headers: Iterable[Header],
    value: bytes,
    *,
    reason: str,
    at_ms: int,
    status: int | None = None,
    error: str = "",
) -> Record:
    """The record of a dead letter; `headers` are the event's own. Always fits."""
    key = tenant_key(job.tenant)
    head: Headers = [
        ("hub-reason", reason.encode()),
        ("hub-status", b"" if status is None else b"%d" % status),
        ("hub-error", error_text(error)),
        ("hub-died-at", rfc3339_bytes(at_ms)),
    ]
    whole = head + jobs.write(job, headers)
    if record_bytes(key, value, whole) <= RECORD_BYTES_MAX:
        return Record(key, value, whole)
    return Record(key, b"", [OMITTED, ("hub-payload-bytes", b"%d" % len(value)), *whole])


def read(headers: HeadersRead, value: bytes | None) -> DeadLetter | Unreadable:
    """The dead letter of a record. Total. A mark is none: ask `read_mark` first."""
    job = jobs.read(headers)
    if isinstance(job, Unreadable):
        return job
    own = own_headers(headers)
    try:
        omitted = own.get("hub-payload-omitted") == b"true"
        status, error = own.get("hub-status"), own.get("hub-error", b"")
        return DeadLetter(
            job,
            text(own["hub-reason"]),
            instant(own["hub-died-at"]),
            number(status) if status else None,
            error.decode(),
            carried(headers),
            None if omitted else value or b"",
            number(own["hub-payload-bytes"]) if omitted else len(value or b""),
        )
    except KeyError as missing:
        return Unreadable(f"dead letter: no {missing.args[0]}")
    except ValueError as error_found:
        return Unreadable(f"dead letter: {error_found}")


def read_mark(headers: HeadersRead) -> Mark | Unreadable | None:
    """What became of a dead letter; None for a record that says nothing of that. Total."""
    own = own_headers(headers)
    if "hub-mark" not in own:
        return None
    try:
        if own["hub-schema"] != SCHEMA:
            return Unreadable(f"dead letter: schema {own['hub-schema']!r}")
        return Mark(
            MarkKind(own["hub-mark"].decode()),
            text(own["hub-tenant"]),
            unhexlify(own["hub-delivery-id"]),
            text(own["hub-series"]),
            instant(own["hub-at"]),
        )
    except KeyError as missing:
        return Unreadable(f"dead letter: no {missing.args[0]}")
    except ValueError as error:
        return Unreadable(f"dead letter: {error}")
