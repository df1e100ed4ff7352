"""Low-water marks: the lowest unfinished offset of one topic partition."""

from __future__ import annotations

from collections.abc import Iterable

UNFINISHED = 1
COMPACT_AT = 4096


class LowWater:
    """Which offsets between the low mark and the position are unfinished. Offsets may have gaps.

    One byte per offset from the base (at or a little below the low mark) to the position; finished fronts are cut off.
    Pure: the reader calls `read`/`advance`, whoever ends jobs calls `finish`, the committer asks `low`."""

    __slots__ = ("_base", "_bits", "_pending", "_skip")

    def __init__(self, position: int, unfinished: Iterable[int] = ()) -> None:
        """`position` is the next offset to be read; every unfinished offset lies below it (else ValueError)."""
        offsets = sorted(set(unfinished))
        if offsets and offsets[-1] >= position:
            raise ValueError(f"unfinished offset {offsets[-1]} is not below the position {position}")
        self._base = offsets[0] if offsets else position
        self._bits = bytearray(position - self._base)
        self._skip = 0
        self._pending = len(offsets)
        for offset in offsets:
            self._bits[offset - self._base] = UNFINISHED

    def read(self, offset: int) -> None:
        """`offset` was read and is unfinished; the position becomes offset + 1 if it was lower. Below the low mark's
        base nothing can be unfinished again: ValueError."""
        index = offset - self._base
        size = len(self._bits)
        if index == size:
            self._bits.append(UNFINISHED)
            self._pending += 1
            return
        if index < self._skip:
            raise ValueError(f"offset {offset} lies below the low mark {self.low()}")
        if index > size:
            self._bits.extend(bytes(index - size + 1))
        if not self._bits[index]:
            self._bits[index] = UNFINISHED
            self._pending += 1

    def finish(self, offset: int) -> None:
        """Idempotent; unknown, finished or lower offsets change nothing."""
        index = offset - self._base
        if 0 <= index < len(self._bits) and self._bits[index]:
            self._bits[index] = 0
            self._pending -= 1
            if index == self._skip:
                self._settle()

    def advance(self, position: int) -> None:
        """Everything below `position` was read (gaps, control records). Never goes back."""
        missing = position - self._base - len(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        if not self._pending:
            self._settle()

    def low(self) -> int:
        """The lowest unfinished offset, or the position when there is none: what may be committed."""
        self._settle()
        return self._base + self._skip

    def position(self) -> int:
        """The next offset to be read."""
        return self._base + len(self._bits)

    def span(self) -> int:
        """position - low: how far the mark lies behind the head, and about the bytes held."""
        return self.position() - self.low()

    def pending(self) -> int:
        """How many offsets are unfinished."""
        return self._pending

    def is_unfinished(self, offset: int) -> bool:
        """Whether `offset` was read and not finished."""
        index = offset - self._base
        return 0 <= index < len(self._bits) and bool(self._bits[index])

    def _settle(self) -> None:
        """Moves the front to the first unfinished offset; cuts the front off when it is worth the copy."""
        first = self._bits.find(UNFINISHED, self._skip) if self._pending else -1
        self._skip = len(self._bits) if first < 0 else first
        if self._skip >= COMPACT_AT and self._skip * 2 >= len(self._bits):
            del self._bits[: self._skip]
            self._base += self._skip
            self._skip = 0
