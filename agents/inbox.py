"""Inbox and match: a fact is admitted once, gets its seq, and becomes one delivery per subscription that wants it.

Order of writes (docs/protocol.md, "Inbox shard"): `flush` (deliveries and quarantine acknowledged), `_remember` (rows
and consumed offset in one batch), then `batch.done` (offset committed). A crash between two of them repeats work with
the same ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from agents.enqueuing import LINE_BYTES, Given
from agents.outputs import OutputRefused, flush, quarantine
from agents.queues import QueueShard
from hub_app.domain.admission import Admission, Known, admit, digest
from hub_app.domain.delivery import Job
from hub_app.domain.errors import Fenced, StoreFailed
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id, destination_key, seq_of
from hub_app.domain.limits import MIB, MINUTE_MS
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.kafka.batch import Batch
from hub_app.kafka.producer import HubProducer, Outbox
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names, partition_for
from hub_app.wire import facts as wire_facts
from hub_app.wire import jobs as wire_jobs
from tables.inbox import Admitted, InboxTable, id_key
from tables.subscriptions import SubscriptionsTable

LEASE_LOOK_S = 0.05
EXPIRE_ROWS = 2_000
EXPIRE_EVERY_MS = MINUTE_MS  # of broker time
OUTPUT_BYTES_MAX = 8 * MIB
"""One fact may match a thousand subscriptions: outputs are flushed whenever they weigh this much."""
_FEW = 8  # deliveries of one fact whose headers need not be weighed
_HEADERS_BYTES = 1_024  # what they weigh then


class Outputs:
    """What one step has to write, over all its batches."""

    __slots__ = ("_batches", "_lease", "_quarantine", "outbox", "weight")

    def __init__(
        self, outbox: Outbox, batches: Sequence[Batch], lease: Callable[[], bool], quarantine_topic: str
    ) -> None:
        self.outbox, self.weight, self._quarantine = outbox, 0, quarantine_topic
        self._batches, self._lease = batches, lease

    async def flush(self) -> None:
        """Every output so far is acknowledged, or this raises. Nothing that was read before the lease ran out is
        written after it: by then the shard may have another owner, which matches by a newer table of subscriptions,
        and an event that goes into a queue out of its order hides those before it (docs/protocol.md, "Inbox shard").
        It waits while it is not known whose the shard is; then what was read is read again."""
        if not self._lease():
            await self._lapsed()
        self.weight = 0
        await flush(self.outbox, omits=(self._quarantine,))

    async def _lapsed(self) -> NoReturn:
        while True:
            if self._lease() or not any(batch.live for batch in self._batches):
                raise Fenced("the lease had run out before this was written")
            await asyncio.sleep(LEASE_LOOK_S)


class InboxShard:
    """One inbox shard in the hands of its owner. `emit_from`: below it the group committed; state is rebuilt without
    emitting anything again. `next_offset`: how far its facts have been read. `queues` is set before the first batch."""

    queues: QueueShard

    def __init__(self, number: int, table: InboxTable, *, epoch: int, emit_from: int, next_offset: int) -> None:
        self.number, self.table, self.epoch, self.emit_from = number, table, epoch, emit_from
        self.next_offset, self.expire_at_ms = next_offset, 0
        self.failed = False  # its table refused: it is to be opened again

    def position(self) -> int:
        """Facts below this seq are in the table, as far as they were admitted and are kept."""
        return seq_of(self.epoch, self.next_offset)


class Inbox:
    def __init__(
        self,
        *,
        producer: HubProducer,
        names: Names,
        shards: int,
        subscriptions: SubscriptionsTable,
        metrics: Metrics,
        dedup_window_ms: int,
        events_retention_ms: int,
        lease: Callable[[], bool],
        arrived: Callable[[int, set[str]], None],
    ) -> None:
        """`lease()`: may this worker act as owner now. `arrived(shard, tenants)`: new facts can be pulled."""
        self._producer, self._names, self._count = producer, names, shards
        self._subscriptions, self._metrics, self._log = subscriptions, metrics, Log("inbox")
        self._window_ms, self._retention_ms, self._arrived = dedup_window_ms, events_retention_ms, arrived
        self._lease = lease
        self.shards: dict[int, InboxShard] = {}
        self._admitted, self._duplicates = metrics.admitted.only(), metrics.duplicates.only()
        self._matched = metrics.matched.only()

    async def handle(self, batches: Sequence[Batch], fail: Callable[[Batch, StoreFailed], None]) -> None:
        """One step for batches of different shards. A shard whose table refuses fails alone; raises only for Kafka.
        What was not remembered comes again, with the same ids."""
        outputs = Outputs(self._producer.outbox(), batches, self._lease, self._names.quarantine)
        judged = []
        for batch in batches:
            if not batch.live:
                continue  # its shard left while the others were judged
            shard = self.shards[batch.shard]
            try:
                judged.append((shard, batch, *await self._judge(shard, batch, outputs)))
            except StoreFailed as error:
                fail(batch, error)
        await outputs.flush()  # _emit
        for shard, batch, admitted, tenants, given in judged:
            if not batch.live:
                continue  # its table is closed; the next owner emits the same again and remembers it
            try:
                self._remember(shard, batch, admitted, given)
            except StoreFailed as error:
                fail(batch, error)
                continue
            batch.done()
            if tenants:
                self._arrived(shard.number, tenants)

    async def _judge(self, shard: InboxShard, batch: Batch, outputs: Outputs) -> tuple[list[Admitted], set[str], Given]:
        """Decides every record and emits what is to be emitted; the admitted facts are still to be written."""
        outbox = outputs.outbox
        facts: list[tuple[Any, Fact, bytes]] = []
        for record in batch.records:
            fact = wire_facts.read(record.headers, record.value, epoch=shard.epoch, offset=record.offset)
            if isinstance(fact, Fact):
                facts.append((record, fact, id_key(fact)))
            elif record.offset >= shard.emit_from:
                quarantine(outbox, self._names.quarantine, self._count, record, reason="unreadable", detail=fact.reason)
        admitted: list[Admitted] = []
        tenants: set[str] = set()
        here: dict[bytes, Known] = {}
        given = Given()
        counted = 0
        known = shard.table.look_up([key for _, _, key in facts])
        for (record, fact, key), stored in zip(facts, known, strict=True):
            mark = digest(fact.type, fact.value)
            decision = admit(
                here.get(key) or stored, seq=fact.seq, digest=mark, at_ms=record.timestamp, window_ms=self._window_ms
            )
            emits = record.offset >= shard.emit_from
            if decision is Admission.FIRST:
                here[key] = Known(fact.seq, mark, record.timestamp)
                admitted.append(Admitted(key, fact, mark, record.timestamp))
                tenants.add(fact.tenant)
                counted += emits  # below, state is rebuilt: these were counted by whoever committed them
            if decision is Admission.FIRST or decision is Admission.REREAD:
                if emits and (matched := self._subscriptions.matcher(fact.tenant).match(fact)):
                    await self._emit(shard, fact, matched, outputs, given, record.timestamp)
            elif emits and decision is Admission.COLLISION:
                self._metrics.collisions.only().inc()
                self._log.warning(Event.COLLISION, seq=fact.seq)
                quarantine(
                    outbox, self._names.quarantine, self._count, record, reason="id_collision", detail=f"seq {fact.seq}"
                )
            elif emits:
                self._duplicates.inc()
        self._admitted.inc(counted)
        if batch.records:
            given.emit(outbox, self._names.queue, shard.number, batch.records[-1].timestamp)
        return admitted, tenants, given

    async def _emit(
        self,
        shard: InboxShard,
        fact: Fact,
        matched: Sequence[Subscription],
        outputs: Outputs,
        given: Given,
        at_ms: int,
    ) -> None:
        """One delivery per subscription that receives the fact, or a place in its queue."""
        shared, offset = wire_jobs.shared(fact), self._subscriptions.offset(shard.number)
        headers_bytes = _HEADERS_BYTES if len(matched) <= _FEW else sum([len(data) for _, data in shared])
        size, outbox = len(fact.value) + headers_bytes, outputs.outbox
        for subscription in matched:
            if outputs.weight > OUTPUT_BYTES_MAX:
                given.emit(outbox, self._names.queue, shard.number, at_ms)
                await outputs.flush()
            if type(subscription.sink) is QueueSink:
                given.add(subscription, fact)
                outputs.weight += LINE_BYTES
                continue
            outputs.weight += size
            job = Job(
                delivery_id(fact.tenant, fact.seq, subscription.id),
                1,
                0,
                fact.tenant,
                subscription.destination,
                subscription.id,
                "",
                fact.seq,
                fact.topic,
                fact.received_at_ms,
                0,
                offset,
                0,
            )
            key = destination_key(fact.tenant, subscription.destination)
            partition = partition_for(key, self._count)
            too_large = outbox.add(
                self._names.deliveries, partition, key, fact.value, wire_jobs.write_shared(job, shared)
            )
            if too_large is not None:
                raise OutputRefused(f"delivery of seq {fact.seq}: {too_large.size_bytes} bytes")
        self._matched.inc(len(matched))

    def _remember(self, shard: InboxShard, batch: Batch, admitted: list[Admitted], given: Given) -> None:
        rows = shard.table.store.batch()
        shard.table.admit(rows, admitted)
        enqueued = given.remember(shard.queues.table, rows)
        rows.set_offset(self._names.facts, batch.next_offset)
        now_ms = batch.records[-1].timestamp if batch.records else 0
        if now_ms >= shard.expire_at_ms:
            gone = shard.table.expire(rows, now_ms - self._retention_ms, EXPIRE_ROWS)
            shard.expire_at_ms = now_ms + (EXPIRE_EVERY_MS if gone < EXPIRE_ROWS else 0)
        shard.table.store.write(rows)
        catching_up, shard.next_offset = shard.next_offset < shard.emit_from, batch.next_offset
        for tenant, subscription in enqueued:
            shard.queues.enqueued(tenant, subscription)
        if catching_up:
            shard.queues.advanced()
