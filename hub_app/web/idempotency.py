"""`Idempotency-Key`: the same request said twice is done once.

A new resource's id is a hash of tenant and key, and the answer to a write lies inside the record it wrote (see
`domain.idempotency`), so that whoever owns the shard next answers the same."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from hub_app.domain.idempotency import Claim
from hub_app.web.problems import FieldError, Problem

HEADER: Final = "Idempotency-Key"
REPLAYED: Final = "Idempotency-Replayed"
KEY_CHARS_MAX: Final = 255


def claim_of(headers: Mapping[str, str], route: str, body: bytes) -> Claim | Problem | None:
    """What the request claims to be; None without the header. `route` is method and path."""
    key = headers.get(HEADER)
    if key is None:
        return None
    if not 1 <= len(key) <= KEY_CHARS_MAX or not all(0x21 <= ord(c) <= 0x7E for c in key):
        detail = f"{HEADER}: expected 1 to {KEY_CHARS_MAX} visible ASCII characters"
        return Problem(400, "idempotency-key", "The idempotency key is not valid", detail)
    return Claim(key, sha256(route.encode() + b"\0" + body).hexdigest())


def other_request() -> Problem:
    """422: the key is known with another body."""
    detail = f"this {HEADER} came with another request before; send that request again, or a new key"
    return Problem(422, "idempotency-reuse", "The idempotency key is used", detail, (FieldError("", detail),))
