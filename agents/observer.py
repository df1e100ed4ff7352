"""Producers' dead letters are observed, and never become a delivery: one short record each in hub.observations.

Order of writes: outputs acknowledged, then the offset committed. A repeat makes the same id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from agents.outputs import flush
from hub_app.domain.cloudevents import Accept
from hub_app.kafka.batch import Batch
from hub_app.ports import Clock
from hub_app.topics import Names, partition_for
from hub_app.wire import facts, observations


class Observer:
    """A group of its own, so that ingest neither waits for it nor fails with it."""

    def __init__(self, *, outbox: Callable[[], Any], names: Names, shards: int) -> None:
        self._outbox, self._names, self._count = outbox, names, shards

    async def handle(self, batches: Sequence[Batch]) -> None:
        """Raises only for infrastructure."""
        outbox = self._outbox()
        for batch in batches:
            for record in batch.records:
                made = observations.write(
                    record.topic, record.partition, record.offset, record.timestamp, record.headers, record.value
                )
                assert made.key is not None
                partition = partition_for(made.key, self._count)
                outbox.add(self._names.observations, partition, made.key, made.value, made.headers)
        await flush(outbox)
        for batch in batches:
            batch.done()


async def readmit(
    outbox: Callable[[], Any],
    names: Names,
    shards: int,
    clock: Clock,
    accept: Accept,
    value: bytes,
    origin: tuple[int, int],
) -> None:
    """A quarantined record that was repaired becomes a fact, with the origin it came with; acknowledged on return."""
    out = outbox()
    headers = facts.write(accept, received_at_ms=clock.now_ms(), origin=origin)
    out.add(names.facts, partition_for(accept.key, shards), accept.key, value, headers)
    await flush(out)
