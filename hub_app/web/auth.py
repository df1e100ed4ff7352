"""Who asks. `Authorization: Bearer shk_<keyid>_<secret>`; only the SHA-256 of a secret is known here.

no key, malformed, unknown, wrong secret    401
a known key without the scope               403
another tenant's resource                   404   (said by the routes: they look only inside the caller's tenant)
it could not be decided                     503   never 401: a client that sees 401 throws its key away
"""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, NamedTuple

from hub_app.web.deps import WebDeps
from hub_app.web.problems import Problem, forbidden, unauthenticated, unavailable

PUBLISH, RECEIVE, MANAGE, ADMIN = "publish", "receive", "manage", "admin"
TENANT_SCOPES: Final = (PUBLISH, RECEIVE, MANAGE)
KEY_ID_BYTES: Final = 10
SECRET_BYTES: Final = 32
REFRESH_MS: Final = 2_000
REFRESH_EVERY_MS: Final = 200
_KEY: Final = re.compile(r"shk_([a-z2-7]{4,64})_([A-Za-z0-9-]{16,256})", re.ASCII)
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,512}")
_NOBODY: Final = bytes(32)


class Caller(NamedTuple):
    """`tenant` is None for an admin; `key_id` is for logs and rate caps."""

    key_id: str
    tenant: str | None
    scopes: frozenset[str]


class Presented(NamedTuple):
    """What the header holds: the key's id (None when it has not a tenant key's form), digests of secret and token."""

    key_id: str | None
    secret_sha256: bytes
    whole_sha256: bytes


def secret_digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


def key_text(key_id: str, secret: str) -> str:
    return f"shk_{key_id}_{secret}"


def present(headers: Mapping[str, str]) -> Presented | Problem:
    """The key in the request's headers, not yet judged."""
    header = headers.get("Authorization")
    if header is None:
        return unauthenticated("send Authorization: Bearer shk_<keyid>_<secret>")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not _TOKEN.fullmatch(token):
        return unauthenticated("the Authorization header is not of the form: Bearer shk_<keyid>_<secret>")
    match = _KEY.fullmatch(token)
    secret = match[2] if match else ""
    return Presented(match[1] if match else None, secret_digest(secret), secret_digest(token))


class Authenticator:
    """An unknown key is refused only after the table of keys was read to its end as of now: the key may have been made
    a moment ago, by another worker. Those readings are shared, so that a stream of bad keys costs Kafka little."""

    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._admin_sha256 = secret_digest(deps.admin_key) if deps.admin_key else b""
        self._reading: asyncio.Task[bool] | None = None
        self._read_at_ms = deps.clock.monotonic_ms() - REFRESH_EVERY_MS

    async def caller(self, headers: Mapping[str, str]) -> Caller | Problem:
        presented = present(headers)
        if isinstance(presented, Problem):
            return presented
        if self._admin_sha256 and hmac.compare_digest(presented.whole_sha256, self._admin_sha256):
            return Caller("admin", None, frozenset((ADMIN,)))
        if presented.key_id is None:
            return unauthenticated("this key is not known")
        return await self._known(presented.key_id, presented.secret_sha256)

    async def _known(self, key_id: str, secret_sha256: bytes) -> Caller | Problem:
        keys = self._deps.keys
        if not self._deps.keys_tail.caught_up:
            return unavailable("the keys are still being read")
        key = keys.get(key_id)
        if key is None:
            if not await self._read_to_end():
                return unavailable("the keys cannot be read to their end now")
            key = keys.get(key_id)
        if key is None and keys.undecided(key_id):
            return unavailable("the record of this key cannot be read")
        same = hmac.compare_digest(secret_sha256, key.secret_sha256 if key else _NOBODY)
        if key is None or not same:
            return unauthenticated("this key is not known")
        return Caller(key.id, key.tenant or None, key.scopes)

    async def _read_to_end(self) -> bool:
        """Joins the next reading, one that begins after this call."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
        return await asyncio.shield(self._reading)

    async def _read(self) -> bool:
        pause_ms = self._read_at_ms + REFRESH_EVERY_MS - self._deps.clock.monotonic_ms()
        if pause_ms > 0:
            await self._deps.sleep(pause_ms / 1000)
        self._reading = None  # whoever comes from here on needs a later reading
        self._read_at_ms = self._deps.clock.monotonic_ms()
        return await self._deps.keys_tail.refresh(REFRESH_MS)


def require(caller: Caller, scope: str) -> Problem | None:
    return None if scope in caller.scopes else forbidden(scope)
