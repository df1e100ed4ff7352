"""The verdict over a producer's record: accept, drop or quarantine (docs/wire.md, "Record" and "Verdicts").

Two ways to the same answer. `_careful` applies every rule in order and says what is wrong. `_ordinary` recognises, in a
few microseconds, a record with the usual headers and nothing wrong: it remembers which sets of header names and which
combinations of the slowly changing attributes passed, and checks only what is new in each record. Whatever it does not
recognise goes the careful way, so it never refuses anything itself. Tests hold the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from hub_app.domain.attributes import CONTEXT, TENANT, TYPE_PREFIX, Flaw, excerpt, flaw_in, no_control
from hub_app.domain.filters import is_unicode
from hub_app.domain.instants import is_rfc3339
from hub_app.domain.limits import (
    CE_ID_BYTES_MAX,
    HEADERS_BYTES_MAX,
    HEADERS_COUNT_MAX,
    PAYLOAD_BYTES_MAX,
    SUBJECT_BYTES_MAX,
    TEXTS_MAX,
    TIME_BYTES_MAX,
    VERDICT_CONTEXTS_MAX,
    VERDICT_SHAPE_BYTES_MAX,
    VERDICT_SHAPES_MAX,
)
from hub_app.domain.sources import source_of

Headers = Sequence[tuple[str, bytes | None]]


class Accept(NamedTuple):
    """All rules hold. `key` is the tenant in UTF-8, the message key of the fact; `topic` is the source's name.
    `headers` are canonical: each `ce-*` once, in hyphen spelling; unknown ones as they came; no `hub-*`, no nulls."""

    tenant: str
    key: bytes
    topic: str
    headers: Sequence[tuple[str, bytes]]


class Drop(NamedTuple):
    """Nothing is written; counted by `reason`."""

    reason: str


class Quarantine(NamedTuple):
    """To the quarantine topic. `reason` is one of `REASONS`; `detail` is for people."""

    reason: str
    detail: str


Verdict = Accept | Drop | Quarantine

REASONS = (
    "missing_attribute",
    "empty_attribute",
    "attribute_too_long",
    "malformed_attribute",
    "not_utf8",
    "wrong_specversion",
    "conflicting_headers",
    "topic_mismatch",
    "type_mismatch",
    "no_tenant",
    "payload_too_large",
    "headers_too_large",
    "id_collision",  # decided by the inbox
    "unreadable",  # a record of the hub's own topics that makes no sense
)
SYSTEM_EVENT = Drop("system_event")


def judge(topic: str, headers: Headers, value: bytes | None, *, default_tenant: str | None) -> Verdict:
    """Judges one record. Never raises, whatever the bytes. `default_tenant` is the tenant of records that name none;
    None where there are several tenants (then such a record is quarantined)."""
    return _ordinary(topic, headers, value) or _careful(topic, headers, value, default_tenant)


# -- the careful way ---------------------------------------------------------------------------------------------------
def _careful(topic: str, headers: Headers, value: bytes | None, default_tenant: str | None) -> Verdict:
    canonical, attributes, conflict = _canonical(headers)
    flaw = conflict or _context_flaw(topic, attributes)
    if flaw is not None:
        return Quarantine(*flaw)
    if attributes.get("ce-systemevent") == b"true":
        return SYSTEM_EVENT
    flaw = _name_flaw(canonical) or _size_flaw(canonical, value)
    if flaw is not None:
        return Quarantine(*flaw)
    key = attributes.get("ce-tenantid")
    if key is None:
        if default_tenant is None:
            return Quarantine("no_tenant", "ce-tenantid")
        return Accept(default_tenant, default_tenant.encode(), attributes["ce-source"].decode(), canonical)
    flaw = flaw_in(TENANT, key)
    if flaw is not None:
        return Quarantine(*flaw)
    return Accept(key.decode(), key, attributes["ce-source"].decode(), canonical)


def _canonical(headers: Headers) -> tuple[list[tuple[str, bytes]], dict[str, bytes], Flaw | None]:
    """(canonical headers, the `ce-*` among them by name, the first conflict). The CloudEvents Kafka binding's spelling
    (`ce_id`, `content-type`) is read as ours. A producer's `hub-*` is left out: it would pass for the hub's own."""
    canonical: list[tuple[str, bytes]] = []
    attributes: dict[str, bytes] = {}
    conflict: Flaw | None = None
    for name, data in headers:
        data = data or b""
        if name.startswith("hub-"):
            continue
        if name.startswith("ce_"):
            name = "ce-" + name[3:]
        elif name == "content-type":
            name = "ce-datacontenttype"
        if name.startswith("ce-"):
            if name in attributes:
                if attributes[name] != data and conflict is None:
                    conflict = Flaw("conflicting_headers", excerpt(name))
                continue
            attributes[name] = data
        canonical.append((name, data))
    return canonical, attributes, conflict


def _context_flaw(topic: str, attributes: Mapping[str, bytes]) -> Flaw | None:
    """The first thing wrong with the event's context, in the order of the table."""
    for rule in CONTEXT:
        flaw = flaw_in(rule, attributes.get(rule.name))
        if flaw is not None:
            return flaw
    if attributes["ce-specversion"] != b"1.0":
        return Flaw("wrong_specversion", excerpt(attributes["ce-specversion"].decode()))
    source = attributes["ce-source"].decode()
    if source_of(topic) != source:
        return Flaw("topic_mismatch", f"ce-source {excerpt(source)} in topic {excerpt(topic)}")
    wanted = f"{TYPE_PREFIX}{source}.{attributes['ce-resourcetype'].decode()}.{attributes['ce-eventtype'].decode()}"
    if attributes["ce-type"].decode() != wanted:
        return Flaw("type_mismatch", f"ce-type {excerpt(attributes['ce-type'].decode())}, its parts say otherwise")
    for name, data in attributes.items():
        if not _is_utf8(data) and name not in ("ce-tenantid", "ce-systemevent"):
            return Flaw("not_utf8", excerpt(name))
    return None


