"""What an inbox shard has admitted: identities for the dedup window, and facts for as long as they can be pulled.

    events       seq                -> broker time, tenant, whether the payload is JSON, fact
    index        tenant U+001F seq  -> size, source, event type: a tenant's facts in order, without payloads
    ids_0/ids_1  identity           -> first seq, broker time, digest (two generations)
    floors       tenant             -> its highest seq that retention took away

Everything is decided by broker time (`LogAppendTime`), never by this machine's clock, so that a rebuild from the log
decides as the first run did (docs/protocol.md, "Inbox shard").
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from hub_app.domain.admission import DIGEST_BYTES, Known
from hub_app.domain.fact import Fact
from hub_app.domain.ids import identity_key
from hub_app.domain.limits import HOUR_MS
from tables.damage import UNDECODABLE
from tables.events import EVENT, TENANT_BITS, look, read_fact
from tables.memory import Family
from tables.shard import OFFSETS, Batch, ShardStore

FAMILIES = (
    Family("events", buffer_bytes=8 << 20),
    Family("index", buffer_bytes=1 << 20),
    Family("ids_0", lookups=True, buffer_bytes=4 << 20),
    Family("ids_1", lookups=True, buffer_bytes=4 << 20),
    Family("floors", lookups=True, buffer_bytes=64 << 10),
)
_GENERATION = b"\0inbox-generation"
_BASE = b"\0inbox-base"  # the log began here when this store was built
_FIRST = b"\0inbox-first"  # retention has come this far: where its next step begins
_GENERATION_SLACK_MS = HOUR_MS
"""A broker's clock may step back by this much (a new leader) without an identity being forgotten too early."""
_SEP = b"\x1f"
_KEY_END = b"\xff" * 9
SEQ_MAX = (1 << 63) - 1

# marshal's version 4 has been stable since Python 3.4 and costs half of struct and joins. It reads back only what this
# process or an earlier one wrote (RocksDB's checksums stand before it), and the schema version of the store covers it.
_FORMAT = 4
_KNOWN = Struct(f">QQ{DIGEST_BYTES}s")
_INDEX = Struct(">IH")

Wants = Callable[[str, str], bool]
"""(event type, source) -> whether a reader wants such a fact."""


class Admitted(NamedTuple):
    """A fact to remember. `key` is `identity_key`; `at_ms` its broker time; `digest` as in `domain.admission`."""

    key: bytes
    fact: Fact
    digest: bytes
    at_ms: int


class Page(NamedTuple):
    """Facts in seq order. `next_seq`: the last seq looked at, to be given as `after` of the next call; equal to the
    `after` that was given when there is nothing behind it. `more`: a bound ended the page, not the end of the table."""

    facts: list[Fact]
    next_seq: int
    more: bool


