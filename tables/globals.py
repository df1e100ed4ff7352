"""What every global table shares: small state that every worker reads whole from a compacted topic.

A tail calls `apply` for each record, in offset order per partition. The owner of a partition calls `apply_own` for what
it has just written, before it answers; the tail's later reading of the same record is then recognised by its offset.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from hub_app.wire.record import Unreadable

log = logging.getLogger(__name__)

Row = TypeVar("Row")
HeadersGiven = Sequence[tuple[str, bytes | None]]
UNREADABLE_MAX = 1_000
"""Unreadable records kept in view; more are only counted."""


class UnreadableRow(NamedTuple):
    """A record of the table's topic that cannot be read: where it lies, and why."""

    partition: int
    offset: int
    key: str
    reason: str


class GlobalTable(ABC, Generic[Row]):
    """Rows by the record's key. Never raises for a record: one that cannot be read is counted, logged and kept in view
    until a later record of its key replaces it; what stood before it under that key is `_lost`'s to judge."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.unreadable_count = 0
        self._unreadable: dict[bytes, UnreadableRow] = {}
        self._next: dict[int, int] = {}
        self._keys: dict[int, set[bytes]] = {}

    # -- what a subclass says ------------------------------------------------------------------------------------
    @abstractmethod
    def _read(self, key: bytes, value: bytes | None, headers: HeadersGiven) -> Row | Unreadable | None:
        """The row of a record; None when the record says that there is none."""

    @abstractmethod
    def _put(self, key: bytes, row: Row) -> None: ...

    @abstractmethod
    def _drop(self, key: bytes) -> None:
        """Forget the row of `key`, if there is one."""

    def _lost(self, key: bytes) -> None:
        """A record of `key` cannot be read. By default the row before it stands: the last thing understood."""

    # -- what the tail and the owner call ------------------------------------------------------------------------
    def apply(
        self, partition: int, offset: int, key: bytes | None, value: bytes | None, headers: HeadersGiven = ()
    ) -> None:
        """Take one record in; one at or below an offset already seen changes nothing."""
        if offset < self._next.get(partition, 0):
            return
        self._next[partition] = offset + 1
        key = key or b""
        read = self._read_safely(key, value, headers)
        if isinstance(read, Unreadable):
            self._note(partition, offset, key, read.reason)
            return
        self._unreadable.pop(key, None)
        if read is None:
            self._drop(key)
            self._keys.get(partition, set()).discard(key)
        else:
            self._put(key, read)
            self._keys.setdefault(partition, set()).add(key)

    apply_own = apply
    """The same: the single writer has read its partition to the end and writes in order, so what it wrote follows
    everything that it has seen."""

    def reset(self, partition: int) -> None:
        """The log of `partition` was made anew: forget what came from it."""
        for key in self._keys.pop(partition, set()):
            self._drop(key)
        self._unreadable = {key: row for key, row in self._unreadable.items() if row.partition != partition}
        self._next.pop(partition, None)

    # -- what readers ask ----------------------------------------------------------------------------------------
    def offset(self, partition: int) -> int:
        """The next offset of the partition: every record below it is in the table."""
        return self._next.get(partition, 0)

    @property
    def unreadable(self) -> Mapping[bytes, UnreadableRow]:
        """Records that cannot be read, by key; for readiness."""
        return self._unreadable

    def _read_safely(self, key: bytes, value: bytes | None, headers: HeadersGiven) -> Row | Unreadable | None:
        try:
            return self._read(key, value, headers)
        except Exception as error:  # a reader is total; should one not be, a record must not stop every worker
            return Unreadable(f"{type(error).__name__}: {error}")

    def _note(self, partition: int, offset: int, key: bytes, reason: str) -> None:
        self.unreadable_count += 1
        shown = key.decode(errors="backslashreplace").replace("\x1f", "/")[:200]
        if key in self._unreadable or len(self._unreadable) < UNREADABLE_MAX:
            self._unreadable[key] = UnreadableRow(partition, offset, shown, reason)
        log.error("%s[%d]@%d cannot be read and is left out: %s", self.topic, partition, offset, reason)
        self._lost(key)