def _name_flaw(canonical: Sequence[tuple[str, bytes]]) -> Flaw | None:
    """A name whose bytes are not UTF-8 has lone surrogates in their places (PEP 383); it could not be written on."""
    for name, _ in canonical:
        if not name.isascii() and not is_unicode(name):
            return Flaw("not_utf8", f"header name {excerpt(name)}")
    return None


def _size_flaw(canonical: Sequence[tuple[str, bytes]], value: bytes | None) -> Flaw | None:
    if value is not None and len(value) > PAYLOAD_BYTES_MAX:
        return Flaw("payload_too_large", f"{len(value)} bytes, at most {PAYLOAD_BYTES_MAX}")
    if len(canonical) > HEADERS_COUNT_MAX:
        return Flaw("headers_too_large", f"{len(canonical)} headers, at most {HEADERS_COUNT_MAX}")
    size = sum(len(name.encode(errors="replace")) + len(data) for name, data in canonical)
    if size > HEADERS_BYTES_MAX:
        return Flaw("headers_too_large", f"{size} bytes, at most {HEADERS_BYTES_MAX}")
    return None


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


# -- the ordinary way --------------------------------------------------------------------------------------------------
_EACH = {"ce-id", "ce-time", "ce-subject", "ce-tenantid"}
"""Checked in every record; the other attributes of the table make up its context, remembered as a whole."""
_REQUIRED = {rule.name for rule in CONTEXT if rule.required} | {TENANT.name}
_CONTEXT_NAMES = {rule.name for rule in CONTEXT} - _EACH


class _Shape(NamedTuple):
    """A set of header names in their order, all canonical and none repeated, that has every required attribute."""

    context: tuple[str, ...]
    context_of: Callable[[Mapping[str, Any]], tuple[bytes, ...]]
    extensions: tuple[str, ...]
    names_bytes: int


class _Unusual(Exception):
    """Not remembered: the careful way decides. (Exceptions are not cached, so nothing odd is kept.)"""


def _ordinary(topic: str, headers: Headers, value: bytes | None) -> Accept | None:
    """Accepts an ordinary record, or None: not recognised."""
    try:
        found: dict[str, bytes] = dict(headers)  # type: ignore[arg-type]  # a null makes `len` raise below
        if len(found) != len(headers) or (value is not None and len(value) > PAYLOAD_BYTES_MAX):
            return None
        shape = _shape(tuple(found))
        source = _context(topic, shape.context, shape.context_of(found))
        key, id, time, subject = found["ce-tenantid"], found["ce-id"], found["ce-time"], found.get("ce-subject")
        if (
            0 < len(id) <= CE_ID_BYTES_MAX
            and len(time) <= TIME_BYTES_MAX
            and id.isascii()
            and is_rfc3339(time.decode())
            and (subject is None or (0 < len(subject) <= SUBJECT_BYTES_MAX and no_control(subject.decode())))
            and shape.names_bytes + sum(map(len, found.values())) <= HEADERS_BYTES_MAX
        ):
            for name in shape.extensions:
                if not found[name].isascii():
                    return None
            return Accept(_tenant(key), key, source, headers)  # type: ignore[arg-type]
    except (_Unusual, UnicodeDecodeError, TypeError):
        pass
    return None


@lru_cache(maxsize=VERDICT_SHAPES_MAX)
def _shape(names: tuple[str, ...]) -> _Shape:
    size = sum(map(len, names))
    if size > VERDICT_SHAPE_BYTES_MAX or not _REQUIRED.issubset(names):
        raise _Unusual
    extensions = []
    for name in names:
        if name.startswith(("hub-", "ce_")) or name in ("content-type", "ce-systemevent") or not name.isascii():
            raise _Unusual
        if name.startswith("ce-") and name not in _EACH and name not in _CONTEXT_NAMES:
            extensions.append(name)
    context = tuple(name for name in names if name in _CONTEXT_NAMES)
    return _Shape(context, itemgetter(*context), tuple(extensions), size)


@lru_cache(maxsize=VERDICT_CONTEXTS_MAX)
def _context(topic: str, names: tuple[str, ...], values: tuple[bytes, ...]) -> str:
    """The source, if these attributes pass together in this topic."""
    attributes = dict(zip(names, values, strict=True))
    probe = {**attributes, "ce-id": b"1", "ce-time": b"2026-01-02T03:04:05Z"}
    if None in values or _context_flaw(topic, probe) is not None:
        raise _Unusual
    return attributes["ce-source"].decode()


@lru_cache(maxsize=TEXTS_MAX)
def _tenant(key: bytes) -> str:
    if flaw_in(TENANT, key) is not None:
        raise _Unusual
    return key.decode()
