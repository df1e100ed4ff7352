"""`hub.quarantine`: records that cannot be admitted, as they came: key, value and headers. Partitioned by origin topic.

    hub-reason hub-detail hub-origin-topic hub-origin-partition hub-origin-offset hub-schema, then the original headers

Between them stand, where they apply: `hub-nulls` (what was null and is empty now: `value`, or positions of headers),
`hub-names` (positions of headers whose names were not UTF-8: such bytes are written `\\xff`, and a backslash twice),
`hub-payload-omitted` and `hub-payload-bytes`, `hub-headers-omitted` (how many), `hub-key-omitted`: a record too large
even for this topic loses its value first, then its headers, then its key; the origin says where the whole still lies.
"""

from __future__ import annotations

import re
from typing import NamedTuple, Protocol

from hub_app.domain.limits import DETAIL_BYTES_MAX, RECORD_BYTES_MAX
from hub_app.domain.sources import source_of
from hub_app.wire import facts
from hub_app.wire.record import (
    OMITTED,
    SCHEMA,
    SCHEMA_HEADER,
    Header,
    Headers,
    HeadersRead,
    Unreadable,
    carried,
    cut,
    number,
    own_headers,
    record_bytes,
    text,
)

_NULLS_MAX = 64
_ODD = re.compile("[\udc80-\udcff]")
_ESCAPED = re.compile(r"\\(?:x([0-9a-f]{2})|\\)")


class Source(Protocol):
    """A record as a consumer gives it."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> HeadersRead: ...


class Quarantined(NamedTuple):
    """A record for the quarantine topic. `partition_key` is what decides its partition: the origin topic."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    partition_key: bytes


class Original(NamedTuple):
    """A quarantined record read back: why, where it came from, and what it was. `value` is None where it was null, or
    left out (then `payload_bytes` is not 0)."""

    reason: str
    detail: str
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    payload_bytes: int


def write(record: Source, *, reason: str, detail: str) -> Quarantined:
    """The quarantine record of `record`. Always fits. A record of `hub.facts` (a collision) keeps the origin that the
    fact came with."""
    place = None if source_of(record.topic) else facts.origin(record.headers)
    topic, partition, offset = place or (record.topic, record.partition, record.offset)
    head: Headers = [
        ("hub-reason", reason.encode()),
        ("hub-detail", cut(detail, DETAIL_BYTES_MAX)),
        ("hub-origin-topic", topic.encode()),
        ("hub-origin-partition", b"%d" % partition),
        ("hub-origin-offset", b"%d" % offset),
    ]
    nulls = [b"%d" % at for at, (_, data) in enumerate(record.headers) if data is None][:_NULLS_MAX]
    value = record.value
    if value is None and record.key is None:  # Kafka takes such a record, its clients do not
        nulls, value = [b"value", *nulls], b""
    if nulls:
        head.append(("hub-nulls", b",".join(nulls)))
    original = [(name, data or b"") for name, data in record.headers]
    odd = [at for at, (name, _) in enumerate(original) if not name.isascii() and _ODD.search(name)]
    if odd:
        head.append(("hub-names", b",".join([b"%d" % at for at in odd[:_NULLS_MAX]])))
        for at in odd:
            original[at] = (_written(original[at][0]), original[at][1])
    return _fitting(record.key, value, head, original, topic.encode())


def _written(name: str) -> str:
    """A name that is not UTF-8 (its odd bytes are lone surrogates) as text that can be written and read back."""
    return name.replace("\\", "\\\\").encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _as_it_was(name: str) -> str:
    """What `_written` was given."""
    return _ESCAPED.sub(lambda found: chr(0xDC00 + int(found[1], 16)) if found[1] else "\\", name)


def without_value(made: Quarantined) -> Quarantined:
    """The same without its value, and saying so."""
    at = [name for name, _ in made.headers].index("hub-schema")
    return made._replace(value=b"", headers=[*made.headers[:at], *_payload_omitted(made.value), *made.headers[at:]])


def read(headers: HeadersRead, key: bytes | None, value: bytes | None) -> Original | Unreadable:
    """The original of a quarantined record. Total."""
    names = [name for name, _ in headers]
    ordered = names[:1] == ["hub-reason"] and "hub-schema" in names
    end = names.index("hub-schema") + 1 if ordered else 0
    own = own_headers(headers[:end] if ordered else headers)
    rest = tuple(headers[end:]) if ordered else carried(headers)
    try:
        if own["hub-schema"] != SCHEMA:
            return Unreadable(f"quarantine: schema {own['hub-schema']!r}")
        nulls = own["hub-nulls"].split(b",") if "hub-nulls" in own else []
        positions = {number(at) for at in nulls if at != b"value"}
        odd = {number(at) for at in own["hub-names"].split(b",")} if "hub-names" in own else ()
        omitted = own.get("hub-payload-omitted") == b"true"
        return Original(
            text(own["hub-reason"]),
            own["hub-detail"].decode(),
            text(own["hub-origin-topic"]),
            number(own["hub-origin-partition"]),
            number(own["hub-origin-offset"]),
            key,
            None if omitted or b"value" in nulls else value,
            tuple(
                [
                    (_as_it_was(name) if at in odd else name, None if at in positions else data)
                    for at, (name, data) in enumerate(rest)
                ]
            ),
            number(own["hub-payload-bytes"]) if omitted else 0,
        )
    except KeyError as missing:
        return Unreadable(f"quarantine: no {missing.args[0]}")
    except ValueError as error:
        return Unreadable(f"quarantine: {error}")


def _fitting(
    key: bytes | None, value: bytes | None, head: Headers, original: list[Header], topic: bytes
) -> Quarantined:
    """Leaves out value, headers, key, in this order, until the record fits."""
    headers = [*head, SCHEMA_HEADER, *original]
    if record_bytes(key, value, headers) <= RECORD_BYTES_MAX:
        return Quarantined(key, value, headers, topic)
    head = head + _payload_omitted(value)
    headers = [*head, SCHEMA_HEADER, *original]
    if record_bytes(key, b"", headers) <= RECORD_BYTES_MAX:
        return Quarantined(key, b"", headers, topic)
    head = [*head, ("hub-headers-omitted", b"%d" % len(original))]
    headers = [*head, SCHEMA_HEADER]
    if record_bytes(key, b"", headers) <= RECORD_BYTES_MAX:
        return Quarantined(key, b"", headers, topic)
    return Quarantined(b"", b"", [*head, ("hub-key-omitted", b"true"), SCHEMA_HEADER], topic)


def _payload_omitted(value: bytes | None) -> Headers:
    return [OMITTED, ("hub-payload-bytes", b"%d" % len(value or b""))]
