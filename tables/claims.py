"""The claims of this process: what its workers have in hand, in a small mapped file.

A claim must be on record before its attempt starts, so that a process that dies tells the next one what it was doing
(docs/protocol.md, "Crash"). There are never more than workers, and only this process writes them: a row in its shard's
RocksDB cost 15 µs a claim, a slot in a mapped file costs less than one. The page cache outlives a killed process; a
lost machine is covered by the claims in the attempts log, as a lost disk is.
"""

from __future__ import annotations

import mmap
from pathlib import Path
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from tables.datadir import put_aside

_FIELDS = Struct(">16sBBHQ")  # delivery id, attempt, reclaims, shard, deadline
_SLOT = Struct(">B28s3s")  # used, fields, checksum; 32 bytes
_USED = 0xC1
_SLOTS_READ_MAX = 100_000


class Claim(NamedTuple):
    """A job in somebody's hands; past its deadline (and a margin) without an outcome it was interrupted."""

    attempt: int
    reclaims: int
    deadline_ms: int


class ClaimFile:
    """One slot per worker. `left` is what the process before this one had in hand, by shard and delivery id; `damaged`
    says what of it cannot be known (empty: nothing). Those claims count as interrupted by what the attempts log holds
    of them, as those of a lost disk."""

    def __init__(self, path: Path, slots: int) -> None:
        """Reads what the last process left, then starts empty; a file that is damaged is put aside. OSError when the
        folder cannot be written."""
        self.left, self.damaged = _read(path)
        if self.damaged:
            put_aside(path, "damaged")
        size = _SLOT.size * slots
        path.write_bytes(bytes(size))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), size)
        self._slots, self._free = slots, list(range(slots))

    def take(self, shard: int, delivery_id: bytes, claim: Claim) -> int:
        """Records a claim; returns its slot. IndexError when there are more claims than workers."""
        slot = self._free.pop()
        fields = _FIELDS.pack(delivery_id, claim[0], claim[1], shard, claim[2])
        _SLOT.pack_into(self._map, slot * _SLOT.size, _USED, fields, crc32(fields).to_bytes(4, "big")[:3])
        return slot

    def release(self, slot: int) -> None:
        """The attempt ended, whatever came of it."""
        self._map[slot * _SLOT.size] = 0
        self._free.append(slot)

    @property
    def in_use(self) -> int:
        """Attempts that were claimed and have not ended."""
        return self._slots - len(self._free)

    def close(self) -> None:
        self._map.close()


def _read(path: Path) -> tuple[dict[int, dict[bytes, Claim]], str]:
    left: dict[int, dict[bytes, Claim]] = {}
    try:
        with path.open("rb") as file:
            data = file.read(_SLOT.size * _SLOTS_READ_MAX)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, str(error)
    broken = int(len(data) % _SLOT.size > 0)
    for used, fields, checksum in _SLOT.iter_unpack(data[: len(data) - len(data) % _SLOT.size]):
        if used == _USED and crc32(fields).to_bytes(4, "big")[:3] == checksum:
            delivery_id, attempt, reclaims, shard, deadline_ms = _FIELDS.unpack(fields)
            left.setdefault(shard, {})[delivery_id] = Claim(attempt, reclaims, deadline_ms)
        elif used:
            broken += 1
    return left, f"{broken} slots of it are not what was written" if broken else ""
