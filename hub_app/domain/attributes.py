"""The attributes of an event, one row each: what is asked of them (docs/wire.md, "Record")."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from hub_app.domain.instants import is_rfc3339
from hub_app.domain.limits import (
    CE_ID_BYTES_MAX,
    CONTENT_TYPE_BYTES_MAX,
    DATA_SCHEMA_BYTES_MAX,
    EVENT_TYPE_BYTES_MAX,
    RESOURCE_TYPE_BYTES_MAX,
    SCHEMA_VERSION_BYTES_MAX,
    SOURCE_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TENANT_BYTES_MAX,
    TIME_BYTES_MAX,
)
from hub_app.domain.sources import is_source

TYPE_PREFIX = "studio.lerian."
_TYPE_BYTES_MAX = len(TYPE_PREFIX) + SOURCE_BYTES_MAX + RESOURCE_TYPE_BYTES_MAX + EVENT_TYPE_BYTES_MAX + 2

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_IDENTIFIER = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
_SCHEMA_VERSION = re.compile(
    rf"v?(?:0|[1-9][0-9]*)(?:\.(?:0|[1-9][0-9]*)){{0,2}}"
    rf"(?:-{_IDENTIFIER}(?:\.{_IDENTIFIER})*)?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?"
)
_TOKEN = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+"
_MEDIA_TYPE = re.compile(rf"{_TOKEN}/{_TOKEN}(?:[ \t]*;[\t\x20-\x7e]*)?")


class Attribute(NamedTuple):
    """`form` says whether a non-empty text of at most `bytes_max` bytes is well formed; `wanted` says what it asks."""

    name: str
    required: bool
    bytes_max: int
    form: Callable[[str], bool] | None
    wanted: str


class Flaw(NamedTuple):
    """What is wrong: `reason` as in `cloudevents.REASONS`, `detail` for people."""

    reason: str
    detail: str


def no_control(text: str) -> bool:
    """No characters below U+0020 and no U+007F."""
    return text.isprintable() or _CONTROL.search(text) is None


def is_schema_version(text: str) -> bool:
    """Semantic version; a leading `v` and short forms (`1`, `1.2`) pass."""
    return _SCHEMA_VERSION.fullmatch(text) is not None


def is_media_type(text: str) -> bool:
    """`type/subtype`, parameters not looked into (visible ASCII and blanks)."""
    return _MEDIA_TYPE.fullmatch(text) is not None


def _no_dot(text: str) -> bool:
    return "." not in text


CONTEXT = (
    Attribute("ce-specversion", True, SCHEMA_VERSION_BYTES_MAX, None, ""),
    Attribute("ce-id", True, CE_ID_BYTES_MAX, None, ""),
    Attribute("ce-source", True, SOURCE_BYTES_MAX, is_source, "a source name: [a-z0-9][a-z0-9_-]*"),
    Attribute("ce-resourcetype", True, RESOURCE_TYPE_BYTES_MAX, _no_dot, "a text without dots"),
    Attribute("ce-eventtype", True, EVENT_TYPE_BYTES_MAX, _no_dot, "a text without dots"),
    Attribute("ce-type", True, _TYPE_BYTES_MAX, None, ""),
    Attribute("ce-time", True, TIME_BYTES_MAX, is_rfc3339, "an RFC 3339 instant"),
    Attribute("ce-schemaversion", True, SCHEMA_VERSION_BYTES_MAX, is_schema_version, "a semantic version"),
    Attribute("ce-subject", False, SUBJECT_BYTES_MAX, no_control, "a text without control characters"),
    Attribute("ce-datacontenttype", False, CONTENT_TYPE_BYTES_MAX, is_media_type, "a media type"),
    Attribute("ce-dataschema", False, DATA_SCHEMA_BYTES_MAX, None, ""),
)
"""All but the tenant, which is looked at last: a system event has none."""
TENANT = Attribute("ce-tenantid", True, TENANT_BYTES_MAX, no_control, "a text without control characters")


def flaw_in(rule: Attribute, data: bytes | None) -> Flaw | None:
    """What is wrong with one attribute, None when nothing is. `data` None: the header is not there."""
    if data is None:
        return Flaw("missing_attribute", rule.name) if rule.required else None
    if not data:
        return Flaw("empty_attribute", rule.name)
    if len(data) > rule.bytes_max:
        return Flaw("attribute_too_long", f"{rule.name}: {len(data)} bytes, at most {rule.bytes_max}")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Flaw("not_utf8", rule.name)
    if rule.form is not None and not rule.form(text):
        return Flaw("malformed_attribute", f"{rule.name}: {excerpt(text)} is not {rule.wanted}")
    return None


def excerpt(text: str) -> str:
    """A short, printable quotation."""
    return ascii(text if len(text) <= 64 else text[:61] + "...")
