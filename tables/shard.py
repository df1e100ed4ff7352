"""The RocksDB folder of one shard: opening, batches, bounded reads, offsets, closing, setting aside.

Rows and the consumed offset travel in one batch, so a store is always *some* point of its logs, and the logs in Kafka
can bring it forward from there. A store that does not belong is set aside with its reason in the name, never deleted.
Source of the rules: design "Topics and tables".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from rocksdict import ColumnFamily, DbClosedError, Rdict, ReadOptions

from hub_app.domain.errors import StoreFailed
from tables.batch import OFFSETS, Batch
from tables.damage import UNDECODABLE, Decoding, failure, is_damage, unreadable
from tables.datadir import Plane, put_aside
from tables.logfiles import unsound
from tables.memory import Family, Memory

__all__ = ["OFFSETS", "Batch", "Identity", "ShardStore"]

_OFFSETS_FAMILY = Family(OFFSETS, buffer_bytes=64 << 10)
# Marks live beside the offsets; no topic name starts with NUL.
OFFSETS_MAX = 1_000
_NUMBER_BYTES, _NUMBER_MAX = 8, (1 << 63) - 1
_CLUSTER, _EPOCH, _SCHEMA, _OPEN = b"\0cluster", b"\0epoch", b"\0schema", b"\0open"


class Identity(NamedTuple):
    """What a store belongs to. A folder with another identity is set aside (an older schema too: it is rebuilt)."""

    cluster_id: str
    epoch: int
    schema_version: int


def _close(database: Rdict) -> None:
    """Closing writes out what is in memory; where that fails (no room) the write-ahead log still has it, and dropping
    the object, which the caller must not keep, closes it too."""
    with contextlib.suppress(Exception):
        database.close()


def _ended_well(table: Rdict, key: bytes, bounded: ReadOptions) -> None:
    """Raise what stopped a scan behind `key`: rocksdict's iterators end at a damaged block as if nothing followed."""
    probe = table.iter(bounded)
    try:
        probe.seek(key)
        while probe.valid():
            probe.next()
        probe.status()
    finally:
        del probe  # the exception keeps this frame, and the iterator in it would keep the folder's lock


