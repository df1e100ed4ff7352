"""The hub's own dead letters: taken into the tenant's inbox shard, sent once more, or discarded.

Order of writes of a redrive: the new delivery is acknowledged (or the event stands in its queue once more, by log and
row), then the mark in hub.dlq, then the row. A crash between two of them leaves the letter dead: it is redriven again,
under the same operation with the same delivery id.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from agents.operations import GiveAgain, again, put_job
from agents.outputs import flush
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id, tenant_key
from hub_app.domain.limits import MIB
from hub_app.domain.operation import Operation, advanced
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.topics import Names, partition_for
from hub_app.wire import dead_letters as wire
from tables.dead_letters import DEAD, Body, DeadLettersTable, Letter
from tables.subscriptions import SubscriptionsTable

STEP_LETTERS_MAX: Final = 100
STEP_BYTES_MAX: Final = 4 * MIB
EXPIRED_PER_BATCH_MAX: Final = 500


class Redriven(NamedTuple):
    """The new delivery."""

    delivery_id: bytes
    series: str


class NoEvent(NamedTuple):
    """The payload was left out when it died, and the event is no longer kept."""


class DeadLetters:
    """`inbox(shard)`: the shard's tables when it is here (`tables.inbox.InboxTable`: its store, its facts)."""

    def __init__(
        self,
        *,
        outbox: Callable[[], Any],
        names: Names,
        shards: int,
        inbox: Callable[[int], Any],
        subscriptions: SubscriptionsTable,
        clock: Clock,
        retention_ms: int,
        give_again: GiveAgain,
        failed: Callable[[int, StoreFailed], None] = lambda shard, error: None,
    ) -> None:
        self._outbox, self._names, self._count, self._inbox = outbox, names, shards, inbox
        self._subscriptions, self._clock, self._retention_ms = subscriptions, clock, retention_ms
        self._give_again = give_again
        self._failed, self._log = failed, Log("dead_letters")

    def table(self, shard: int) -> DeadLettersTable | None:
        """None when the shard is not here."""
        inbox = self._inbox(shard)
        return None if inbox is None else DeadLettersTable(inbox.store, self._names.dlq)

    # -- what the log says -------------------------------------------------------------------------------------------
    def places(self, shards: Sequence[int]) -> Mapping[tuple[str, int], int]:
        """The next offset of every shard that is here; for `hub_app.kafka.follower.Follower`."""
        found: dict[tuple[str, int], int] = {}
        for shard in shards:
            table = self.table(shard)
            if table is not None:
                found[self._names.dlq, shard] = table.position() or 0
        return found

    def take_in(self, shard: int, records: Sequence[Any], next_offset: int) -> None:
        """Rows and the place in the log, in one batch. Unreadable ones are logged and left out."""
        table = self.table(shard)
        if table is None:
            return
        batch, seen = table.store.batch(), set[tuple[str, bytes]]()
        try:
            for record in records:
                read = wire.read_mark(record.headers) or wire.read(record.headers, record.value)
                if isinstance(read, wire.DeadLetter):
                    table.put(batch, record.offset, read, seen)
                elif isinstance(read, wire.Mark):
                    if seen:  # it may be of one that stands in this very batch
                        table.store.write(batch)
                        batch, seen = table.store.batch(), set()
                    table.mark(batch, read)
                else:
                    self._log.error(Event.UNREADABLE, topic=self._names.dlq, offset=record.offset, detail=read.reason)
            batch.set_offset(self._names.dlq, next_offset)
            table.store.write(batch)
        except StoreFailed as error:
            self._failed(shard, error)

    def expire(self, shard: int) -> None:
        """What is older than the retention goes, a bounded number at a time."""
        table = self.table(shard)
        if table is None:
            return
        batch = table.store.batch()
        try:
            if table.expire(batch, self._clock.now_ms() - self._retention_ms, EXPIRED_PER_BATCH_MAX):
                table.store.write(batch)
        except StoreFailed as error:
            self._failed(shard, error)

    def begin_again(self, shard: int) -> None:
        """The log was made anew."""
        table = self.table(shard)
        if table is not None:
            table.begin_again()

    # -- what people do ----------------------------------------------------------------------------------------------
    async def redrive(
        self, shard: int, subscription: Subscription, letter: Letter, *, series: str
    ) -> Redriven | NoEvent | None:
        """One, now. None when the shard is not here."""
        table, inbox = self.table(shard), self._inbox(shard)
        if table is None:
            return None
        body = _to_send(inbox, table, subscription, letter)
        if body is None:
            return NoEvent()
        [made] = await self._send_again(shard, series, [(subscription, letter, body)])
        return made

    async def discard(self, shard: int, tenant: str, letter: Letter) -> None:
        mark = wire.Mark(wire.MarkKind.DISCARDED, tenant, letter.delivery_id, "", self._clock.now_ms())
        await self._mark(shard, [mark])

    async def step(self, operation: Operation, shard: int, inbox: Any) -> Operation:
        """One step of a bulk redrive. Those that died after it began are left alone, its own among them."""
        table = DeadLettersTable(inbox.store, self._names.dlq)
        page = table.after(
            operation.tenant, operation.cursor, limit=STEP_LETTERS_MAX, wants=lambda one: covered(operation, one)
        )
        chosen: list[tuple[Subscription, Letter, Body]] = []
        size, cursor, more = 0, page.after, page.more
        for letter in page.letters:
            subscription = self._subscriptions.get(operation.tenant, letter.subscription)
            body = None if subscription is None else _to_send(inbox, table, subscription, letter)
            if subscription is None or body is None:
                continue
            size += len(body.value)
            if chosen and size > STEP_BYTES_MAX:
                cursor, more = letter.offset - 1, True
                break
            chosen.append((subscription, letter, body))
        if chosen and not operation.dry_run:
            await self._send_again(shard, operation.id, chosen)
        seen = sum(letter.offset <= cursor for letter in page.letters)
        return advanced(
            operation,
            cursor=cursor,
            looked_at=seen,
            made=len(chosen),
            done=not more,
            now_ms=self._clock.now_ms(),
        )

    async def _send_again(
        self, shard: int, series: str, chosen: Sequence[tuple[Subscription, Letter, Body]]
    ) -> list[Redriven]:
        outbox, now_ms = self._outbox(), self._clock.now_ms()
        offset = self._subscriptions.offset(shard)
        queued: dict[str, tuple[Subscription, list[int]]] = {}
        made: list[Redriven] = []
        for subscription, letter, body in chosen:
            if isinstance(subscription.sink, QueueSink):
                queued.setdefault(subscription.id, (subscription, []))[1].append(letter.seq)
            else:
                job = again(subscription, letter.seq, letter.topic, series=series, now_ms=now_ms, offset=offset)
                put_job(outbox, self._names, self._count, job, body.headers, body.value)
            made.append(Redriven(delivery_id(subscription.tenant, letter.seq, subscription.id, series), series))
        if len(outbox):
            await flush(outbox)
        for subscription, seqs in queued.values():
            await self._give_again(shard, subscription, seqs, series)
        kind = wire.MarkKind.REDRIVEN
        marks = [wire.Mark(kind, one.tenant, letter.delivery_id, series, now_ms) for one, letter, _ in chosen]
        await self._mark(shard, marks)
        return made

    async def _mark(self, shard: int, marks: Sequence[wire.Mark]) -> None:
        """In the log, then in the table, so that who asks next sees it; the log's own reading changes nothing then."""
        outbox = self._outbox()
        for mark in marks:
            record = wire.write_mark(mark)
            partition = partition_for(tenant_key(mark.tenant), self._count)
            outbox.add(self._names.dlq, partition, record.key, record.value, record.headers)
        await flush(outbox)
        table = self.table(shard)
        if table is not None:
            batch = table.store.batch()
            for mark in marks:
                table.mark(batch, mark)
            table.store.write(batch)


