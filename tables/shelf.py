"""The shelf of a dispatch shard: jobs of subscriptions that receive nothing now, by subscription.

A job on the shelf stays in the job table with a due time far away, so it costs nothing; here stands when it would have
been due, so that all of a subscription's jobs are found, and put back into the order, as soon as it receives again.

    shelf  subscription U+001F delivery_id  ->  due time, due time that the row says meanwhile

A row here whose job is gone, or due at another time, says nothing any more.
"""

from __future__ import annotations

from typing import NamedTuple

from tables.memory import Family
from tables.shard import Batch, ShardStore

SHELF = Family("shelf", buffer_bytes=1 << 20)
_SEP, _ID_BYTES = b"\x1f", 16


class Shelved(NamedTuple):
    """A job on the shelf: when it would be due, and the far time its row says instead."""

    delivery_id: bytes
    due_ms: int
    until_ms: int


class Shelf:
    def __init__(self, store: ShardStore) -> None:
        self._store = store

    def put(self, batch: Batch, subscription: str, shelved: Shelved) -> None:
        value = shelved.due_ms.to_bytes(8, "big") + shelved.until_ms.to_bytes(8, "big")
        batch.put("shelf", _key(subscription, shelved.delivery_id), value)

    def take(self, batch: Batch, subscription: str, delivery_id: bytes) -> None:
        batch.delete("shelf", _key(subscription, delivery_id))

    def of(self, subscription: str, limit: int) -> list[Shelved]:
        """Some of what a subscription has here."""
        start = _key(subscription, b"")
        return [
            Shelved(key[-_ID_BYTES:], int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big"))
            for key, value in self._store.scan("shelf", start, start + b"\xff" * (_ID_BYTES + 1), limit)
        ]

    def subscriptions(self) -> list[str]:
        """Who has anything here."""
        found: list[str] = []
        after = b""
        while rows := self._store.scan("shelf", after, b"\xff" * 128, 1):
            subscription = rows[0][0][: -_ID_BYTES - 1]
            with self._store.decoding("shelf"):
                found.append(subscription.decode())
            after = subscription + b"\x20"  # behind every key of this one
        return found


def _key(subscription: str, delivery_id: bytes) -> bytes:
    return subscription.encode() + _SEP + delivery_id
