"""Ingest: producers' records become facts, or stand in quarantine with a reason (docs/wire.md, "Verdicts").

Stateless. Order of writes: outputs acknowledged, then the offset committed (`batch.done`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from agents.outputs import flush, quarantine
from hub_app.domain.cloudevents import Accept, Drop, judge
from hub_app.kafka.batch import Batch
from hub_app.kafka.producer import HubProducer, Outbox
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names, partition_for
from hub_app.wire import facts as wire_facts


class Ingest:
    def __init__(
        self,
        *,
        producer: HubProducer,
        names: Names,
        shards: int,
        clock: Clock,
        metrics: Metrics,
        default_tenant: str | None,
    ) -> None:
        self._producer, self._names, self._shards = producer, names, shards
        self._clock, self._default_tenant = clock, default_tenant
        self._facts, self._log = metrics.facts, Log("ingest")
        self._accepted = metrics.facts.labels("accept", "")

    async def handle(self, batches: Sequence[Batch]) -> None:
        """Judges every record, emits, and lets the offsets be committed. Raises only for infrastructure."""
        outbox = self._producer.outbox()
        received_at_ms = self._clock.now_ms()
        accepted = 0
        for record in chain.from_iterable(batch.records for batch in batches):
            verdict = judge(record.topic, record.headers, record.value, default_tenant=self._default_tenant)
            if isinstance(verdict, Accept):
                headers = wire_facts.write(
                    verdict, received_at_ms=received_at_ms, origin=(record.partition, record.offset)
                )
                partition = partition_for(verdict.key, self._shards)
                too_large = outbox.add(self._names.facts, partition, verdict.key, record.value or b"", headers)
                if too_large is None:
                    accepted += 1
                else:
                    self._quarantine(outbox, record, "headers_too_large", f"{too_large.size_bytes} bytes with headers")
            elif isinstance(verdict, Drop):
                self._facts.labels("drop", verdict.reason).inc()
            else:
                self._quarantine(outbox, record, verdict.reason, verdict.detail)
        await flush(outbox, omits=(self._names.quarantine,))
        self._accepted.inc(accepted)
        for batch in batches:
            batch.done()

    def _quarantine(self, outbox: Outbox, record: Any, reason: str, detail: str) -> None:
        self._facts.labels("quarantine", reason).inc()
        self._log.info(Event.QUARANTINED, reason=reason, detail=detail)
        quarantine(outbox, self._names.quarantine, self._shards, record, reason=reason, detail=detail)
