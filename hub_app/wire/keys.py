"""`hub.keys`: one record per API key. Key: tenant and id; partitioned by tenant. Value: JSON.

A null value deletes. Headers: `hub-schema`, `hub-idempotency`. Of a secret there is the SHA-256 alone.
Keys of administrators belong to no tenant: theirs is empty.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from hub_app.domain.apikey import SCOPES, SHA256_BYTES, ApiKey
from hub_app.domain.idempotency import Answer
from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.wire import answers as wire_answers
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, HeadersRead, Record, Unreadable


class Stored(NamedTuple):
    """A record of the topic. `api_key` is None when it was deleted."""

    tenant: str
    id: str
    api_key: ApiKey | None
    answers: tuple[Answer, ...]


def join_key(tenant: str, id: str) -> bytes:
    """The message key; its partition is that of `ids.tenant_key(tenant)`."""
    return keyed.join(tenant, id)


def split_key(key: bytes | None) -> tuple[str, str] | Unreadable:
    """(tenant, id) of a message key. Total."""
    parts = keyed.split(key, 2)
    return parts if isinstance(parts, Unreadable) else (parts[0], parts[1])


def write(api_key: ApiKey, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that creates or replaces it."""
    value = orjson.dumps(
        {
            "id": api_key.id,
            "tenant": api_key.tenant,
            "name": api_key.name,
            "scopes": sorted(api_key.scopes),
            "sha256": api_key.secret_sha256.hex(),
            "created_at": rfc3339(api_key.created_at_ms),
            "revoked_at": None if api_key.revoked_at_ms is None else rfc3339(api_key.revoked_at_ms),
        }
    )
    return Record(join_key(api_key.tenant, api_key.id), value, [SCHEMA_HEADER, *wire_answers.write(answers)])


def write_deleted(tenant: str, id: str, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that deletes it."""
    return Record(join_key(tenant, id), None, [SCHEMA_HEADER, *wire_answers.write(answers)])


def read(key: bytes | None, value: bytes | None, headers: HeadersRead) -> Stored | Unreadable:
    """What a record says. Total."""
    names = split_key(key)
    if isinstance(names, Unreadable):
        return names
    try:
        answers = wire_answers.read(headers)
        if value is None:
            return Stored(*names, None, answers)
        api_key = _api_key(orjson.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unreadable(f"key: {error!r}")
    if (api_key.tenant, api_key.id) != names:
        return Unreadable("key: the record's key and value name different ones")
    return Stored(*names, api_key, answers)


def _api_key(body: dict[str, Any]) -> ApiKey:
    scopes, sha256, revoked = body["scopes"], bytes.fromhex(_text(body["sha256"])), body.get("revoked_at")
    if not isinstance(scopes, list) or not set(scopes) <= set(SCOPES):
        raise ValueError("unknown scopes")
    if len(sha256) != SHA256_BYTES:
        raise ValueError("not a SHA-256")
    return ApiKey(
        id=_text(body["id"]),
        tenant=_text(body["tenant"]),
        name=_text(body["name"]),
        scopes=frozenset(scopes),
        secret_sha256=sha256,
        created_at_ms=parse_rfc3339(_text(body["created_at"])),
        revoked_at_ms=None if revoked is None else parse_rfc3339(_text(revoked)),
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value
