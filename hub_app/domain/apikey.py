"""An API key as the hub keeps it: what it may do, and a digest of its secret, never the secret itself."""

from __future__ import annotations

from dataclasses import dataclass, field

SCOPES = ("publish", "receive", "manage", "admin")
SHA256_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """`shk_<id>_<secret>`. `tenant` is empty for a key that belongs to none (scope admin). `secret_sha256` is of the
    secret part, as UTF-8: it is random and long, so a plain digest is enough. A revoked key opens nothing."""

    id: str
    tenant: str
    name: str
    scopes: frozenset[str]
    secret_sha256: bytes = field(repr=False)
    created_at_ms: int
    revoked_at_ms: int | None = None
