"""Low-water marks: the lowest unfinished offset of one topic partition."""

from __future__ import annotations

from collections.abc import Iterable


class LowWater:
    """Which offsets between the low mark and the position are unfinished. Offsets may have gaps.

    One byte per offset from the low mark to the position. Pure."""

    __slots__ = ()

    def __init__(self, position: int, unfinished: Iterable[int] = ()) -> None:
        """`position` is the next offset to be read; every unfinished offset lies below it."""
        raise NotImplementedError

    def read(self, offset: int) -> None:
        """`offset` was read and is unfinished; the position becomes offset + 1. A lower offset than the position is
        marked unfinished again only when it is at or above the low mark's base; below, ValueError."""
        raise NotImplementedError

    def finish(self, offset: int) -> None:
        """Idempotent; unknown, finished or lower offsets change nothing."""
        raise NotImplementedError

    def advance(self, position: int) -> None:
        """Everything below `position` was read (gaps, control records). Never goes back."""
        raise NotImplementedError

    def low(self) -> int:
        """The lowest unfinished offset, or the position when there is none: what may be committed."""
        raise NotImplementedError

    def position(self) -> int:
        """The next offset to be read."""
        raise NotImplementedError

    def span(self) -> int:
        """position - low: bytes held, and how far the mark lies behind the head."""
        raise NotImplementedError

    def pending(self) -> int:
        """How many offsets are unfinished."""
        raise NotImplementedError
