"""Whether a fact is new: a pure decision about what the table of ids holds (docs/protocol.md, "Inbox shard").

Times are the broker's (`LogAppendTime`), so that a rebuild from the log decides as the first run did.
"""

from __future__ import annotations

from enum import Enum
from hashlib import blake2b
from typing import NamedTuple

DIGEST_BYTES = 16


class Admission(Enum):
    """What becomes of a fact. `value` is the name under which it is counted."""

    FIRST = "first"
    """Not seen within the window: remember it, match it, emit."""
    REREAD = "reread"
    """This very record, or one older than what is remembered: emit the same again, remember nothing."""
    DUPLICATE = "duplicate"
    """A later copy of a fact already admitted: write nothing, count it."""
    COLLISION = "collision"
    """The same identity with another type or payload: to quarantine, reason `id_collision`; never dropped."""


class Known(NamedTuple):
    """What the table remembers of an identity: the first record of it. `at_ms` is that record's broker time."""

    seq: int
    digest: bytes
    at_ms: int


def digest(type: str, value: bytes) -> bytes:
    """16 bytes over type and payload; the type's length goes first, so that the two cannot shift into each other."""
    text = type.encode()
    hashed = blake2b(b"%d\x1f%b" % (len(text), text), digest_size=DIGEST_BYTES)
    hashed.update(value)
    return hashed.digest()


def within_window(first_at_ms: int, at_ms: int, window_ms: int) -> bool:
    """Whether a record of broker time `at_ms` is still a repeat of one of `first_at_ms`: strictly less than the window
    apart, in either direction (a broker's clock may step back)."""
    return abs(at_ms - first_at_ms) < window_ms


def admit(known: Known | None, *, seq: int, digest: bytes, at_ms: int, window_ms: int) -> Admission:
    """Decides one record. `known` is None when no generation of the table has the identity.

    An equal seq is this record again, whatever the window. A higher one means that this record is older than what is
    remembered (its own entry expired and was replaced): it was first in its day, and a repeat loses nothing.
    """
    if known is None:
        return Admission.FIRST
    if known.seq >= seq:
        return Admission.REREAD
    if not within_window(known.at_ms, at_ms, window_ms):
        return Admission.FIRST
    return Admission.DUPLICATE if known.digest == digest else Admission.COLLISION
