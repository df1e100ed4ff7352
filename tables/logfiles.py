"""Whether the log files of a RocksDB folder hang together: what RocksDB itself does not notice when it opens one.

A write-ahead log that is missing or cut at a record's end in the midst of others, and a manifest that is cut, open
without a word, and rows are gone while the offsets that came after them are there. Format: RocksDB's "Write Ahead Log
File Format": blocks of 32 KiB, records of (checksum 4, length 2, type 1) and payload. Checksums are RocksDB's to judge.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from struct import Struct
from typing import NamedTuple

_BLOCK_BYTES = 32 * 1024
_HEADER = Struct("<IHB")
_BATCH = Struct("<QI")  # first sequence number, count of rows
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4


class Fragment(NamedTuple):
    """One record, or a part of one: its type, and where its payload lies."""

    type: int
    start: int
    size: int


def unsound(folder: Path) -> str | None:
    """Why the folder must not be opened, or None. `folder` holds a CURRENT."""
    try:
        manifest = folder / (folder / "CURRENT").read_text("ascii").strip()
        if not manifest.name.startswith("MANIFEST-") or not _ends_well(manifest):
            return "damaged"
        logs = sorted(folder.glob("*.log"), key=lambda path: int(path.stem))
        return None if _continuous(logs) else "damaged"
    except (ValueError, OSError):
        return "damaged"


def _ends_well(path: Path) -> bool:
    """Whether the file ends with a whole record."""
    end, inside = 0, False
    size = path.stat().st_size
    with closing(_Mapped(path)) as mapped:
        for fragment in _fragments(mapped.data):
            end = fragment.start + fragment.size
            inside = fragment.type in (_FIRST, _MIDDLE)
    return size > 0 and not inside and _block_end(end, size) >= size


def _block_end(end: int, size: int) -> int:
    """`end`, or where the block ends if what is left of it is too small for another record."""
    left = -end % _BLOCK_BYTES
    return end + left if left < _HEADER.size else end


def _continuous(logs: list[Path]) -> bool:
    """Whether every batch takes up where the one before it ended, over all logs. A torn tail ends its log."""
    following: int | None = None
    for path in logs:
        with closing(_Mapped(path)) as mapped:
            for sequence, count in _batches(mapped.data):
                if following is not None and sequence != following:
                    return False
                following = sequence + count
    return True


def _batches(data: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    """(first sequence, rows) of each batch that is there to its end."""
    opened: tuple[int, int] | None = None
    for type, start, size in _fragments(data):
        if type in (_FULL, _FIRST):
            if size < _BATCH.size:
                return
            opened = _BATCH.unpack_from(data, start)
        if type in (_FULL, _LAST) and opened is not None:
            yield opened
            opened = None


def _fragments(data: mmap.mmap | bytes) -> Iterator[Fragment]:
    """Fragments up to the end, or to the first thing that is none."""
    at, end = 0, len(data)
    while at + _HEADER.size <= end:
        left = _BLOCK_BYTES - at % _BLOCK_BYTES
        if left < _HEADER.size:
            at += left
            continue
        _, size, type = _HEADER.unpack_from(data, at)
        start = at + _HEADER.size
        if type == 0 or size + _HEADER.size > left or start + size > end:
            return
        yield Fragment(type, start, size)
        at = start + size


class _Mapped:
    """A file's bytes without reading them: only the pages with headers are touched."""

    def __init__(self, path: Path) -> None:
        self.data: mmap.mmap | bytes = b""
        if path.stat().st_size:
            with path.open("rb") as file:
                self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def close(self) -> None:
        if isinstance(self.data, mmap.mmap):
            self.data.close()
