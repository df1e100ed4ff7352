"""The first of the settler's writes: what carries a job on, to its next tier, hub.retry.parked or hub.dlq."""

from __future__ import annotations

from collections.abc import Sequence

from agents.outcomes import Settled, answered
from agents.outputs import flush_what_fits
from hub_app.domain.backoff import Curve
from hub_app.domain.delivery import Dead, Job, Moved, Parked, Retry, moved, parked, retried
from hub_app.domain.ids import destination_key, tenant_key
from hub_app.kafka.producer import HubProducer, Outbox
from hub_app.ports import Clock
from hub_app.topics import Names, partition_for
from hub_app.wire import dead_letters as wire_dead
from hub_app.wire import jobs as wire_jobs


class Carrier:
    def __init__(self, producer: HubProducer, names: Names, shards: int, clock: Clock, curve: Curve) -> None:
        self._producer, self._names, self._count, self._clock, self._curve = producer, names, shards, clock, curve

    async def write(self, ended: Sequence[Settled]) -> set[bytes]:
        """Every record is acknowledged but those that are too large for their topic: the ids of their jobs. Raises what
        Kafka answers, OutputRefused among it."""
        outbox, now_ms = self._producer.outbox(), self._clock.now_ms()
        for settled in ended:
            job, step = settled.row.job, settled.step
            if isinstance(step, Retry):
                topic = self._names.retry(self._curve.tiers[step.tier])
                self._add_job(outbox, topic, retried(job, step), settled)
            elif isinstance(step, Moved):
                self._add_job(outbox, self._names.parked, moved(job, step), settled)
            elif isinstance(step, Parked):
                self._add_job(outbox, self._names.parked, parked(job), settled)
            elif isinstance(step, Dead):
                status, error = answered(settled.attempted)
                made = wire_dead.write(
                    job, settled.headers, settled.body, reason=step.reason, at_ms=now_ms, status=status, error=error
                )
                partition = partition_for(tenant_key(job.tenant), self._count)
                outbox.add(self._names.dlq, partition, made.key, made.value, made.headers)
        _, refused = await flush_what_fits(outbox, omits=(self._names.dlq,))
        jobs = [wire_jobs.read(one.headers) for one in refused]
        return {job.delivery_id for job in jobs if isinstance(job, Job)}

    def _add_job(self, outbox: Outbox, topic: str, job: Job, settled: Settled) -> None:
        key = destination_key(job.tenant, job.destination)
        outbox.add(topic, partition_for(key, self._count), key, settled.body, wire_jobs.write(job, settled.headers))
