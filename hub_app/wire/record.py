"""What every record family shares: header shapes, sizes, small parsers, and text that is fit to be read by people.

Layout. A record of the hub carries its state in `hub-*` headers, in one block of a fixed order that stands first, and
after it the event's own headers as they are carried along. Reading tries that order, which is cheap, and otherwise
takes the headers as they come, so that a record made by hand with Kafka's tools is read all the same.

Reading is total: a record that makes no sense is a value `Unreadable`, never an exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from hub_app.domain.instants import parse_rfc3339, rfc3339_bytes
from hub_app.domain.limits import ERROR_BYTES_MAX, NUMBER_DIGITS_MAX, TEXT_BYTES_MAX, TEXTS_MAX

Header = tuple[str, bytes]
Headers = list[Header]
"""Headers to be written."""
HeadersRead = Sequence[tuple[str, bytes | None]]
"""Headers as Kafka gives them: repeats and nulls are possible."""

SCHEMA = b"1"
SCHEMA_HEADER: Header = ("hub-schema", SCHEMA)
OWN = "hub-"
OMITTED: Header = ("hub-payload-omitted", b"true")


class Unreadable(NamedTuple):
    """A record of the hub's topics that cannot be read. `reason` is for people and logs."""

    reason: str


class Record(NamedTuple):
    """A record ready to be sent."""

    key: bytes | None
    value: bytes | None
    headers: Headers


def record_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> int:
    """Upper bound of what one record takes in a batch, before compression: payload, names, values, and the lengths and
    deltas around them at their longest. To be compared with `limits.RECORD_BYTES_MAX`."""
    size = 40 + len(key or b"") + len(value or b"")
    for name, data in headers:
        size += 10 + (len(name) if name.isascii() else len(name.encode())) + len(data or b"")
    return size


def own_headers(headers: HeadersRead) -> dict[str, bytes]:
    """The `hub-*` headers; of repeated ones the last, null as empty."""
    return {name: data or b"" for name, data in headers if name[:4] == OWN}


def carried(headers: HeadersRead) -> tuple[Header, ...]:
    """The event's own headers (`ce-*`, `traceparent`, unknown ones): all but `hub-*`, in order, null as empty."""
    names = [name for name, _ in headers]
    if OWN not in "\n".join(names) and None not in [data for _, data in headers]:
        return tuple(headers)  # type: ignore[arg-type]  # as they came: nothing to leave out, nothing to make
    return tuple([(name, data or b"") for name, data in headers if name[:4] != OWN])


# -- values: each raises ValueError for what it cannot read; the families' readers turn that into Unreadable -----------
@lru_cache(maxsize=TEXTS_MAX)
def text(data: bytes) -> str:
    """A short UTF-8 text. Cached: tenants, destinations, subscriptions come again and again, and share one object."""
    if len(data) > TEXT_BYTES_MAX:
        raise ValueError("a text of the hub is too long")
    return data.decode()


def number(data: bytes) -> int:
    """A count: ASCII digits, at most 18."""
    if not data.isdigit() or len(data) > NUMBER_DIGITS_MAX:
        raise ValueError("not a count")
    return int(data)


@lru_cache(maxsize=TEXTS_MAX)
def small(data: bytes) -> int:
    """A count that comes again and again (attempts, moves, offsets of one day): cached."""
    return number(data)


def number_or_zero(data: bytes) -> int:
    """A count; empty is 0."""
    return number(data) if data else 0


def instant(data: bytes) -> int:
    """Milliseconds of an RFC 3339 text."""
    return parse_rfc3339(data.decode())


def instant_or_zero(data: bytes) -> int:
    """Milliseconds; empty is 0."""
    return parse_rfc3339(data.decode()) if data else 0


def instant_text(ms: int) -> bytes:
    """RFC 3339 text; 0 is empty."""
    return rfc3339_bytes(ms) if ms else b""


# -- text for people ---------------------------------------------------------------------------------------------------
_MASKED = "***"
_USUAL_ERROR_CHARS = 256
# Each expression is linear, or bounded, in the text it looks at: what a sink answers must not cost time.
_SECRETS = (
    (re.compile(r"(://)[^\s/?#]{1,512}@"), rf"\1{_MASKED}@"),
    (re.compile(r"\?[^\s\"'<>]+"), f"?{_MASKED}"),
    (re.compile(r"#[^\s\"'<>#=]*=[^\s\"'<>]*"), f"#{_MASKED}"),
    (re.compile(r"\b(bearer|sharedaccesskey)(\s+)[^\s,;\"']+", re.IGNORECASE), rf"\1\2{_MASKED}"),
    (re.compile(r"\b((?i:basic)\s+)(?=[a-z]{0,512}[A-Z0-9+/=])[A-Za-z0-9+/]{4,}={0,2}"), rf"\1{_MASKED}"),
    (re.compile(r"\b(whsec_|shk_)[A-Za-z0-9+/=_-]+"), rf"\1{_MASKED}"),
    (
        re.compile(
            r"(passw(?:or)?d|pwd|secret|token|api[_-]?key|access[_-]?key|authorization|signature|\bsig)"
            r"([\"']?\s{0,8}[=:]\s{0,8}[\"']?)[^\s,;&\"'}]+",
            re.IGNORECASE,
        ),
        rf"\1\2{_MASKED}",
    ),
)
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


def mask(text: str) -> str:
    """The text without what must not be kept: credentials in URLs, query strings, bearer and basic tokens, the hub's
    own secrets and keys, `password=…` and its like. Rather too much than too little. Looks at 4 KiB at most."""
    if len(text) > 4 * ERROR_BYTES_MAX:
        # Cut first, so that masking is bounded; the last word may be half a secret, so it goes as well.
        text = text[: 4 * ERROR_BYTES_MAX].rpartition(" ")[0]
    for pattern, put in _SECRETS:
        text = pattern.sub(put, text)
    return text


def error_text(text: str) -> bytes:
    """An error fit for a header: masked, control characters and line ends as one space, cut at 1 KiB."""
    if not text:
        return b""
    return _usual_error(text) if len(text) <= _USUAL_ERROR_CHARS else _error(text)


@lru_cache(maxsize=TEXTS_MAX // 8)
def _usual_error(text: str) -> bytes:
    """A sink that fails says the same again and again."""
    return _error(text)


def _error(text: str) -> bytes:
    return cut(_UNPRINTABLE.sub(" ", mask(text)).strip(), ERROR_BYTES_MAX)


def cut(text: str, bytes_max: int) -> bytes:
    """UTF-8 of at most `bytes_max` bytes, never ending inside a character."""
    data = text.encode(errors="replace")
    return data if len(data) <= bytes_max else data[:bytes_max].decode(errors="ignore").encode()
