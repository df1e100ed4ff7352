"""Events as they are published over HTTP, judged: whole request or nothing (docs/queues.md, "Publish").

An attribute that is null is absent. What cannot be said in headers, or would break a reader of Event Grid's, is
refused here.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes

from hub_app.domain.attributes import Attribute, Flaw, flaw_in, is_media_type, no_control
from hub_app.domain.filters import is_unicode
from hub_app.domain.instants import is_rfc3339
from hub_app.domain.limits import (
    CE_ID_BYTES_MAX,
    CONTENT_TYPE_BYTES_MAX,
    DATA_SCHEMA_BYTES_MAX,
    EVENT_TYPE_CHARS_MAX,
    HEADERS_BYTES_MAX,
    ORIGIN_BYTES_MAX,
    PUBLISH_BYTES_MAX,
    SCHEMA_VERSION_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TIME_BYTES_MAX,
)
from hub_app.domain.published_json import Data, read_events

_PLAIN: Final = "a text without control characters"
_KNOWN: Final = (
    Attribute("specversion", True, SCHEMA_VERSION_BYTES_MAX, "1.0".__eq__, "1.0"),
    Attribute("id", True, CE_ID_BYTES_MAX, None, ""),
    Attribute("source", True, ORIGIN_BYTES_MAX, no_control, _PLAIN),
    Attribute("type", True, EVENT_TYPE_CHARS_MAX, no_control, _PLAIN),
    Attribute("time", False, TIME_BYTES_MAX, is_rfc3339, "an RFC 3339 instant"),
    Attribute("subject", False, SUBJECT_BYTES_MAX, no_control, _PLAIN),
    Attribute("datacontenttype", False, CONTENT_TYPE_BYTES_MAX, is_media_type, "a media type"),
    Attribute("dataschema", False, DATA_SCHEMA_BYTES_MAX, no_control, _PLAIN),
)
_RULES: Final = {rule.name: rule for rule in _KNOWN}
EXTENSION: Final = re.compile(r"(?=[0-9]*[a-z])[a-z0-9]{1,20}", re.ASCII)
_TRACE: Final = frozenset(("traceparent", "tracestate"))
_JSON_TYPE: Final = re.compile(r"\s*(?:application/json|text/json|[^/;\s]+/[^/;\s]+\+json)\s*(?:;.*)?", re.IGNORECASE)
_INTEGER_MAX: Final = (1 << 31) - 1  # CloudEvents' own


class Published(NamedTuple):
    """One event: canonical headers, and its payload."""

    headers: tuple[tuple[str, bytes], ...]
    value: bytes


class Unfit(NamedTuple):
    """Why the request is refused. `too_large`: because of its size."""

    detail: str
    too_large: bool = False


def is_json_type(content_type: str) -> bool:
    return _JSON_TYPE.fullmatch(content_type) is not None


# -- the three modes ---------------------------------------------------------------------------------------------------
def structured(body: bytes, tenant: str) -> list[Published] | Unfit:
    """Events of a JSON object (one event) or array (a batch)."""
    try:
        found = read_events(body.decode())
    except UnicodeDecodeError:
        return Unfit("the body is not UTF-8")
    except RecursionError:
        return Unfit("the body is nested too deeply")
    except ValueError as error:
        return Unfit(f"the body is not JSON: {error}")
    events: list[Published] = []
    for at, members in enumerate(found):
        event = _event(members, tenant)
        if isinstance(event, Unfit):
            return event._replace(detail=f"event {at}: {event.detail}") if len(found) > 1 else event
        events.append(event)
    return events


def binary(headers: Iterable[tuple[str, str]], content_type: str | None, body: bytes, tenant: str) -> Published | Unfit:
    """One event whose attributes are `ce-*` headers, percent-encoded as the HTTP binding says."""
    attributes: dict[str, object] = {}
    for name, text in headers:
        lower = name.lower()
        attribute = lower[3:] if lower.startswith("ce-") else lower if lower in _TRACE else None
        if attribute is None:
            continue
        if attribute in attributes or attribute in ("datacontenttype", "data", "data_base64"):
            return Unfit(f"{lower}: is given twice, or has another place in binary mode")
        try:
            attributes[attribute] = unquote_to_bytes(text.encode("utf-8", "surrogateescape")).decode()
        except UnicodeDecodeError:
            return Unfit(f"{lower}: is not UTF-8")
    if content_type is not None:
        attributes["datacontenttype"] = content_type
    return _judged(attributes, body, tenant)


# -- one event ---------------------------------------------------------------------------------------------------------
def _event(members: Mapping[str, object], tenant: str) -> Published | Unfit:
    attributes = {name: value for name, value in members.items() if name not in ("data", "data_base64")}
    data, encoded = members.get("data"), members.get("data_base64")
    has_data = isinstance(data, Data) and data.value is not None
    if has_data and encoded is not None:
        return Unfit("data and data_base64 exclude each other")
    if encoded is not None:
        value = _decoded(encoded)
        if value is None:
            return Unfit("data_base64: is not padded standard base64")
    elif isinstance(data, Data) and has_data:
        content_type = attributes.get("datacontenttype")
        is_text = isinstance(content_type, str) and not is_json_type(content_type) and isinstance(data.value, str)
        try:
            value = (str(data.value) if is_text else data.raw).encode()
        except UnicodeEncodeError:
            return Unfit("data: is not Unicode")
    else:
        value = b""
    return _judged(attributes, value, tenant)


def _decoded(encoded: object) -> bytes | None:
    try:
        return base64.b64decode(encoded, validate=True) if isinstance(encoded, str) else None
    except (binascii.Error, ValueError):
        return None


def _judged(attributes: Mapping[str, object], value: bytes, tenant: str) -> Published | Unfit:
    if len(value) > PUBLISH_BYTES_MAX:
        return Unfit(f"an event has at most {PUBLISH_BYTES_MAX} bytes", too_large=True)
    headers: list[tuple[str, bytes]] = []
    size = 0
    for name in {**dict.fromkeys(_RULES), **dict.fromkeys(attributes)}:
        text = _text(name, attributes.get(name))
        if isinstance(text, Unfit):
            return text
        rule = _RULES.get(name)
        flaw = flaw_in(rule, None if text is None else text.encode()) if rule is not None else _extension(name, text)
        if flaw is not None:
            return Unfit(f"{flaw.detail}: {_WORDS.get(flaw.reason, flaw.reason)}")
        if text is None:
            continue
        if name == "tenantid" and text != tenant:
            return Unfit("tenantid: is another tenant's")
        header = name if name in _TRACE else f"ce-{name}"
        headers.append((header, text.encode()))
        size += len(header) + len(headers[-1][1])
    if size > HEADERS_BYTES_MAX:
        return Unfit(f"attributes have at most {HEADERS_BYTES_MAX} bytes", too_large=True)
    return Published(tuple(headers), value)


_WORDS: Final = {
    "missing_attribute": "is missing",
    "empty_attribute": "is empty",
    "attribute_too_long": "is too long",
    "malformed_attribute": "is malformed",
}


def _text(name: str, value: object) -> str | Unfit | None:
    """An attribute's value as headers have it: booleans and integers in CloudEvents' own spelling."""
    if value is None:
        return None
    if isinstance(value, str):
        return value if is_unicode(value) else Unfit(f"{name}: is not Unicode")
    if name in _RULES:
        return Unfit(f"{name}: must be a text")
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -_INTEGER_MAX - 1 <= value <= _INTEGER_MAX:
        return str(value)
    return Unfit(f"{name[:64]!r}: must be a text, true, false, or a whole number of 32 bits")


def _extension(name: str, text: str | None) -> Flaw | None:
    if not EXTENSION.fullmatch(name):
        return Flaw("is not a name of 1 to 20 lower-case letters and digits, one of them a letter", ascii(name[:64]))
    if text is not None and not no_control(text):
        return Flaw("has control characters", name)
    return None
