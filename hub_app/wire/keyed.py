"""Keys of compacted topics: parts joined by U+001F. The first part, a tenant, holds no control characters."""

from __future__ import annotations

from hub_app.domain.ids import SEP
from hub_app.wire.record import Unreadable


def join(*parts: str) -> bytes:
    """The key of `parts`. ValueError when a part but the last holds the separator (two keys could meet)."""
    if any(SEP in part for part in parts[:-1]):
        raise ValueError("the separator of keys may not stand inside a part")
    return SEP.join(parts).encode()


def split(key: bytes | None, count: int) -> tuple[str, ...] | Unreadable:
    """The `count` parts of a key. Total."""
    try:
        parts = (key or b"").decode().split(SEP, count - 1)
    except UnicodeDecodeError:
        return Unreadable("key: not UTF-8")
    return tuple(parts) if len(parts) == count else Unreadable(f"key: not {count} parts")
