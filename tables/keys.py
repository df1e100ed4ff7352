"""The global table of API keys."""

from __future__ import annotations

from hub_app.domain.apikey import ApiKey
from hub_app.domain.idempotency import Answer
from hub_app.wire import keyed
from hub_app.wire import keys as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven

GONE_MAX = 10_000
"""Deleted keys whose answers are still remembered; the oldest goes first."""


class KeysTable(GlobalTable[wire.Stored]):
    """Keys by id. A key whose newest record cannot be read opens nothing (it may have been revoked there), and is
    `undecided`: the answer is then 503, never 401."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._rows: dict[bytes, wire.Stored] = {}
        self._by_id: dict[str, bytes] = {}
        self._gone: dict[bytes, tuple[Answer, ...]] = {}

    def get(self, key_id: str) -> ApiKey | None:
        """A key that is there and not revoked."""
        row = self._rows.get(self._by_id.get(key_id, b""))
        key = row.row if row else None
        return key if key is not None and key.revoked_at_ms is None else None

    def row(self, tenant: str, id: str) -> ApiKey | None:
        """The tenant's key, revoked or not."""
        row = self._rows.get(keyed.join(tenant, id))
        return row.row if row else None

    def undecided(self, key_id: str) -> bool:
        """Whether the newest record of this key cannot be read."""
        return any(key.rpartition(b"\x1f")[2] == key_id.encode() for key in self._unreadable)

    def of_tenant(self, tenant: str) -> list[ApiKey]:
        """Keys that are not revoked, oldest first."""
        rows = [row.row for row in self._rows.values() if row.tenant == tenant and row.row]
        return sorted((k for k in rows if k.revoked_at_ms is None), key=lambda key: (key.created_at_ms, key.id))

    def count(self, tenant: str) -> int:
        """Keys of the tenant, revoked ones too."""
        return sum(row.tenant == tenant for row in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)

    def answers(self, tenant: str, id: str) -> tuple[Answer, ...]:
        """Answers remembered with the key, also for a while after it was deleted."""
        place = keyed.join(tenant, id)
        row = self._rows.get(place)
        return row.answers if row else self._gone.get(place, ())

    # -- records -------------------------------------------------------------------------------------------------
    def _read(self, key: bytes, value: bytes | None, headers: HeadersGiven) -> wire.Stored | Unreadable | None:
        stored = wire.read(key, value, headers)
        # A deletion with answers is a row of a kind: it must be kept in sight of those who repeat their request.
        if isinstance(stored, Unreadable) or stored.row is not None or stored.answers:
            return stored
        return None

    def _put(self, key: bytes, row: wire.Stored) -> None:
        if row.row is None:
            self._drop(key)
            self._gone[key] = row.answers
            while len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]
            return
        self._gone.pop(key, None)
        self._rows[key] = row
        self._by_id[row.id] = key

    def _drop(self, key: bytes) -> None:
        self._gone.pop(key, None)
        row = self._rows.pop(key, None)
        if row is not None and self._by_id.get(row.id) == key:
            del self._by_id[row.id]

    def _lost(self, key: bytes) -> None:
        self._drop(key)
