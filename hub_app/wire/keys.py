"""`hub.keys`: one record per API key (`wire.owned`). Of a secret there is the SHA-256 alone.

Keys of administrators belong to no tenant: theirs is empty.
"""

from __future__ import annotations

from typing import Any

from hub_app.domain.apikey import SCOPES, SHA256_BYTES, ApiKey
from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.wire import owned

Stored = owned.Stored[ApiKey]
"""`row` is None when the key was deleted."""


def _to_record(api_key: ApiKey) -> dict[str, Any]:
    return {
        "id": api_key.id,
        "tenant": api_key.tenant,
        "name": api_key.name,
        "scopes": sorted(api_key.scopes),
        "sha256": api_key.secret_sha256.hex(),
        "created_at": rfc3339(api_key.created_at_ms),
        "revoked_at": None if api_key.revoked_at_ms is None else rfc3339(api_key.revoked_at_ms),
    }


def _from_record(body: dict[str, Any]) -> ApiKey:
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


_CODEC: owned.Codec[ApiKey] = owned.Codec("key", _to_record, _from_record)
write, read = _CODEC.write, _CODEC.read
