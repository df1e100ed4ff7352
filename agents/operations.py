"""Bulk operations, in bounded steps, by the worker that owns the shard (docs/delivery.md, "Replay and redrive").

Order of writes of a step: the deliveries it makes are acknowledged, then the operation's record says how far it is. A
crash between the two does the step again, with the same delivery ids: their series is the operation's id.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from agents.outputs import flush
from agents.registrations import OperationStore
from hub_app.domain.delivery import Job
from hub_app.domain.errors import Fenced, HubError
from hub_app.domain.event_types import patterns_for
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id, destination_key, tenant_key
from hub_app.domain.limits import MIB
from hub_app.domain.matching import mismatch
from hub_app.domain.operation import Operation, OperationKind, OperationState, advanced, ended, forgettable
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.topics import Names, partition_for
from hub_app.wire import jobs as wire_jobs
from tables.operations import OperationsTable
from tables.subscriptions import SubscriptionsTable

STEP_EVENTS_MAX: Final = 200
STEP_BYTES_MAX: Final = 4 * MIB
IDLE_S: Final = 1.0
FORGOTTEN_PER_STEP_MAX: Final = 20

Step = Callable[[Operation, int, Any], Awaitable[Operation]]
"""(operation, its shard's number, the shard's tables) -> the operation after one step."""


GiveAgain = Callable[[int, Subscription, Sequence[int], str], Awaitable[Any]]
"""(shard, a queue's subscription, seqs, series): `agents.queue_access.Queues.give_again`."""


class Here(Protocol):
    """What this worker serves: `agents.owners.InboxOwners`."""

    def is_here(self, shard: int) -> bool: ...
    def inbox(self, shard: int) -> Any: ...


class Operations:
    def __init__(
        self,
        *,
        outbox: Callable[[], Any],
        names: Names,
        shards: int,
        here: Here,
        table: OperationsTable,
        store: OperationStore,
        subscriptions: SubscriptionsTable,
        clock: Clock,
        give_again: GiveAgain,
    ) -> None:
        """`outbox()` makes an empty one (`HubProducer.outbox`)."""
        self._outbox, self._names, self._count, self._here = outbox, names, shards, here
        self._table, self._store, self._subscriptions, self._clock = table, store, subscriptions, clock
        self._give_again = give_again
        self._log, self._wanted = Log("operations"), asyncio.Event()
        self.steps: dict[OperationKind, Step] = {OperationKind.REPLAY: self._replay}

    def wake(self) -> None:
        """There is a new one."""
        self._wanted.set()

    async def step(self) -> None:
        """One step of everything that runs here; waits a little when that is nothing. Raises what Kafka answered, after
        the others had their turn."""
        self._wanted.clear()
        moved, trouble = False, None
        for operation in self._table.running():
            try:
                moved = await self.advance(operation) or moved
            except Fenced:
                continue  # its next owner goes on
            except HubError as error:
                self._log.warning(Event.OPERATION_FAILED, operation=operation.id, error=error)
                trouble = error
        if trouble is not None:
            raise trouble
        if not moved:
            await self._forget()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(IDLE_S):
                    await self._wanted.wait()

    async def advance(self, operation: Operation) -> bool:
        """One step of one operation; False when its shard is not here."""
        shard = partition_for(tenant_key(operation.tenant), self._count)
        inbox = self._here.inbox(shard) if self._here.is_here(shard) else None
        if inbox is None:
            return False
        after = await self.steps[operation.kind](operation, shard, inbox)
        # STALE: somebody cancelled it meanwhile. What the step made stands, and nothing more is made.
        await self._store.replace(operation, after)
        if after.over:
            self._log.info(Event.OPERATION_OVER, operation=after.id, state=after.state, made=after.made)
        return True

    async def _replay(self, operation: Operation, shard: int, inbox: Any) -> Operation:
        subscription = self._subscriptions.get(operation.tenant, operation.subscription)
        if subscription is None:
            return ended(
                operation, OperationState.FAILED, now_ms=self._clock.now_ms(), detail="the subscription was deleted"
            )
        page = inbox.events_after(
            operation.tenant,
            operation.cursor,
            limit=STEP_EVENTS_MAX,
            bytes_max=STEP_BYTES_MAX,
            until=operation.span.to_seq,
            wants=wanted_by(subscription),
        )
        covered = [fact for fact in page.facts if operation.span.covers(fact.seq, fact.received_at_ms)]
        matched = [fact for fact in covered if mismatch(subscription, fact) is None]
        if not operation.dry_run and matched:
            await self._deliver(operation, subscription, matched, shard)
        return advanced(
            operation,
            cursor=page.next_seq,
            looked_at=len(covered),
            made=len(matched),
            done=not page.more,
            now_ms=self._clock.now_ms(),
        )

    async def _deliver(self, operation: Operation, subscription: Subscription, facts: list[Fact], shard: int) -> None:
        if isinstance(subscription.sink, QueueSink):
            await self._give_again(shard, subscription, [fact.seq for fact in facts], operation.id)
            return
        outbox, now_ms = self._outbox(), self._clock.now_ms()
        offset = self._subscriptions.offset(shard)
        for fact in facts:
            job = again(subscription, fact.seq, fact.topic, series=operation.id, now_ms=now_ms, offset=offset)
            put_job(outbox, self._names, self._count, job, fact.headers, fact.value)
        await flush(outbox)

    async def _forget(self) -> None:
        """What has long been over goes."""
        now_ms = self._clock.now_ms()
        for operation in self._table.forgettable(lambda one: forgettable(one, now_ms), FORGOTTEN_PER_STEP_MAX):
            if self._here.is_here(partition_for(tenant_key(operation.tenant), self._count)):
                with contextlib.suppress(Fenced):
                    await self._store.delete(operation.tenant, operation.id, before=operation)


def wanted_by(subscription: Subscription) -> Callable[[str, str], bool]:
    """(event type, source) -> whether it may receive such a fact: what can be said without the payload."""
    patterns, origins = frozenset(subscription.event_types), frozenset(subscription.origin)

    def wants(event_type: str, source: str) -> bool:
        return (not origins or source in origins) and not patterns.isdisjoint(patterns_for(event_type))

    return wants


def again(subscription: Subscription, seq: int, topic: str, *, series: str, now_ms: int, offset: int) -> Job:
    """A new delivery of an event that was there before: its own series, its age counted from now."""
    return Job(
        delivery_id(subscription.tenant, seq, subscription.id, series),
        1,
        0,
        subscription.tenant,
        subscription.destination,
        subscription.id,
        series,
        seq,
        topic,
        now_ms,
        0,
        offset,
        0,
    )


def put_job(
    outbox: Any, names: Names, shards: int, job: Job, headers: tuple[tuple[str, bytes], ...], value: bytes
) -> None:
    """Adds the delivery's record."""
    key = destination_key(job.tenant, job.destination)
    outbox.add(names.deliveries, partition_for(key, shards), key, value, wire_jobs.write(job, headers))
