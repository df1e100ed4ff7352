"""Dead letters of an inbox shard's tenants, in the order of their death (docs/http-api.md, "Dead letters").

    dead         tenant U+001F offset in hub.dlq   -> what a list shows
    dead_bodies  tenant U+001F offset              -> the event's headers and payload
    dead_ids     tenant U+001F delivery id         -> offset: the same death told twice is one
    dead_log     offset                            -> time of death, tenant, delivery id: what retention takes first

Made from hub.dlq alone, so a lost folder costs a reading of that topic.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from hub_app.wire.dead_letters import DeadLetter, Mark
from tables.memory import Family
from tables.shard import OFFSETS, Batch, ShardStore

FAMILIES = (
    Family("dead", buffer_bytes=1 << 20),
    Family("dead_bodies", lookups=True, buffer_bytes=1 << 20),
    Family("dead_ids", lookups=True, buffer_bytes=256 << 10),
    Family("dead_log", buffer_bytes=64 << 10),
)
DEAD = "dead"
_SEP = b"\x1f"
_FIRST = b"\0dead-first"
_FORMAT = 4  # of marshal, as in tables.inbox
_LOG = Struct(">QH")
_END = b"\xff" * 9
_OFFSET_BYTES = 8


class Letter(NamedTuple):
    """A dead letter as a list shows it. `offset` is its place in hub.dlq. `state`: dead, redriven or discarded;
    `series` and `state_at_ms` tell of the last redrive. `kept`: its payload was kept with it."""

    offset: int
    delivery_id: bytes
    subscription: str
    destination: str
    series_before: str
    seq: int
    topic: str
    source: str
    event_id: str
    event_type: str
    reason: str
    status: int | None
    error: str
    attempts: int
    received_at_ms: int
    died_at_ms: int
    payload_bytes: int
    kept: bool
    state: str
    series: str
    state_at_ms: int


class Body(NamedTuple):
    headers: tuple[tuple[str, bytes], ...]
    value: bytes


class Page(NamedTuple):
    """Oldest first. `after`: the last offset looked at; `more`: a bound ended the page, not the end of the table."""

    letters: list[Letter]
    after: int
    more: bool


class DeadLettersTable:
    """A view of the shard's store; keeps nothing itself, so make one whenever it is needed."""

    def __init__(self, store: ShardStore, topic: str) -> None:
        """`topic`: hub.dlq, as it is called here."""
        self.store, self._topic = store, topic

    def position(self) -> int | None:
        """The next offset to read; None before the first."""
        return self.store.offset(self._topic)

    # -- reading -------------------------------------------------------------------------------------------------
    def get(self, tenant: str, delivery_id: bytes) -> Letter | None:
        offset = self.store.get("dead_ids", _id_key(tenant, delivery_id))
        value = None if offset is None else self.store.get("dead", tenant.encode() + _SEP + offset)
        if value is None or offset is None:
            return None
        with self.store.decoding("dead"):
            return _letter(int.from_bytes(offset, "big"), value)

    def body(self, tenant: str, letter: Letter) -> Body | None:
        """The event as it was; None where it was too large to be kept."""
        value = self.store.get("dead_bodies", _key(tenant, letter.offset)) if letter.kept else None
        if value is None:
            return None
        with self.store.decoding("dead_bodies"):
            return Body(*marshal.loads(value))

    def after(
        self,
        tenant: str,
        after: int,
        *,
        limit: int,
        wants: Callable[[Letter], bool],
        rows_max: int = 2_000,
    ) -> Page:
        """Letters of a tenant with offset > `after` that are wanted; looks at `rows_max` at most."""
        prefix = tenant.encode() + _SEP
        rows = self.store.scan("dead", _key(tenant, after + 1), prefix + _END, rows_max)
        letters: list[Letter] = []
        place = after
        for key, value in rows:
            with self.store.decoding("dead"):
                letter = _letter(int.from_bytes(key[-_OFFSET_BYTES:], "big"), value)
            if wants(letter):
                if len(letters) == limit:
                    return Page(letters, place, True)
                letters.append(letter)
            place = letter.offset
        return Page(letters, place, len(rows) == rows_max)

    # -- writing -------------------------------------------------------------------------------------------------
    def put(self, batch: Batch, offset: int, dead: DeadLetter, seen: set[tuple[str, bytes]]) -> None:
        """One more. Known already (a death is told twice after a crash): nothing changes. `seen`: what this batch holds
        of it."""
        tenant, id = dead.job.tenant, dead.job.delivery_id
        key = _id_key(tenant, id)
        if (tenant, id) in seen or self.store.get("dead_ids", key) is not None:
            return
        seen.add((tenant, id))
        place, log_offset = _key(tenant, offset), offset.to_bytes(_OFFSET_BYTES, "big")
        batch.put("dead", place, marshal.dumps(tuple(_made(offset, dead))[1:], _FORMAT))
        if dead.value is not None:
            batch.put("dead_bodies", place, marshal.dumps((dead.headers, dead.value), _FORMAT))
        batch.put("dead_ids", key, log_offset)
        batch.put("dead_log", log_offset, _LOG.pack(dead.at_ms, len(tenant.encode())) + tenant.encode() + id)

    def mark(self, batch: Batch, mark: Mark) -> None:
        """What became of one that is in the store. Nothing happens when it is not, or was marked later than that."""
        letter = self.get(mark.tenant, mark.delivery_id)
        if letter is None or letter.state_at_ms > mark.at_ms:
            return
        changed = letter._replace(state=mark.kind.value, series=mark.series, state_at_ms=mark.at_ms)
        batch.put("dead", _key(mark.tenant, letter.offset), marshal.dumps(tuple(changed)[1:], _FORMAT))

    def expire(self, batch: Batch, before_ms: int, limit: int) -> int:
        """Takes at most `limit` of those that died before `before_ms` away, the first first; how many."""
        first = self.store.get(OFFSETS, _FIRST) or b"\0" * _OFFSET_BYTES
        gone, after = 0, first
        rows = self.store.scan("dead_log", first, _END, limit)
        with self.store.decoding("dead_log"):
            heads = [_LOG.unpack_from(value) for _, value in rows]
        for (key, value), (died_at_ms, tenant_bytes) in zip(rows, heads, strict=True):
            if died_at_ms >= before_ms:
                break
            split = _LOG.size + tenant_bytes
            tenant, id = value[_LOG.size : split], value[split:]
            batch.delete("dead", tenant + _SEP + key)
            batch.delete("dead_bodies", tenant + _SEP + key)
            batch.delete("dead_ids", tenant + _SEP + id)
            batch.delete("dead_log", key)
            gone, after = gone + 1, (int.from_bytes(key, "big") + 1).to_bytes(_OFFSET_BYTES, "big")
        if gone:
            batch.put(OFFSETS, _FIRST, after)
        return gone

    def begin_again(self) -> None:
        """The log was made anew: forget everything."""
        for family in ("dead", "dead_bodies", "dead_ids", "dead_log"):
            self.store.empty(family)
        batch = self.store.batch()
        batch.delete(OFFSETS, _FIRST)
        batch.set_offset(self._topic, 0)
        self.store.write(batch)


