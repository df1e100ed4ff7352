"""The dispatch shard's job table: what is waiting, in which version, and which source records stand for it.

Kafka is the truth; these rows are the working copy (docs/protocol.md, "Dispatch shard"). Nothing here decides: the
table keeps what it is told, in batches that carry the consumed offset with them.

    due       destination digest, due, delivery  -> job fields, sources, when it was first deferred; carried headers and
                                                    payload if they are small
    jobs      delivery_id                        -> destination digest, due: where the row lies in `due`
    payloads  delivery_id                        -> carried headers, payload bytes of large ones
    oldest    destination digest, from, delivery -> (empty): from when on the next attempt is the job's last
    shelf     (`tables.shelf`)
    claims    delivery_id                        -> attempt, reclaims, deadline: those of others (`tables.claims`: ours)
    done_0/1  delivery_id                        -> highest finished version (two generations)

A destination's next rows are one scan of `due`, small payloads with them: looking rows and payloads up by id cost three
times as much.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from hashlib import blake2b
from struct import Struct
from typing import NamedTuple

from hub_app.domain.delivery import NOTHING, Job, Version
from hub_app.domain.ids import SEP
from tables.claims import Claim
from tables.damage import UNDECODABLE
from tables.memory import Family
from tables.shard import Batch, ShardStore
from tables.shelf import SHELF, Shelf

FAMILIES = (
    Family("jobs", lookups=True),
    Family("payloads", lookups=True, buffer_bytes=8 << 20),
    Family("due"),
    Family("oldest", buffer_bytes=1 << 20),
    SHELF,
    Family("claims", buffer_bytes=256 << 10),
    Family("done_0", lookups=True, buffer_bytes=1 << 20),
    Family("done_1", lookups=True, buffer_bytes=1 << 20),
)
_LAST = b"\xff" * 41  # after every key of every family
_SLICE = 2_000
INLINE_BYTES_MAX = 4_096
"""Carried headers and payload up to this size lie with the row."""
_HEAD = Struct(">H?")  # bytes of the row's fields, whether its payload lies apart
_ATTEMPT_MAX, _MOVES_MAX = 0xFF, 0xFFFF  # above every real attempt and copy: "all of them"

# marshal's version 4 has been stable since Python 3.4 and costs a quarter of struct plus joins; a store is a working
# copy that can be rebuilt, and its schema version (tables/shard.py) is raised whenever this layout changes.
_FORMAT = 4

Source = tuple[str, int]
"""A record that stands for a job: (topic, offset), in this shard's partition."""


Payload = tuple[tuple[tuple[str, bytes], ...], bytes]
"""(carried headers, payload bytes)"""


class LastRule(NamedTuple):
    """Which attempt is a job's last (`hub_app.domain.delivery.is_last`)."""

    attempts_max: int
    max_age_ms: int

    def from_ms(self, job: Job, due_ms: int) -> int:
        """From when on a job that is due at `due_ms` is due for its last attempt."""
        return due_ms if job.attempt >= self.attempts_max else max(due_ms, job.received_at_ms + self.max_age_ms)


class Row:
    """One job in memory: the head of a destination, or in the hands of a worker. `due_ms` may lie later than the
    record's own not-before time (a deferral moves only the row). `payload` is kept while there is room for it (packed,
    where it was read from the table), else looked up when it is needed; `apart`: it is large, and lies by itself.
    `claim` is this worker's, in `slot` of its file; `deferred_ms`: when it was first put off without being charged."""

    __slots__ = ("apart", "claim", "deferred_ms", "due_ms", "job", "payload", "shard", "slot", "sources")

    def __init__(self, job: Job, due_ms: int, sources: tuple[Source, ...], shard: int, deferred_ms: int = 0) -> None:
        self.job, self.due_ms, self.sources, self.shard, self.deferred_ms = job, due_ms, sources, shard, deferred_ms
        self.payload: Payload | bytes | None = None
        self.apart = False
        self.claim: Claim | None = None
        self.slot = -1


def destination_digest(tenant: str, destination: str) -> bytes:
    return blake2b(f"{tenant}{SEP}{destination}".encode(), digest_size=16).digest()