def covered(operation: Operation, letter: Letter) -> bool:
    """Whether a bulk redrive is about this letter: `subscription`, `where` and the time of death."""
    where = operation.where
    return (
        letter.state == DEAD
        and letter.series_before != operation.id
        and letter.died_at_ms <= operation.created_at_ms
        and operation.span.from_ms <= letter.died_at_ms < operation.span.to_ms
        and (not operation.subscription or letter.subscription == operation.subscription)
        and where.get("reason", letter.reason) == letter.reason
        and where.get("type", letter.event_type) == letter.event_type
    )


def _to_send(inbox: Any, table: DeadLettersTable, subscription: Subscription, letter: Letter) -> Body | None:
    """What would be sent; None: nothing can be. A queue's rows hold no payload: it gives what is among the facts."""
    if not isinstance(subscription.sink, QueueSink):
        return body_of(inbox, table, subscription.tenant, letter)
    return None if inbox.fact(subscription.tenant, letter.seq) is None else Body((), b"")


def body_of(inbox: Any, table: DeadLettersTable, tenant: str, letter: Letter) -> Body | None:
    """The event of a letter: kept with it, or still among the facts."""
    body = table.body(tenant, letter)
    if body is not None:
        return body
    fact: Fact | None = inbox.fact(tenant, letter.seq)
    return None if fact is None else Body(fact.headers, fact.value)
