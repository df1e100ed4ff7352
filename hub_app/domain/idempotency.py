"""Answers to requests with an `Idempotency-Key`, kept inside the record that the request wrote: so the write and its
answer stand or fall together, and whoever owns the shard next can repeat it (docs/protocol.md, "Single writers")."""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

ANSWERS_MAX = 8
"""Answers kept per record, the newest."""
ANSWER_BYTES_MAX = 64 * 1024
ANSWERS_BYTES_MAX = 128 * 1024
"""Together, beside the newest one: headers of a record have a bound."""


class Claim(NamedTuple):
    """What a request says of itself: its key (of the client's choice) and a digest of all that makes it this request
    (method, path, body), both as text."""

    key: str
    digest: str


class Answer(NamedTuple):
    """A remembered answer. `key` is `key_digest`; `text` is whatever the caller needs to answer again."""

    key: str
    digest: str
    at_ms: int
    text: str


class Clash(Enum):
    """The same key came with another request (422)."""

    OTHER_REQUEST = "other_request"


def key_digest(tenant: str, key: str) -> str:
    """The client's key as it is stored: bounded, and nobody else's to read."""
    return blake2b(f"{tenant}\x1f{key}".encode(), digest_size=16).hexdigest()


def find(answers: tuple[Answer, ...], tenant: str, claim: Claim, *, now_ms: int, ttl_ms: int) -> Answer | Clash | None:
    """The answer to repeat, a clash, or None when this request is new (or its answer is older than `ttl_ms`)."""
    wanted = key_digest(tenant, claim.key)
    for answer in answers:
        if answer.key == wanted and now_ms - answer.at_ms < ttl_ms:
            return answer if answer.digest == claim.digest else Clash.OTHER_REQUEST
    return None


def remember(answers: tuple[Answer, ...], new: Answer, *, ttl_ms: int) -> tuple[Answer, ...]:
    """`new` first, then those still valid, within the bounds. ValueError when `new` alone is too large."""
    if len(new.text.encode()) > ANSWER_BYTES_MAX:
        raise ValueError("the answer to be remembered is too large")
    kept, size = [new], 0
    for answer in answers:
        size += len(answer.text.encode())
        if len(kept) == ANSWERS_MAX or size > ANSWERS_BYTES_MAX:
            break
        if answer.key != new.key and new.at_ms - answer.at_ms < ttl_ms:
            kept.append(answer)
    return tuple(kept)