class ShardStore:
    """One shard's tables. Owned by one task at a time; nothing of it may be held across `close`.

    Every method but `close` and `set_aside` raises `StoreFailed` (or `StoreFull`) naming the shard, after `close` too.
    """

    def __init__(
        self, folder: Path, name: str, families: Sequence[Family], memory: Memory, *, aside: str | None = None
    ) -> None:
        """Use `open`; this alone checks nothing."""
        self.folder, self.name = folder, name
        self.aside = aside
        """Why the folder found here was set aside, or None."""
        self.fresh = True
        """Whether nothing was there: a new folder, or one made after the old was set aside."""
        self.opened_clean = False
        """Whether the last owner closed it; a new store counts as not clean."""
        self.on_damage: Callable[[StoreFailed], None] = _nobody
        """Told of every damage that a call finds, beside the exception: who reads need not know whom it concerns. It
        may not close the store at once: the call is still under way."""
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
        name = f"{plane}/{shard}"
        store = cls(folder, name, families, memory)
        reason = store._try_open(identity)
        if reason is None:
            return store
        store.set_aside(reason)
        fresh = cls(folder, name, families, memory, aside=reason)
        again = fresh._try_open(identity)
        if again is not None:
            fresh.close(clean=False)
            raise StoreFailed(name, f"a new store cannot be opened: {again}")
        return fresh

    def _try_open(self, identity: Identity) -> str | None:
        """Open what is there; the reason why it does not belong, or None when it is ready."""
        try:
            if self.folder.is_file():
                return "damaged"
            self.folder.mkdir(parents=True, exist_ok=True)
            here = {entry.name for entry in self.folder.iterdir()}
        except OSError as error:
            raise failure(self.name, error) from error
        # RocksDB takes a folder without CURRENT for a new one and removes the files in it: state silently gone.
        if "CURRENT" not in here and any(name.endswith((".sst", ".log")) for name in here):
            return "damaged"
        known = set(self._families) | {"default"}
        try:
            if "CURRENT" in here:
                if reason := unsound(self.folder):
                    return reason
                if not set(Rdict.list_cf(str(self.folder))) <= known:
                    return "other-families"
            self._open_files()
            return self._judge(identity)
        except StoreFailed as failed:
            if not failed.damaged:
                self.close(clean=False)
                raise
        except UNDECODABLE:
            pass  # a mark
        except Exception as error:  # rocksdict raises bare Exception
            if not is_damage(error):
                self.close(clean=False)
                raise failure(self.name, error) from error
        return "damaged"

    def _open_files(self) -> None:
        families = {name: self._memory.options(family) for name, family in self._families.items()}
        self._db = Rdict(str(self.folder), self._memory.options(), column_families=families)
        for name in self._families:
            self._tables[name] = self._db.get_column_family(name)
            self._handles[name] = self._db.get_column_family_handle(name)
        self._memory.enter(self._tables)

    def _judge(self, identity: Identity) -> str | None:
        wanted = {
            _CLUSTER: identity.cluster_id.encode(),
            _EPOCH: b"%d" % identity.epoch,
            _SCHEMA: b"%d" % identity.schema_version,
        }
        marks = dict(self.scan(OFFSETS, b"\0", b"\1", 100))
        found = {key: marks[key] for key in wanted if key in marks}
        if found and (found.keys() != wanted.keys() or not (found[_EPOCH] + found[_SCHEMA]).isdigit()):
            return "damaged"
        if found:
            if found[_CLUSTER] != wanted[_CLUSTER]:
                return "other-cluster"
            if found[_SCHEMA] != wanted[_SCHEMA]:
                newer = int(found[_SCHEMA]) > identity.schema_version
                return "schema-too-new" if newer else "schema-too-old"
            if found[_EPOCH] != wanted[_EPOCH]:
                return "epoch-changed"
        self.fresh = not found
        self.opened_clean = bool(found) and _OPEN not in marks
        opened = self.batch()
        opened.put_many(OFFSETS, (*wanted.items(), (_OPEN, b"1")))
        self.write(opened)
        return None

    # -- reading -------------------------------------------------------------------------------------------------
    def get(self, family: str, key: bytes) -> bytes | None:
        try:
            value: bytes | None = self._tables[family].get(key)
        except Exception as error:
            raise self._failed(error) from error
        return value

    def multi_get(self, family: str, keys: list[bytes]) -> list[bytes | None]:
        """One value or None per key, in order; one call into the store."""
        try:
            values: list[bytes | None] = self._tables[family][keys]
        except Exception as error:
            raise self._failed(error) from error
        return values

    def scan(self, family: str, start: bytes, end: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """At most `limit` rows with start <= key < end, ascending."""
        if limit <= 0:
            return []
        try:
            bounded = ReadOptions()
            bounded.set_iterate_upper_bound(end)
            table = self._tables[family]
            rows = list(islice(table.items(from_key=start, read_opt=bounded), limit))
            if len(rows) < limit:
                _ended_well(table, rows[-1][0] if rows else start, bounded)
        except Exception as error:
            raise self._failed(error) from error
        return rows

    def last_before(self, family: str, start: bytes, end: bytes) -> tuple[bytes, bytes] | None:
        """The greatest row with start <= key < end."""
        try:
            bounded = ReadOptions()
            bounded.set_iterate_upper_bound(end)
            table = self._tables[family]
            rows = list(islice(table.items(backwards=True, read_opt=bounded), 1))
            if not rows:
                _ended_well(table, start, bounded)
        except Exception as error:
            raise self._failed(error) from error
        return rows[0] if rows and rows[0][0] >= start else None

    # -- writing -------------------------------------------------------------------------------------------------
    def batch(self) -> Batch:
        return Batch(self._handles)

    def write(self, batch: Batch) -> None:
        """Write the batch atomically (write-ahead log, no fsync: Kafka survives a lost machine)."""
        try:
            self._opened().write(batch.raw)
            self._memory.relieve()
        except Exception as error:
            raise self._failed(error) from error

    def empty(self, family: str) -> None:
        """Drop every row of a family at once and give its files back. Not atomic with any batch."""
        try:
            database = self._opened()
            self._handles.pop(family, None)
            self._tables.pop(family).close()
            database.drop_column_family(family)
            self._tables[family] = database.create_column_family(family, self._memory.options(self._families[family]))
            self._handles[family] = database.get_column_family_handle(family)
        except Exception as error:
            raise self._failed(error) from error

    # -- offsets -------------------------------------------------------------------------------------------------
    def offset(self, topic: str) -> int | None:
        """The next offset to read of this shard's partition of `topic`; None if none was ever written."""
        return self.number(topic.encode())

    def number(self, key: bytes) -> int | None:
        """An offset or a mark: eight bytes; None if it was never written."""
        stored = self.get(OFFSETS, key)
        return None if stored is None else self._number(stored)

    def offsets(self) -> dict[str, int]:
        rows = self.scan(OFFSETS, b"\1", b"\xff", OFFSETS_MAX)
        with self.decoding(OFFSETS):
            return {key.decode(): self._number(value) for key, value in rows}

    def _number(self, stored: bytes) -> int:
        number = int.from_bytes(stored, "big")
        if len(stored) != _NUMBER_BYTES or number > _NUMBER_MAX:
            raise self.unreadable(OFFSETS, ValueError(stored[:32]))
        return number

    def behind_log(self, log_starts: Mapping[str, int]) -> str | None:
        """The reason to set this store aside when the log no longer holds the next offset of some topic, else None.

        `log_starts`: topic -> earliest offset that is still there.
        """
        gone = [topic for topic, offset in self.offsets().items() if offset < log_starts.get(topic, 0)]
        return "offset-deleted" if gone else None

    # -- ending --------------------------------------------------------------------------------------------------
    def close(self, *, clean: bool = True) -> None:
        """Release everything, the folder's lock included. Idempotent. `clean` is remembered as `opened_clean`."""
        if self._db is None:
            return
        if clean:
            with contextlib.suppress(StoreFailed):
                closing = self.batch()
                closing.delete(OFFSETS, _OPEN)
                self.write(closing)
        database = self._db
        self._db = None
        # A family, handle or iterator that lives on keeps the lock file: all of them live in these two dicts.
        self._memory.leave(self._tables)
        self._handles.clear()
        while self._tables:
            _close(self._tables.popitem()[1])
        _close(database)

    def set_aside(self, reason: str) -> Path:
        """Close and rename the folder to `<shard>.<reason>.<time>`; the new path. Call `open` again for a fresh one."""
        self.close(clean=False)
        try:
            return put_aside(self.folder, reason)
        except OSError as error:
            raise failure(self.name, error) from error

    def _opened(self) -> Rdict:
        if self._db is None:
            raise DbClosedError("closed")
        return self._db

    def decoding(self, family: str) -> Decoding:
        """`with` this around decoding rows."""
        return Decoding(self.unreadable, family)

    def unreadable(self, family: str, error: Exception) -> StoreFailed:
        """To be raised for a row that does not hold what was written there: the store is damaged."""
        failed = unreadable(self.name, family, error)
        self.on_damage(failed)
        return failed

    def _failed(self, error: Exception) -> StoreFailed:
        if isinstance(error, StoreFailed):
            return error
        if self._db is None:
            return StoreFailed(self.name, "closed")
        failed = failure(self.name, error)
        if failed.damaged:
            self.on_damage(failed)
        return failed


def _nobody(_damage: StoreFailed) -> None:
    """Whoever opens the store hears of damage by the exception."""