class JobTable:
    """Rows of one dispatch shard. Callers batch: `store.batch()`, the methods that take it, then `store.write()`."""

    def __init__(self, store: ShardStore, shard: int, lasts: LastRule) -> None:
        self.store, self.shard, self._lasts = store, shard, lasts
        self.shelf = Shelf(store)
        self.count = 0  # of jobs, as told: `put` of a new one, `drop`; the opening counts what was there
        self._digests: dict[tuple[str, str], bytes] = {}
        self._done_now, self._done_before = "done_0", "done_1"

    # -- rows ----------------------------------------------------------------------------------------------------------
    def rows(self, ids: list[bytes]) -> list[Row | None]:
        """The row of each id, in order."""
        places = self.store.multi_get("jobs", ids)
        keys = [place + key for key, place in zip(ids, places, strict=True) if place is not None]
        if not keys:
            return [None] * len(ids)
        found = iter(self.store.multi_get("due", keys))
        return [
            None if place is None else self._found(key, next(found)) for key, place in zip(ids, places, strict=True)
        ]

    def slices(self, size: int = _SLICE) -> Iterator[list[Row]]:
        """Every row, in slices: the caller lets the event loop breathe between two of them."""
        after = b""
        while found := self.store.scan("due", after, _LAST, size):
            after = found[-1][0] + b"\0"
            yield [self.row(key[24:], value) for key, value in found]

    def put(self, batch: Batch, row: Row, payload: bytes | None) -> None:
        """Writes the row; `payload` (from `pack_payload`) where the job is new, else the bytes it has are kept."""
        key, place = row.job.delivery_id, self._place(row)
        if payload is not None:
            self.count += 1
            row.apart = len(payload) > INLINE_BYTES_MAX
            if row.apart:
                batch.put("payloads", key, payload)
        elif not row.apart:
            payload = self._packed(row)
        fields = marshal.dumps((tuple(row.job)[1:], row.due_ms, row.sources, row.deferred_ms), _FORMAT)
        head = _HEAD.pack(len(fields), row.apart) + fields
        batch.put("due", place + key, head if row.apart or payload is None else head + payload)
        batch.put("jobs", key, place)
        if row.due_ms != row.job.received_at_ms:  # of the others `due` itself tells their age
            batch.put("oldest", self._oldest_key(row), b"")

    def take_from_due(self, batch: Batch, row: Row) -> None:
        """Removes the row from its place; to be followed by `put` (another due time, another version) or `drop`."""
        if row.payload is None and not row.apart:
            row.payload = self._packed(row)  # it goes with the row
        self._take(batch, row)

    def drop(self, batch: Batch, row: Row) -> None:
        key = row.job.delivery_id
        self.count -= 1
        self._take(batch, row)
        batch.delete("jobs", key)
        if row.apart:
            batch.delete("payloads", key)

    def _take(self, batch: Batch, row: Row) -> None:
        batch.delete("due", self._place(row) + row.job.delivery_id)
        if row.due_ms != row.job.received_at_ms:
            batch.delete("oldest", self._oldest_key(row))

    def earliest(self, tenant: str, destination: str, *, from_ms: int, limit: int) -> list[tuple[bytes, int, bytes]]:
        """The first `limit` rows of a destination that are due at `from_ms` or later, by due time: (delivery id, due,
        what `row` reads). Starting there keeps the scan off the deleted keys of what was finished before."""
        digest = self.digest(tenant, destination)
        start = digest + _time(from_ms)
        found = self.store.scan("due", start, digest + b"\xff" * 25, limit)
        return [(key[24:], _time_of(key), value) for key, value in found]

    def row(self, delivery_id: bytes, value: bytes) -> Row:
        try:
            size, apart = _HEAD.unpack_from(value)
            end = _HEAD.size + size
            fields, due_ms, sources, deferred_ms = marshal.loads(value[_HEAD.size : end])
            row = Row(Job(delivery_id, *fields), due_ms, sources, self.shard, deferred_ms)
        except UNDECODABLE as error:
            raise self.store.unreadable("due", error) from error
        row.apart = apart
        row.payload = None if apart else value[end:]
        return row

    def pages(self, tenant: str, destination: str, size: int) -> Iterator[list[Row]]:
        """Every row of a destination, by due time, in slices as `slices` gives them."""
        after = self.digest(tenant, destination)
        end = after + b"\xff" * 25
        while found := self.store.scan("due", after, end, size):
            after = found[-1][0] + b"\0"
            yield [self.row(key[24:], value) for key, value in found]

    # -- last attempts -------------------------------------------------------------------------------------------------
    def lasts(self, tenant: str, destination: str, *, now_ms: int, limit: int) -> list[Row]:
        """Rows of a destination that are due for their last attempt: at most `limit` of those that have waited since
        they came, then as many of those that have been tried or put off."""
        digest, rule = self.digest(tenant, destination), self._lasts
        since_ms = now_ms if rule.attempts_max == 1 else now_ms - rule.max_age_ms
        never = self.store.scan("due", digest, digest + _time(since_ms + 1), limit)
        tried = [key for key, _ in self.store.scan("oldest", digest, digest + _time(now_ms + 1), limit)]
        rows = [self.row(key[24:], value) for key, value in never]
        stale, seen = self.store.batch(), {row.job.delivery_id for row in rows}
        for key, row in zip(tried, self.rows([key[24:] for key in tried]), strict=True):
            if row is None or key != self._oldest_key(row):
                stale.delete("oldest", key)  # written under other settings
            elif row.job.delivery_id not in seen:
                rows.append(row)
        if len(stale):
            self.store.write(stale)
        return rows

    def next_last_ms(self, tenant: str, destination: str) -> int | None:
        """When the first row of a destination is due for its last attempt, None without rows. May be early."""
        digest, rule = self.digest(tenant, destination), self._lasts
        never = self.store.scan("due", digest, digest + b"\xff" * 25, 1)
        tried = self.store.scan("oldest", digest, digest + b"\xff" * 25, 1)
        patience_ms = 0 if rule.attempts_max == 1 else rule.max_age_ms
        times = [_time_of(key) + patience_ms for key, _ in never] + [_time_of(key) for key, _ in tried]
        return min(times, default=None)

    def _oldest_key(self, row: Row) -> bytes:
        job = row.job
        return self.digest(job.tenant, job.destination) + _time(self._lasts.from_ms(job, row.due_ms)) + job.delivery_id

    # -- payloads ------------------------------------------------------------------------------------------------------
    def payload(self, row: Row) -> Payload:
        """The row's payload, from memory if it is there. StoreFailed, damaged, where it is missing: Kafka has it."""
        packed = row.payload or self._packed(row)
        if isinstance(packed, tuple):
            return packed
        with self.store.decoding("payloads" if row.apart else "due"):
            if not packed:
                raise KeyError(row.job.delivery_id.hex())
            loaded: Payload = marshal.loads(packed)
        return loaded

    def _packed(self, row: Row) -> bytes | None:
        key = row.job.delivery_id
        if isinstance(row.payload, tuple):
            return pack_payload(row.payload)
        if row.payload is not None:
            return row.payload
        if row.apart:
            return self.store.get("payloads", key)
        (stored,) = self.rows([key])
        return stored.payload if stored is not None and isinstance(stored.payload, bytes) else None

    # -- claims --------------------------------------------------------------------------------------------------------
    def note_claim(self, batch: Batch, delivery_id: bytes, claim: Claim) -> None:
        """A claim that another owner wrote to the attempts log."""
        batch.put("claims", delivery_id, marshal.dumps(tuple(claim), _FORMAT))

    def release(self, batch: Batch, delivery_id: bytes) -> None:
        batch.delete("claims", delivery_id)

    def claims(self) -> dict[bytes, Claim]:
        rows = self.store.scan("claims", b"", _LAST, 1 << 20)
        with self.store.decoding("claims"):
            return {key: Claim(*marshal.loads(value)) for key, value in rows}

    # -- outcomes already known ----------------------------------------------------------------------------------------
    def finished(self, ids: list[bytes]) -> list[Version]:
        """The highest finished version per id, NOTHING where none is known."""
        now, before = self.store.multi_get(self._done_now, ids), self.store.multi_get(self._done_before, ids)
        with self.store.decoding(self._done_now):
            return [max(_version(a), _version(b)) for a, b in zip(now, before, strict=True)]

    def mark_finished(self, batch: Batch, delivery_id: bytes, upto: Version) -> None:
        attempt, moves = min(upto[0], _ATTEMPT_MAX), min(upto[1], _MOVES_MAX)
        batch.put(self._done_now, delivery_id, bytes((attempt, moves >> 8, moves & 0xFF)))

    def turn_generation(self) -> None:
        """Forgets the older half of the known outcomes (a later repeat is then attempted again: never a loss)."""
        self._done_now, self._done_before = self._done_before, self._done_now
        self.store.empty(self._done_now)

    # -- helpers -------------------------------------------------------------------------------------------------------
    def digest(self, tenant: str, destination: str) -> bytes:
        found = self._digests.get((tenant, destination))
        if found is None:
            if len(self._digests) >= 10_000:
                self._digests.clear()
            found = self._digests[tenant, destination] = destination_digest(tenant, destination)
        return found

    def _place(self, row: Row) -> bytes:
        return self.digest(row.job.tenant, row.job.destination) + _time(row.due_ms)

    def _found(self, delivery_id: bytes, value: bytes | None) -> Row | None:
        return None if value is None else self.row(delivery_id, value)


def _time(ms: int) -> bytes:
    return max(0, ms).to_bytes(8, "big")


def _time_of(key: bytes) -> int:
    return int.from_bytes(key[16:24], "big")


def _version(value: bytes | None) -> Version:
    return (value[0], value[1] << 8 | value[2]) if value else NOTHING


def pack_payload(payload: Payload) -> bytes:
    return marshal.dumps(payload, _FORMAT)