def _made(offset: int, dead: DeadLetter) -> Letter:
    job, ce = dead.job, dict(dead.headers)
    resource, event = ce.get("ce-resourcetype", b""), ce.get("ce-eventtype", b"")
    type = ce.get("ce-type", b"").decode("utf-8", "replace")
    event_type = f"{resource.decode('utf-8', 'replace')}.{event.decode('utf-8', 'replace')}" if resource else type
    return Letter(
        offset,
        job.delivery_id,
        job.subscription,
        job.destination,
        job.series,
        job.seq,
        job.topic,
        ce.get("ce-source", b"").decode("utf-8", "replace"),
        ce.get("ce-id", b"").decode("utf-8", "replace"),
        event_type,
        dead.reason,
        dead.status,
        dead.error,
        job.attempt,
        job.received_at_ms,
        dead.at_ms,
        dead.payload_bytes,
        dead.value is not None,
        DEAD,
        "",
        0,
    )


def _letter(offset: int, value: bytes) -> Letter:
    return Letter(offset, *marshal.loads(value))


def _key(tenant: str, offset: int) -> bytes:
    return tenant.encode() + _SEP + offset.to_bytes(_OFFSET_BYTES, "big")


def _id_key(tenant: str, delivery_id: bytes) -> bytes:
    return tenant.encode() + _SEP + delivery_id
