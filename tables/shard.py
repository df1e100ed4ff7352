"""The RocksDB folder of one shard: opening, batches, bounded reads, offsets, closing, setting aside.

Rows and the consumed offset travel in one batch, so a store is always *some* point of its logs, and the logs in Kafka can
bring it forward from there. A store that does not belong is set aside with its reason in the name, never deleted.
Source of the rules: design "Topics and tables".
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rocksdict import ColumnFamily, DbClosedError, Rdict, ReadOptions, WriteBatch

from tables.datadir import Plane
from tables.memory import Family, Memory

OFFSETS = "offsets"
_OFFSETS_FAMILY = Family(OFFSETS, buffer_bytes=64 << 10)
# Marks live beside the offsets; no topic name starts with NUL.
_CLUSTER, _EPOCH, _SCHEMA, _OPEN = b"\0cluster", b"\0epoch", b"\0schema", b"\0open"


class StoreFailed(Exception):
    """A shard's store refused a read or write. `shard` names it (`inbox/3`); `damaged` says that its files are bad, so
    that setting it aside and rebuilding helps."""

    def __init__(self, shard: str, detail: str, *, damaged: bool = False) -> None:
        super().__init__(f"store {shard}: {detail}")
        self.shard, self.detail, self.damaged = shard, detail, damaged


class StoreFull(StoreFailed):
    """No room left on the disk (or under its quota): nothing was written, and nothing may be committed past it."""


class Identity(NamedTuple):
    """What a store belongs to. A folder with another identity is set aside (an older schema too: it is rebuilt)."""

    cluster_id: str
    epoch: int
    schema_version: int


def _failure(shard: str, error: Exception) -> StoreFailed:
    text = str(error)
    if "No space left" in text or "File too large" in text or "quota" in text:
        return StoreFull(shard, text)
    return StoreFailed(shard, text, damaged="Corruption" in text or "checksum" in text)


class Batch:
    """Rows of one step, written whole or not at all. Cheap; make a new one per step."""

    __slots__ = ("_handles", "_raw")

    def __init__(self, handles: Mapping[str, ColumnFamily]) -> None:
        self._handles = handles
        self._raw = WriteBatch(raw_mode=True)

    def __len__(self) -> int:
        return len(self._raw)

    def size_bytes(self) -> int:
        return int(self._raw.size_in_bytes())

    def put(self, family: str, key: bytes, value: bytes) -> None:
        self._raw.put(key, value, self._handles[family])

    def put_many(self, family: str, rows: Iterable[tuple[bytes, bytes]]) -> None:
        """As `put` for each row, at about half its cost."""
        put, handle = self._raw.put, self._handles[family]
        for key, value in rows:
            put(key, value, handle)

    def delete(self, family: str, key: bytes) -> None:
        self._raw.delete(key, self._handles[family])

    def delete_many(self, family: str, keys: Iterable[bytes]) -> None:
        delete, handle = self._raw.delete, self._handles[family]
        for key in keys:
            delete(key, handle)

    def delete_range(self, family: str, start: bytes, end: bytes) -> None:
        """Every key in [start, end)."""
        self._raw.delete_range(start, end, self._handles[family])

    def set_offset(self, topic: str, next_offset: int) -> None:
        """The next offset to read of this shard's partition of `topic`."""
        self._raw.put(topic.encode(), next_offset.to_bytes(8, "big"), self._handles[OFFSETS])


class ShardStore:
    """One shard's tables. Owned by one task at a time; nothing of it may be held across `close`.

    Every method but `close` and `set_aside` raises `StoreFailed` (or `StoreFull`) with the shard named; after `close` too.
    """

    def __init__(
        self, folder: Path, name: str, families: Sequence[Family], memory: Memory, *, aside: str | None = None
    ) -> None:
        """Use `open`; this alone checks nothing."""
        self.folder, self.name = folder, name
        self.aside = aside
        """Why the folder found here was set aside, or None."""
        self.opened_clean = False
        """Whether the last owner closed it; a new store counts as not clean."""
        self._memory = memory
        self._families = {family.name: family for family in (*families, _OFFSETS_FAMILY)}
        self._db: Rdict | None = None
        self._tables: dict[str, Rdict] = {}
        self._handles: dict[str, ColumnFamily] = {}

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        plane: Plane,
        shard: int,
        families: Sequence[Family],
        memory: Memory,
        identity: Identity,
    ) -> ShardStore:
        """Open the folder, or set it aside and make a new one. Raises StoreFailed/StoreFull if not even that works."""
        raise NotImplementedError

    # -- reading -------------------------------------------------------------------------------------------------
    def get(self, family: str, key: bytes) -> bytes | None:
        raise NotImplementedError

    def multi_get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """One value or None per key, in order; one call into the store."""
        raise NotImplementedError

    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """At most `limit` rows with start <= key < end, ascending."""
        raise NotImplementedError

    def last_before(self, family: str, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The greatest row with start <= key < end."""
        raise NotImplementedError

    # -- writing -------------------------------------------------------------------------------------------------
    def batch(self) -> Batch:
        return Batch(self._handles)

    def write(self, batch: Batch) -> None:
        """Write the batch atomically (write-ahead log, no fsync: Kafka survives a lost machine)."""
        raise NotImplementedError

    def empty(self, family: str) -> None:
        """Drop every row of a family at once and give its files back. Not atomic with any batch."""
        raise NotImplementedError

    # -- offsets -------------------------------------------------------------------------------------------------
    def offset(self, topic: str) -> int | None:
        raise NotImplementedError

    def offsets(self) -> dict[str, int]:
        raise NotImplementedError

    # -- ending --------------------------------------------------------------------------------------------------
    def close(self, *, clean: bool = True) -> None:
        """Release everything, the folder's lock included. Idempotent. `clean` is remembered as `opened_clean`."""
        raise NotImplementedError

    def set_aside(self, reason: str) -> Path:
        """Close and rename the folder to `<shard>.<reason>.<time>`; the new path. Call `open` again for a fresh one."""
        raise NotImplementedError
