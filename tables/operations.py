"""The global table of bulk operations. Small: what is over goes after some days, and few run at once."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from hub_app.domain.idempotency import Answer
from hub_app.domain.operation import Operation
from hub_app.wire import operations as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven


class OperationsTable(GlobalTable[wire.Stored]):
    """Operations by tenant and id."""

    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._tenants: dict[str, dict[str, wire.Stored]] = {}
        self._running: dict[tuple[str, str], Operation] = {}

    def get(self, tenant: str, id: str) -> Operation | None:
        row = self._tenants.get(tenant, {}).get(id)
        return row.row if row else None

    def of_tenant(self, tenant: str) -> list[Operation]:
        """Oldest first."""
        rows = [row.row for row in self._tenants.get(tenant, {}).values() if row.row]
        return sorted(rows, key=lambda row: (row.created_at_ms, row.id))

    def running(self) -> list[Operation]:
        """Everything that is not over, of all tenants."""
        return list(self._running.values())

    def forgettable(self, test: Callable[[Operation], bool], limit: int) -> list[Operation]:
        """At most `limit` of those that pass."""
        rows = (row.row for rows in self._tenants.values() for row in rows.values())
        return list(islice((row for row in rows if row is not None and test(row)), limit))

    def count(self, tenant: str) -> int:
        """Operations of the tenant that are not over."""
        return sum(owner == tenant for owner, _ in self._running)

    def answers(self, tenant: str, id: str) -> tuple[Answer, ...]:
        row = self._tenants.get(tenant, {}).get(id)
        return row.answers if row else ()

    def __len__(self) -> int:
        return sum(map(len, self._tenants.values()))

    # -- records -------------------------------------------------------------------------------------------------
    def _read(self, key: bytes, value: bytes | None, headers: HeadersGiven) -> wire.Stored | Unreadable | None:
        stored = wire.read(key, value, headers)
        return None if not isinstance(stored, Unreadable) and stored.row is None else stored

    def _put(self, key: bytes, row: wire.Stored) -> None:
        assert row.row is not None
        self._tenants.setdefault(row.tenant, {})[row.id] = row
        if row.row.over:
            self._running.pop((row.tenant, row.id), None)
        else:
            self._running[row.tenant, row.id] = row.row

    def _drop(self, key: bytes) -> None:
        tenant, _, id = key.decode(errors="replace").partition("\x1f")
        self._running.pop((tenant, id), None)
        rows = self._tenants.get(tenant)
        if rows is not None and rows.pop(id, None) is not None and not rows:
            del self._tenants[tenant]
