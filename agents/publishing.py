"""Events published over HTTP become facts: one request is one Kafka batch, written whole or not at all.

Any worker does it: nothing is looked up. What is sent again, because no answer came, is known by its identity in the
inbox, as any fact is."""

from __future__ import annotations

from collections.abc import Sequence

from agents.outputs import OutputRefused
from hub_app.domain.cloudevents import Accept
from hub_app.domain.errors import OutcomeUnknown
from hub_app.domain.ids import tenant_key
from hub_app.domain.limits import RECORD_BYTES_MAX
from hub_app.domain.publishing import Published, Unfit
from hub_app.kafka.producer import DeadlinePassed, HubProducer
from hub_app.ports import Clock
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names, partition_for
from hub_app.wire import facts as wire_facts
from hub_app.wire.record import record_bytes

WRITTEN_MS_MAX = 10_000


class Publisher:
    def __init__(self, *, producer: HubProducer, names: Names, shards: int, clock: Clock, metrics: Metrics) -> None:
        self._producer, self._names, self._shards, self._clock = producer, names, shards, clock
        self._published = metrics.facts.labels("accept", "published")

    async def publish(self, tenant: str, topic: str, events: Sequence[Published]) -> Unfit | None:
        """None once all of them are written; Unfit, and none is, when together they are larger than one batch. Raises
        OutcomeUnknown when Kafka does not answer in time."""
        key, now_ms, size = tenant_key(tenant), self._clock.now_ms(), 0
        partition, outbox = partition_for(key, self._shards), self._producer.whole_outbox()
        for event in events:
            accept = Accept(tenant, key, topic, event.headers)
            headers = wire_facts.write(accept, received_at_ms=now_ms, origin=None)
            size += record_bytes(key, event.value, headers)
            if size > RECORD_BYTES_MAX:
                return Unfit("the batch is too large with all its attributes", too_large=True)
            outbox.add(self._names.facts, partition, key, event.value, headers)
        try:
            flushed = await outbox.flush(WRITTEN_MS_MAX)
        except DeadlinePassed as error:
            raise OutcomeUnknown(str(error)) from error
        if flushed.refused:
            raise OutputRefused(flushed.refused[0].reason)
        self._published.inc(len(events))
        return None
