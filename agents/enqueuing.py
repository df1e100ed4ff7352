"""What the match step gives to queues: records of hub.queue among its outputs, rows when those are acknowledged."""

from __future__ import annotations

from hub_app.domain.fact import Fact
from hub_app.domain.subscription import Subscription
from hub_app.kafka.producer import Outbox
from hub_app.wire import queue as wire
from tables.batch import Batch as Rows
from tables.queues import QueueTable

LINE_BYTES = 48
"""What one event of one queue weighs among the outputs."""


class Given:
    """Events for the queues of one shard, of one batch of facts."""

    __slots__ = ("_all", "_fresh", "_tenants")

    def __init__(self) -> None:
        self._all: dict[str, list[tuple[int, int]]] = {}
        self._fresh: dict[str, list[tuple[int, int]]] = {}
        self._tenants: dict[str, str] = {}

    def add(self, subscription: Subscription, fact: Fact) -> None:
        """Facts come in the order of their seq."""
        id = subscription.id
        self._tenants[id] = subscription.tenant
        self._fresh.setdefault(id, []).append((fact.seq, fact.received_at_ms))

    def emit(self, outbox: Outbox, topic: str, partition: int, at_ms: int) -> None:
        """The records of what came since the last time."""
        for id, events in self._fresh.items():
            for made in wire.write_enqueued(self._tenants[id], id, events, at_ms=at_ms):
                outbox.add(topic, partition, made.key, made.value, made.headers)
            self._all.setdefault(id, []).extend(events)
        self._fresh = {}

    def remember(self, table: QueueTable, rows: Rows) -> list[tuple[str, str]]:
        """Rows of all that was emitted; (tenant, subscription) of the queues that have new ones."""
        return [(self._tenants[id], id) for id, events in self._all.items() if table.enqueue(rows, id, events)]
