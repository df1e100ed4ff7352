"""A shard's store in memory: what is written stays with its `Disk`, as a folder outlives a killed process."""

from __future__ import annotations

import copy
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from hub_app.domain.errors import StoreFailed
from tables.damage import Decoding, unreadable
from tables.memory import Family
from tables.shard import OFFSETS, Identity

_IDENTITY, _OPEN = b"\0identity", b"\0open"


class _Rows:
    """One family: rows, and their keys in order."""

    __slots__ = ("keys", "rows")

    def __init__(self) -> None:
        self.rows: dict[bytes, bytes] = {}
        self.keys: list[bytes] = []

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self.rows:
            insort(self.keys, key)
        self.rows[key] = value

    def delete(self, key: bytes) -> None:
        if self.rows.pop(key, None) is not None:
            del self.keys[bisect_left(self.keys, key)]

    def delete_range(self, start: bytes, end: bytes) -> None:
        first, last = bisect_left(self.keys, start), bisect_left(self.keys, end)
        for key in self.keys[first:last]:
            del self.rows[key]
        del self.keys[first:last]


class Disk:
    """Folders by path. `copy()` is a disk as it was: it may come back later."""

    def __init__(self) -> None:
        self.folders: dict[Path, dict[str, _Rows]] = {}
        self.aside: list[tuple[Path, str]] = []

    def copy(self) -> Disk:
        return copy.deepcopy(self)


class MemoryBatch:
    """`tables.batch.Batch`."""

    def __init__(self, families: Iterable[str]) -> None:
        self._families = set(families)
        self.steps: list[tuple[str, str, bytes, bytes]] = []

    def __len__(self) -> int:
        return len(self.steps)

    def _add(self, what: str, family: str, key: bytes, value: bytes = b"") -> None:
        if family not in self._families:
            raise KeyError(family)
        self.steps.append((what, family, key, value))

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self._add("put", family, key, value)

    def put_many(self, family: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self._add("put", family, key, value)

    def delete(self, family: str, key: bytes) -> None:
        self._add("delete", family, key)

    def delete_many(self, family: str, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._add("delete", family, key)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        self._add("delete_range", family, start, end)

    def set_offset(self, topic: str, next_offset: int) -> None:
        self._add("put", OFFSETS, topic.encode(), next_offset.to_bytes(8, "big"))


class MemoryStore:
    """`tables.shard.ShardStore`, as far as tables and agents use it. `before_write` and `after_write` may raise: the
    place for crashes, and for a disk that is full."""

    def __init__(self, disk: Disk, folder: Path, name: str, families: Sequence[Family]) -> None:
        self.disk, self.folder, self.name = disk, folder, name
        self.aside: str | None = None
        self.opened_clean = self.fresh = False
        self.on_damage: Callable[[StoreFailed], None] = lambda damage: None
        self.before_write: Callable[[], None] = _nothing
        self.after_write: Callable[[], None] = _nothing
        self.looked_up = 0
        """Rows that were asked for, or scanned."""
        self._names = [*(family.name for family in families), OFFSETS]
        self._rows: dict[str, _Rows] | None = None

    @classmethod
    def open(
        cls, disk: Disk, folder: Path, *, plane: str, shard: int, families: Sequence[Family], identity: Identity
    ) -> MemoryStore:
        """Raises StoreFailed while the folder is open elsewhere. One of another identity is set aside."""
        store = cls(disk, folder, f"{plane}/{shard}", families)
        marks = disk.folders.get(folder, {}).get(OFFSETS)
        if marks is not None and b"\0locked" in marks.rows:
            raise StoreFailed(store.name, "lock held by current process")
        if marks is not None and marks.rows[_IDENTITY] != repr(identity).encode():
            store.aside = "other-identity"
            disk.aside.append((folder, store.aside))
            del disk.folders[folder]
        store._attach(identity)
        return store

    def _attach(self, identity: Identity) -> None:
        rows = self.disk.folders.setdefault(self.folder, {})
        self.fresh = not rows
        for name in self._names:
            rows.setdefault(name, _Rows())
        marks = rows[OFFSETS]
        self.opened_clean = not self.fresh and _OPEN not in marks.rows
        marks.put(_IDENTITY, repr(identity).encode())
        marks.put(_OPEN, b"1")
        marks.put(b"\0locked", b"1")
        self._rows = rows

    # -- reading -------------------------------------------------------------------------------------------------------
    def _family(self, family: str) -> _Rows:
        if self._rows is None:
            raise StoreFailed(self.name, "closed")
        return self._rows[family]

    def get(self, family: str, key: bytes) -> bytes | None:
        self.looked_up += 1
        return self._family(family).rows.get(key)

    def multi_get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        rows = self._family(family).rows
        self.looked_up += len(keys)
        return [rows.get(key) for key in keys]

    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        if limit <= 0:
            return []
        rows = self._family(family)
        first, last = bisect_left(rows.keys, start), bisect_left(rows.keys, end)
        found = [(key, rows.rows[key]) for key in rows.keys[first : min(last, first + limit)]]
        self.looked_up += len(found)
        return found

    def last_before(self, family: str, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        rows = self._family(family)
        at = bisect_left(rows.keys, end) - 1
        return (rows.keys[at], rows.rows[rows.keys[at]]) if at >= 0 and rows.keys[at] >= start else None

    # -- writing -------------------------------------------------------------------------------------------------------
    def batch(self) -> MemoryBatch:
        return MemoryBatch(self._names if self._rows is not None else ())

    def write(self, batch: MemoryBatch) -> None:
        self._family(OFFSETS)
        self.before_write()
        for what, family, key, value in batch.steps:
            rows = self._family(family)
            if what == "put":
                rows.put(key, value)
            elif what == "delete":
                rows.delete(key)
            else:
                rows.delete_range(key, value)
        self.after_write()

    def empty(self, family: str) -> None:
        self._family(family)
        assert self._rows is not None
        self._rows[family] = _Rows()

    # -- offsets -------------------------------------------------------------------------------------------------------
    def offset(self, topic: str) -> int | None:
        return self.number(topic.encode())

    def number(self, key: bytes) -> int | None:
        stored = self.get(OFFSETS, key)
        return None if stored is None else int.from_bytes(stored, "big")

    def offsets(self) -> dict[str, int]:
        rows = self._family(OFFSETS).rows
        return {key.decode(): int.from_bytes(value, "big") for key, value in sorted(rows.items()) if key[:1] != b"\0"}

    def behind_log(self, log_starts: Mapping[str, int]) -> str | None:
        gone = [topic for topic, offset in self.offsets().items() if offset < log_starts.get(topic, 0)]
        return "offset-deleted" if gone else None

    def decoding(self, family: str) -> Decoding:
        return Decoding(self.unreadable, family)

    def unreadable(self, family: str, error: Exception) -> StoreFailed:
        failed = unreadable(self.name, family, error)
        self.on_damage(failed)
        return failed

    # -- ending --------------------------------------------------------------------------------------------------------
    def close(self, *, clean: bool = True) -> None:
        if self._rows is None:
            return
        marks = self._rows[OFFSETS]
        if clean:
            marks.delete(_OPEN)
        marks.delete(b"\0locked")
        self._rows = None

    def set_aside(self, reason: str) -> Path:
        self.close(clean=False)
        self.disk.aside.append((self.folder, reason))
        del self.disk.folders[self.folder]
        return self.folder.with_name(f"{self.folder.name}.{reason}")


def _nothing() -> None:
    """Nothing stands in the way of a write."""
