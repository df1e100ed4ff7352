"""The events of queues, in their inbox shard's store. They point into `events`; no payload is copied.

    rows      subscription U+001F seq                  -> lock state
    visible   subscription U+001F visible at, seq      -> nothing: when each can be received; 0 is now, lowest seq first
    queues    subscription                             -> the highest seq it was ever given
              subscription U+001F seq, series          -> nothing: events that an operation put there once more

What is written here was acknowledged by `hub.queue` before; `apply` does the same from the log (docs/queues.md).
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct

from hub_app.domain.queue import Row
from hub_app.wire.queue import Action, Enqueued, Marked
from tables.memory import Family
from tables.shard import Batch, ShardStore

FAMILIES = (
    Family("rows", lookups=True, buffer_bytes=1 << 20),
    Family("visible", buffer_bytes=1 << 20),
    Family("queues", lookups=True, buffer_bytes=64 << 10),
)
_ROW = Struct(">QHBQQQ")
_PLACE = Struct(">QQ")
_SEP = b"\x1f"
_AFTER_SEP = b"\x20"
_NEVER = (1 << 63) - 1
QUEUES_MAX = 100_000
"""Queues looked at in one step; a shard has fewer."""


class QueueTable:
    """Rows of one shard. Callers batch: the methods that take a batch, then, without waiting for anything in between,
    `store.write()`. What `put` is given must be what the store holds, or what an earlier call with the same batch made
    of it.

    Deleted keys stay in the files for a while, and a queue deletes at its head: so where the first ready and the first
    due event can be is remembered, and nothing below is looked at."""

    def __init__(self, store: ShardStore, topic: str) -> None:
        """`topic`: hub.queue, as it is called here."""
        self.store, self._topic = store, topic
        self._reached = store.offset(topic)
        self._highest: dict[str, int] = {}
        self._first_ready: dict[str, int] = {}
        self._first_due: dict[str, int] = {}

    # -- reading -------------------------------------------------------------------------------------------------------
    def rows(self, subscription: str, seqs: list[int]) -> list[Row | None]:
        head = subscription.encode() + _SEP
        values = self.store.multi_get("rows", [head + seq.to_bytes(8, "big") for seq in seqs])
        with self.store.decoding("rows"):
            return [None if value is None else _row(seq, value) for seq, value in zip(seqs, values, strict=True)]

    def ready(self, subscription: str, before_seq: int, limit: int, after_seq: int = -1) -> list[int]:
        """Seqs of events that stand ready, with after_seq < seq < before_seq, lowest first."""
        head, begin = subscription.encode() + _SEP, max(after_seq + 1, self._first_ready.get(subscription, 0))
        rows = self.store.scan("visible", head + _PLACE.pack(0, begin), head + _PLACE.pack(0, before_seq), limit)
        seqs = [int.from_bytes(key[-8:], "big") for key, _ in rows]
        if after_seq < 0:
            self._first_ready[subscription] = seqs[0] if seqs else max(begin, before_seq)
        return seqs

    def due(self, subscription: str, now_ms: int, limit: int) -> list[int]:
        """Seqs of events whose lock or delay is over and which do not stand with the ready ones yet, earliest first."""
        head, begin = subscription.encode() + _SEP, self._first_due.get(subscription, 1)
        rows = self.store.scan("visible", head + _PLACE.pack(begin, 0), head + _PLACE.pack(now_ms + 1, 0), limit)
        return [int.from_bytes(key[-8:], "big") for key, _ in rows]

    def next_due_ms(self, subscription: str) -> int | None:
        """When the next lock or delay is over."""
        head, begin = subscription.encode() + _SEP, self._first_due.get(subscription, 1)
        rows = self.store.scan("visible", head + _PLACE.pack(begin, 0), head + b"\xff" * 17, 1)
        first: int = _PLACE.unpack(rows[0][0][-16:])[0] if rows else _NEVER
        self._first_due[subscription] = first
        return first if rows else None

    def subscriptions(self) -> list[str]:
        """Every queue that was ever given an event here and was not dropped."""
        rows = self.store.scan("queues", b"\0", b"\xff", QUEUES_MAX)
        with self.store.decoding("queues"):
            return [key.decode() for key, value in rows if value]

    def highest(self, subscription: str) -> int:
        """The highest seq it was given; -1 for none."""
        known = self._highest.get(subscription)
        if known is None:
            stored = self.store.get("queues", subscription.encode())
            known = self._highest[subscription] = -1 if stored is None else int.from_bytes(stored, "big")
        return known

    @property
    def next_offset(self) -> int | None:
        """Where reading the log goes on; None when none of it was ever read."""
        return self._reached

    # -- writing -------------------------------------------------------------------------------------------------------
    def put(self, batch: Batch, subscription: str, before: Row | None, after: Row | None) -> None:
        """`after` in the place of `before`, None being none."""
        head = subscription.encode() + _SEP
        one = after or before
        if one is None:
            return
        if before is not None and (after is None or after.at_ms != before.at_ms):
            batch.delete("visible", head + _PLACE.pack(before.at_ms, before.seq))
        key = head + one.seq.to_bytes(8, "big")
        if after is None:
            batch.delete("rows", key)
            return
        if before is None or after.at_ms != before.at_ms:
            known, place = (self._first_due, after.at_ms) if after.at_ms else (self._first_ready, after.seq)
            if place < known.get(subscription, 0):
                known[subscription] = place
            batch.put("visible", head + _PLACE.pack(after.at_ms, after.seq), b"")
        batch.put("rows", key, _value(after))

    def enqueue(
        self, batch: Batch, subscription: str, events: Iterable[tuple[int, int]], *, series: str = ""
    ) -> list[int]:
        """Give events to a queue; the seqs it had not been given before. A seq at or below its highest changes nothing,
        so that a fact that is read again resurrects none; with a series, each counts once per series."""
        if series:
            return self._enqueue_again(batch, subscription, events, series)
        highest, new = self.highest(subscription), []
        for seq, received_at_ms in events:
            if seq > highest:
                self.put(batch, subscription, None, Row(seq, received_at_ms))
                new.append(seq)
                highest = seq
        if new:
            self._highest[subscription] = highest
            batch.put("queues", subscription.encode(), highest.to_bytes(8, "big"))
        return new

    def _enqueue_again(
        self, batch: Batch, subscription: str, events: Iterable[tuple[int, int]], series: str
    ) -> list[int]:
        listed, new = list(events), []
        for (seq, received_at_ms), before in zip(
            listed, self.rows(subscription, [seq for seq, _ in listed]), strict=True
        ):
            mark = b"%b%b%b%b" % (subscription.encode(), _SEP, seq.to_bytes(8, "big"), series.encode())
            if self.store.get("queues", mark) is None:
                batch.put("queues", mark, b"")
                if before is None:  # else it is there to be received as it is
                    self.put(batch, subscription, None, Row(seq, received_at_ms, series=series))
                    new.append(seq)
        if new and self.highest(subscription) < 0:
            batch.put("queues", subscription.encode(), (0).to_bytes(8, "big"))
        return new

    def drop(self, batch: Batch, subscription: str) -> None:
        """Forget a queue that was deleted."""
        name = subscription.encode()
        for family in ("rows", "visible", "queues"):
            batch.delete_range(family, name + _SEP, name + _AFTER_SEP)
        batch.delete("queues", name)
        for known in (self._highest, self._first_ready, self._first_due):
            known.pop(subscription, None)

    def reached(self, batch: Batch, next_offset: int) -> None:
        """The log below is in the rows. Never goes back: two who write to it may be acknowledged in either order."""
        self._reached = max(next_offset, self._reached or 0)
        batch.set_offset(self._topic, self._reached)

    def restart(self, batch: Batch) -> None:
        """The log was made anew."""
        self._reached = 0
        batch.set_offset(self._topic, 0)

    def apply(self, batch: Batch, said: Enqueued | Marked) -> None:
        """What a record of the log says. Write the batch before the next record of the same rows."""
        if isinstance(said, Enqueued):
            self.enqueue(batch, said.subscription, said.events, series=said.series)
            return
        seqs = [seq for seq, _ in said.marks]
        for (_, delivery), row in zip(said.marks, self.rows(said.subscription, seqs), strict=True):
            if row is not None and row.series == said.series:
                after = _applied(row, delivery, said)
                if after is not row:
                    self.put(batch, said.subscription, row, after)


def _applied(row: Row, delivery: int, said: Marked) -> Row | None:
    """The row after a record; the same one when it does not speak of it."""
    if said.action is Action.LOCKED:
        if delivery <= row.deliveries:
            return row
        until_ms = said.until_ms
        return row._replace(
            deliveries=delivery, locked=True, until_ms=until_ms, first_lock_ms=said.at_ms, at_ms=until_ms
        )
    if said.action is Action.BURIED:
        return None if delivery == row.deliveries else row
    if not row.locked or delivery != row.deliveries:
        return row
    if said.action is Action.ACKNOWLEDGED:
        return None
    return row._replace(locked=said.action is Action.RENEWED, until_ms=said.until_ms, at_ms=said.until_ms)


def _value(row: Row) -> bytes:
    _, received_at_ms, deliveries, locked, until_ms, first_lock_ms, at_ms, series = row
    return _ROW.pack(received_at_ms, deliveries, locked, until_ms, first_lock_ms, at_ms) + series.encode()


def _row(seq: int, value: bytes) -> Row:
    received_at_ms, deliveries, locked, until_ms, first_lock_ms, at_ms = _ROW.unpack_from(value)
    series = value[_ROW.size :].decode() if len(value) > _ROW.size else ""
    return Row(seq, received_at_ms, deliveries, bool(locked), until_ms, first_lock_ms, at_ms, series)
