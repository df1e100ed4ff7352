"""The global table of subscriptions, by tenant, with a compiled index per tenant for matching."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from hub_app.domain.idempotency import Answer
from hub_app.domain.matching import Index
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.wire import subscriptions as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven

GONE_MAX = 10_000
"""Deleted subscriptions whose answers are still remembered; the oldest goes first."""


class Held(NamedTuple):
    subscription: Subscription
    answers: tuple[Answer, ...]


class SubscriptionsTable(GlobalTable[wire.Stored]):
    """All subscriptions of all tenants. Returned values are immutable and may be kept."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self.watchers: tuple[Callable[[Subscription | None, Subscription | None], None], ...] = ()
        """Called with what a subscription was and what it is, once the table has taken the change in; None where there
        was, or is, none. Must not raise, nor wait."""
        self._tenants: dict[str, dict[str, Held]] = {}
        self._gone: dict[tuple[str, str], tuple[Answer, ...]] = {}
        self._indexes: dict[str, Index] = {}
        self._queues: dict[str, dict[tuple[str, str], Subscription]] = {}
        self._count = 0

    def get(self, tenant: str, id: str) -> Subscription | None:
        held = self._tenants.get(tenant, {}).get(id)
        return held.subscription if held else None

    def of_tenant(self, tenant: str) -> list[Subscription]:
        """Oldest first."""
        rows = [held.subscription for held in self._tenants.get(tenant, {}).values()]
        return sorted(rows, key=lambda row: (row.created_at_ms, row.id))

    def tenants(self) -> list[str]:
        return sorted(self._tenants)

    def __len__(self) -> int:
        return self._count

    def count(self, tenant: str) -> int:
        return len(self._tenants.get(tenant, ()))

    def matcher(self, tenant: str) -> Index:
        """The tenant's subscriptions as they stand, compiled; made anew only after one of them changed. Tenants without
        subscriptions share nothing and keep nothing."""
        index = self._indexes.get(tenant)
        if index is None:
            index = Index(tenant, self.of_tenant(tenant))
            if tenant in self._tenants:
                self._indexes[tenant] = index
        return index

    def queues(self, tenant: str) -> Mapping[tuple[str, str], Subscription]:
        """The tenant's queues by (topic, name); as `matcher`, made anew after a change."""
        queues = self._queues.get(tenant)
        if queues is None:
            rows = self.of_tenant(tenant)
            queues = {(row.sink.topic, row.sink.name): row for row in rows if isinstance(row.sink, QueueSink)}
            if tenant in self._tenants:
                self._queues[tenant] = queues
        return queues

    def answers(self, tenant: str, id: str) -> tuple[Answer, ...]:
        """Answers remembered with the subscription, also for a while after it was deleted."""
        held = self._tenants.get(tenant, {}).get(id)
        return held.answers if held else self._gone.get((tenant, id), ())

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
            self._gone[row.tenant, row.id] = row.answers
            while len(self._gone) > GONE_MAX:
                del self._gone[next(iter(self._gone))]
            return
        self._gone.pop((row.tenant, row.id), None)
        rows = self._tenants.setdefault(row.tenant, {})
        before = rows.get(row.id)
        self._count += before is None
        rows[row.id] = Held(row.row, row.answers)
        self._changed(row.tenant)
        self._tell(before, row.row)

    def _drop(self, key: bytes) -> None:
        tenant, _, id = key.decode(errors="replace").partition("\x1f")
        self._gone.pop((tenant, id), None)
        rows = self._tenants.get(tenant)
        before = rows.pop(id, None) if rows is not None else None
        if before is not None:
            self._count -= 1
            self._changed(tenant)
            if not rows:
                del self._tenants[tenant]
            self._tell(before, None)

    def _changed(self, tenant: str) -> None:
        self._indexes.pop(tenant, None)
        self._queues.pop(tenant, None)

    def _tell(self, before: Held | None, now: Subscription | None) -> None:
        for watcher in self.watchers:
            watcher(before.subscription if before else None, now)