class InboxTable:
    """Tables of one inbox shard. Callers batch: `store.batch()`, the methods that take it, `store.write()`.

    A step of the inbox: `look_up` all its keys, decide, then `admit` in one batch with the offset.
    """

    def __init__(self, store: ShardStore, *, dedup_window_ms: int) -> None:
        self.store = store
        self._generation_ms = dedup_window_ms + _GENERATION_SLACK_MS
        generation = store.number(_GENERATION)
        self._generation = -1 if generation is None else generation
        self._base, self._first = store.number(_BASE) or 0, store.number(_FIRST) or 0

    # -- identities ----------------------------------------------------------------------------------------------
    def look_up(self, keys: list[bytes]) -> list[Known | None]:
        """What is remembered of each identity, the newer generation first; two multi-gets for the whole list.

        Repeats inside the list are the caller's to see: nothing of this step is written yet.
        """
        newer, older = self._families()
        both = zip(self.store.multi_get(newer, keys), self.store.multi_get(older, keys), strict=True)
        values = [old if new is None else new for new, old in both]
        with self.store.decoding(newer):
            return [None if value is None else _known(value) for value in values]

    def admit(self, batch: Batch, admitted: list[Admitted]) -> None:
        """Remember facts and their identities. Turns the generations over first when broker time entered a new one:
        so all of a step's `look_up` come before its `admit`, and there is one `admit` a batch."""
        if not admitted:
            return
        self._turn(batch, max(row.at_ms for row in admitted))
        events: list[tuple[bytes, bytes]] = []
        entries: list[tuple[bytes, bytes]] = []
        ids: list[tuple[bytes, bytes]] = []
        dumps, head, entry = marshal.dumps, EVENT.pack, _INDEX.pack
        for key, fact, digest, at_ms in admitted:
            seq, tenant, source = fact.seq.to_bytes(8, "big"), fact.tenant.encode(), fact.source.encode()
            event = head(at_ms, len(tenant) | look(fact)) + tenant + dumps(fact[2:], _FORMAT)
            events.append((seq, event))
            entries.append((tenant + _SEP + seq, entry(len(event), len(source)) + source + fact.event_type.encode()))
            ids.append((key, _KNOWN.pack(fact.seq, at_ms, digest)))
        batch.put_many("events", events)
        batch.put_many("index", entries)
        batch.put_many(self._families()[0], ids)

    def _families(self) -> tuple[str, str]:
        """(current, previous) family of identities."""
        return ("ids_1", "ids_0") if self._generation & 1 else ("ids_0", "ids_1")

    def _turn(self, batch: Batch, at_ms: int) -> None:
        """Generations are as long as the window (and a slack), counted by broker time. A family is emptied when its
        generation lies two back, so whatever is within the window is in the current or the previous one."""
        generation = at_ms // self._generation_ms
        if generation <= self._generation:
            return
        older_too = generation > self._generation + 1
        self._generation = generation
        current, previous = self._families()
        # A crash after this and before the batch is written empties an empty family once more.
        self.store.empty(current)
        if older_too:
            self.store.empty(previous)
        batch.put(OFFSETS, _GENERATION, _seq(generation))

    # -- facts ---------------------------------------------------------------------------------------------------
    def fact(self, tenant: str, seq: int) -> Fact | None:
        """A fact of this tenant; None when there is none (any more), or when it is another tenant's."""
        found = self.facts([seq])[0]
        return found if found is not None and found.tenant == tenant else None

    def facts(self, seqs: list[int]) -> list[Fact | None]:
        """One per seq, in order; for rows that point into this table. The sum of payloads is the caller's to bound."""
        keys = [_seq(seq) for seq in seqs]
        values = zip(seqs, self.store.multi_get("events", keys), strict=True)
        with self.store.decoding("events"):
            return [None if value is None else read_fact(seq, value) for seq, value in values]

    def events_after(
        self,
        tenant: str,
        after: int,
        *,
        limit: int,
        bytes_max: int,
        until: int = SEQ_MAX,
        wants: Wants | None = None,
        rows_max: int = 2_000,
    ) -> Page:
        """Facts of a tenant with after < seq <= until, ascending. Walks no other tenant's rows.

        Ends at `limit` facts, before the fact that would pass `bytes_max` of stored bytes (but never before the first),
        or after `rows_max` rows looked at, whether wanted or not.
        """
        prefix = tenant.encode() + _SEP
        rows = self.store.scan("index", prefix + _seq(after + 1), prefix + _seq(until) + b"\0", rows_max)
        seqs, more, looked_at, size = list[int](), len(rows) == rows_max, after, 0
        for key, value in rows:
            try:
                event_bytes, source, event_type = _entry(value)
            except UNDECODABLE as error:
                raise self.store.unreadable("index", error) from error
            if wants is None or wants(event_type, source):
                size += event_bytes
                if len(seqs) >= limit or (seqs and size > bytes_max):
                    more = True
                    break
                seqs.append(int.from_bytes(key[-8:], "big"))
            looked_at = int.from_bytes(key[-8:], "big")
        return Page([fact for fact in self.facts(seqs) if fact is not None], looked_at, more)

    def oldest(self, tenant: str) -> int | None:
        """The lowest seq of the tenant that is here."""
        prefix = tenant.encode() + _SEP
        rows = self.store.scan("index", prefix, prefix + _KEY_END, 1)
        return int.from_bytes(rows[0][0][-8:], "big") if rows else None

    def newest(self, tenant: str) -> int | None:
        """The highest seq of the tenant that is here."""
        prefix = tenant.encode() + _SEP
        row = self.store.last_before("index", prefix, prefix + _KEY_END)
        return int.from_bytes(row[0][-8:], "big") if row else None

    # -- retention -----------------------------------------------------------------------------------------------
    def horizon(self, tenant: str) -> int:
        """A reader whose cursor is below this seq has missed facts that are gone (410); -1 when nothing is."""
        floor = self.store.get("floors", tenant.encode()) or b""
        return max(int.from_bytes(floor, "big") if floor else -1, self._base - 1)

    def begin_at(self, batch: Batch, seq: int) -> None:
        """Say, before the first fact of a rebuild, that the log begins at `seq`: nothing below it is known here."""
        self._base = self._first = seq
        batch.put(OFFSETS, _BASE, _seq(seq))
        batch.put(OFFSETS, _FIRST, _seq(seq))

    def expire(self, batch: Batch, before_ms: int, limit: int) -> int:
        """Take away at most `limit` of the oldest facts with broker time < `before_ms`; how many. Write the batch
        before calling again. Identities are not touched: they have generations."""
        rows = self.store.scan("events", _seq(self._first), _KEY_END, limit)
        floors, gone = dict[bytes, bytes](), list[bytes]()
        with self.store.decoding("events"):
            heads = [EVENT.unpack_from(value) for _, value in rows]
        for (key, value), (at_ms, tenant_bytes) in zip(rows, heads, strict=True):
            if at_ms >= before_ms:
                break
            tenant = value[EVENT.size : EVENT.size + (tenant_bytes & TENANT_BITS)]
            gone.append(tenant + _SEP + key)
            floors[tenant] = key
        if not gone:
            return 0
        batch.delete_many("index", gone)
        batch.put_many("floors", floors.items())
        after_last = int.from_bytes(gone[-1][-8:], "big") + 1
        batch.delete_range("events", _seq(self._first), _seq(after_last))
        batch.put(OFFSETS, _FIRST, _seq(after_last))
        self._first = after_last
        return len(gone)


def id_key(fact: Fact) -> bytes:
    """The identity under which a fact is remembered."""
    return identity_key(fact.tenant, fact.topic, fact.source, fact.id)


def _seq(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def _entry(value: bytes) -> tuple[int, str, str]:
    """(bytes of the event, source, event type) of an index row."""
    event_bytes, source_bytes = _INDEX.unpack_from(value)
    split = _INDEX.size + source_bytes
    return event_bytes, value[_INDEX.size : split].decode(), value[split:].decode()


def _known(value: bytes) -> Known:
    seq, at_ms, digest = _KNOWN.unpack(value)
    return Known(seq, digest, at_ms)
