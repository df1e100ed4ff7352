"""Queues: receiving and settling the events of one inbox shard's queues, durable before answered (docs/queues.md).

All that came since the last tick is decided together, on the rows and on what the same tick made of them; then, each
acknowledged before the next begins:

    bury     dead letters in hub.dlq
    record   every lock and settlement in hub.queue
    (look)   is the shard still ours? If not, a receive answers nothing and a settlement is unknown
    write    rows, and how far the log has come, in one RocksDB batch

Only then is anybody answered. A receive that finds nothing waits here, first come first served, and costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from agents.outputs import flush
from agents.queue_steps import Delivered, Queue, Ready, Receive, Settle, Step, TokenError
from hub_app.domain.errors import BrokerTrouble, Fenced, StoreFailed
from hub_app.domain.limits import QUEUE_ANSWER_BYTES_MAX
from hub_app.domain.queue import BURIALS, Effect, Operation, Row, effect_of, extended, freed, locked, returned
from hub_app.kafka.producer import HubProducer
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from hub_app.wire.queue import Action
from tables.inbox import InboxTable
from tables.queues import QueueTable

DUE_MAX = 1_000
"""Locks and delays that are found to be over in one tick, of one queue."""
BURIED_MAX = 100
"""Events of one queue buried in one tick: their payloads are in memory meanwhile."""
FACTS_AT_ONCE = 16
TIMER_MS_MAX = 60_000


class QueueParts(NamedTuple):
    """What the queues of all shards share. `queue_of(subscription)`: the queue as its subscription stands, None when it
    was deleted. `alive(shard)`: open here, under a valid lease. `failed(shard, error)`: to be opened again."""

    producer: HubProducer
    names: Names
    shards: int
    clock: Clock
    metrics: Metrics
    queue_of: Callable[[str, str], Queue | None]
    alive: Callable[[int], bool]
    failed: Callable[[int, StoreFailed], None]


class QueueShard:
    """The queues of one inbox shard. `position()`: facts below this seq are in the inbox; rows at or above it wait for
    theirs, while a shard catches up."""

    def __init__(
        self, number: int, table: QueueTable, inbox: InboxTable, parts: QueueParts, position: Callable[[], int]
    ) -> None:
        self.number, self.table, self._inbox, self._parts, self._position = number, table, inbox, parts, position
        self._log = Log("queues")
        self._tenants: dict[str, str] = {}
        self._waiting: dict[str, deque[Receive]] = {}
        self._settles: list[Settle] = []
        self._hot: set[str] = set()
        self._due: dict[str, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._running: asyncio.Task[None] | None = None
        self._resting = False
        self.closed = False

    # -- what others ask -----------------------------------------------------------------------------------------------
    def receive(self, asked: Receive) -> None:
        """Its future gets the events, locked; none when its time is over (`give_up`), or the shard leaves."""
        if self.closed:
            asked.answer([])
            return
        self._tenants[asked.queue.subscription] = asked.queue.tenant
        self._waiting.setdefault(asked.queue.subscription, deque()).append(asked)
        self._wake(asked.queue.subscription)

    def settle(self, asked: Settle) -> None:
        """Its future gets an error or None per token, in their order; Fenced or BrokerTrouble when it is not known."""
        if self.closed:
            asked.fail(Fenced("the shard is not open here"))
            return
        self._tenants[asked.queue.subscription] = asked.queue.tenant
        self._settles.append(asked)
        self._kick()

    def give_up(self, asked: Receive) -> None:
        """Its time is over, or its client has gone; nothing happens when events are being locked for it."""
        if not asked.in_hand:
            asked.answer([])
            waiting = self._waiting.get(asked.queue.subscription)
            if waiting is not None and asked in waiting:
                waiting.remove(asked)

    def enqueued(self, tenant: str, subscription: str) -> None:
        """Rows were written for it."""
        self._tenants[subscription] = tenant
        self._wake(subscription)

    def advanced(self) -> None:
        """Facts were read that rows may have waited for."""
        for subscription in self._waiting:
            self._wake(subscription)

    # -- life ----------------------------------------------------------------------------------------------------------
    async def rest(self) -> None:
        """Nothing is begun any more, and what was begun has ended: another worker may read the log to its end."""
        self._resting = True
        if self._running is not None:
            await asyncio.wait([self._running])

    def go_on(self) -> None:
        self._resting = False
        self._kick()

    def close(self) -> None:
        """Answers everybody. A tick that is under way ends by itself, and writes no rows."""
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.end_polls()
        for settle in self._settles:
            settle.fail(Fenced("the shard is not open here any more"))
        self._settles.clear()

    def end_polls(self) -> None:
        """Answers everybody who waits, with nothing."""
        for waiting in self._waiting.values():
            for asked in waiting:
                asked.answer([])
        self._waiting.clear()

    def begin(self, tenants: dict[str, str]) -> None:
        """The shard was opened with rows for these subscriptions; those of deleted ones are dropped."""
        batch = self.table.store.batch()
        for subscription in self.table.subscriptions():
            tenant = tenants.get(subscription)
            if tenant is None:
                self.table.drop(batch, subscription)
            else:
                self.enqueued(tenant, subscription)
        if len(batch):
            self.table.store.write(batch)

    # -- the loop ------------------------------------------------------------------------------------------------------
    def _wake(self, subscription: str) -> None:
        self._hot.add(subscription)
        self._kick()

    def _kick(self) -> None:
        wanted = (self._hot or self._settles) and not self.closed and not self._resting
        if wanted and (self._running is None or self._running.done()):
            self._running = asyncio.create_task(self._run(), name=f"queues/{self.number}")

    async def _run(self) -> None:
        await asyncio.sleep(0)  # what comes in the same turn of the loop goes into the same tick
        while (self._hot or self._settles) and not self.closed and not self._resting:
            step = Step(self._parts.clock.now_ms())
            try:
                await self._tick(step)
            except StoreFailed as error:
                step.fail(error)
                self._parts.failed(self.number, error)
            except Exception as error:
                # What was to be written may be: only reading the log again tells.
                self._log.error(Event.BATCH_FAILED, error=error, shard=self.number)
                step.fail(BrokerTrouble("the log of queues does not take it"))
                self._parts.failed(self.number, StoreFailed(f"inbox/{self.number}", f"queues: {error}"))

    async def _tick(self, step: Step) -> None:
        hot, settles = self._hot, self._settles
        self._hot, self._settles = set(), []
        step.settles = settles
        for settle in settles:
            self._settle(step, settle)
            hot.add(settle.queue.subscription)
        for subscription in hot:
            self._serve(step, subscription)
        outbox = self._parts.producer.outbox()
        if step.add_dead(outbox, self._parts.names.dlq, self._parts.shards):
            await flush(outbox, omits=(self._parts.names.dlq,))
        logged = step.add_records(outbox, self._parts.names.queue, self.number)
        flushed = await flush(outbox) if logged else None
        if self.closed or not self._parts.alive(self.number):
            step.fail(Fenced("the shard has moved to another worker"))
            return
        if step.changes:
            batch = self.table.store.batch()
            for (subscription, _), (before, after) in step.changes.items():
                if subscription not in step.dropped:
                    self.table.put(batch, subscription, before, after)
            offsets = flushed.offsets.get((self._parts.names.queue, self.number), ()) if flushed else ()
            if offsets and (last := offsets[-1]) is not None:
                self.table.reached(batch, last + 1)
            self.table.store.write(batch)
        step.succeed(self._parts.metrics)
        for subscription in hot:
            self._look_ahead(step, subscription)

    # -- deciding ------------------------------------------------------------------------------------------------------
    def _settle(self, step: Step, settle: Settle) -> None:
        queue, operation = settle.queue, settle.operation
        tokens = [token for token in settle.tokens if token is not None]
        rows = iter(self.table.rows(queue.subscription, [token.seq for token in tokens]))
        for token in settle.tokens:
            if token is None:
                settle.results.append(TokenError.BAD)
                continue
            row = step.row(queue, token.seq, next(rows))
            if row is None or not settle.maker.made(token, row.series):
                settle.results.append(TokenError.LOST)
                continue
            effect = effect_of(row, operation, now_ms=step.now_ms, rules=queue.rules, delivery=token.delivery)
            settle.results.append(TokenError.LOST if effect is Effect.LOST else None)
            self._apply(step, queue, row, effect, settle.delay_ms)

    def _apply(self, step: Step, queue: Queue, row: Row, effect: Effect, delay_ms: int = 0) -> None:
        if effect is Effect.REMOVE:
            step.change(queue, row, None, Action.ACKNOWLEDGED)
        elif effect is Effect.EXTEND:
            step.change(queue, row, extended(row, now_ms=step.now_ms, rules=queue.rules), Action.RENEWED)
        elif effect is Effect.FREE:
            after = freed(row, now_ms=step.now_ms, delay_ms=delay_ms)
            last = effect_of(after, Operation.TICK, now_ms=step.now_ms, rules=queue.rules)
            if last in BURIALS and self._bury(step, queue, row, last):
                return
            step.change(queue, row, after, Action.RELEASED)
        elif effect in BURIALS:
            self._bury(step, queue, row, effect)

    def _bury(self, step: Step, queue: Queue, row: Row, effect: Effect) -> bool:
        """False: its fact has not been read yet, so it is left for later."""
        if row.seq >= self._position():
            return False
        step.bury(queue, row, self._inbox.fact(queue.tenant, row.seq), effect)
        return True

    def _serve(self, step: Step, subscription: str) -> None:
        """What time did to the queue's events, and then events for those who wait, the longest waiting first."""
        queue = self._parts.queue_of(self._tenants[subscription], subscription)
        waiting = self._waiting.get(subscription)
        if queue is None:
            self._forget(step, subscription)
            return
        self._return_due(step, queue)
        look = Ready(self.table, step, queue, self._position())
        while waiting:
            asked = waiting[0]
            if not asked.done and asked.connected():
                if not self._lock(step, queue, look, asked):
                    break
                asked.in_hand = True
                step.receives.append(asked)
            else:
                asked.answer([])
            waiting.popleft()
        else:
            self._waiting.pop(subscription, None)
            self._bury_head(step, queue, look)

    def _return_due(self, step: Step, queue: Queue) -> None:
        """Locks and delays that are over: back among the ready ones, or buried. Nothing is logged for a return, so it
        is written at once."""
        seqs = self.table.due(queue.subscription, step.now_ms, DUE_MAX)
        if not seqs:
            return
        batch, buried = self.table.store.batch(), 0
        for seq, stored in zip(seqs, self.table.rows(queue.subscription, seqs), strict=True):
            row = step.row(queue, seq, stored)
            if row is None or row is not stored:
                continue
            effect = effect_of(row, Operation.TICK, now_ms=step.now_ms, rules=queue.rules)
            if effect in BURIALS and buried == BURIED_MAX:
                break  # the rest in the next tick
            if effect in BURIALS and self._bury(step, queue, row, effect):
                buried += 1
            elif row.until_ms <= step.now_ms:
                self.table.put(batch, queue.subscription, row, returned(row))
        if len(batch):
            self.table.store.write(batch)

    def _lock(self, step: Step, queue: Queue, look: Ready, asked: Receive) -> bool:
        """Locks up to as many events as were asked for; False when there is none."""
        size = 0
        while len(asked.events) < asked.most:
            rows = look.take(min(FACTS_AT_ONCE, asked.most - len(asked.events)))
            if not rows:
                break
            facts = self._inbox.facts([row.seq for row in rows])
            for at, (row, fact) in enumerate(zip(rows, facts, strict=True)):
                effect = effect_of(row, Operation.RECEIVE, now_ms=step.now_ms, rules=queue.rules)
                if effect is Effect.LOCK and (fact is None or fact.tenant != queue.tenant):
                    effect = Effect.BURY_OLD  # retention has taken it
                if effect in BURIALS and step.buried < BURIED_MAX:
                    step.bury(queue, row, fact, effect)
                if effect is not Effect.LOCK or fact is None:
                    continue
                size += len(fact.value)
                if asked.events and size > QUEUE_ANSWER_BYTES_MAX:
                    look.put_back(rows[at:])
                    return True
                after = locked(row, now_ms=step.now_ms, rules=queue.rules)
                step.change(queue, row, after, Action.LOCKED)
                asked.events.append(Delivered(fact, after, asked.maker.make(after)))
        return bool(asked.events)

    def _bury_head(self, step: Step, queue: Queue, look: Ready) -> None:
        """The oldest ready events, as far as their time is over: nobody may ever come for them."""
        while step.buried < BURIED_MAX and (rows := look.take(1)):
            effect = effect_of(rows[0], Operation.TICK, now_ms=step.now_ms, rules=queue.rules)
            if effect not in BURIALS:
                look.put_back(rows)
                return
            self._bury(step, queue, rows[0], effect)

    def _forget(self, step: Step, subscription: str) -> None:
        """Its subscription was deleted: so are its rows, and nobody waits for them."""
        step.dropped.add(subscription)
        for asked in self._waiting.pop(subscription, ()):
            asked.answer([])
        batch = self.table.store.batch()
        self.table.drop(batch, subscription)
        self.table.store.write(batch)

    # -- time ----------------------------------------------------------------------------------------------------------
    def _look_ahead(self, step: Step, subscription: str) -> None:
        """When this queue is to be looked at next, if nobody asks before."""
        queue = self._parts.queue_of(self._tenants[subscription], subscription)
        if queue is None or self.closed:
            self._due.pop(subscription, None)
            return
        times = []
        if (next_due_ms := self.table.next_due_ms(subscription)) is not None:
            times.append(next_due_ms)
        if seqs := self.table.ready(subscription, self._position(), 1):
            [row] = self.table.rows(subscription, seqs)
            if row is not None:
                times.append(row.received_at_ms + queue.rules.ttl_ms)
            if self._waiting.get(subscription) and step.touched(subscription):
                self._hot.add(subscription)  # released in this tick, or more than one tick could do
        if times:
            due_ms = self._due[subscription] = min(times)
            if self._timer is None or due_ms < self._timer_ms:
                self._set_timer(due_ms)
        else:
            self._due.pop(subscription, None)

    def _set_timer(self, at_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        wait_ms = min(max(at_ms - self._parts.clock.now_ms(), 1), TIMER_MS_MAX)
        self._timer_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._time_came)

    def _time_came(self) -> None:
        self._timer, now_ms = None, self._parts.clock.now_ms()
        for subscription in [name for name, due_ms in self._due.items() if due_ms <= now_ms]:
            del self._due[subscription]
            self._hot.add(subscription)
        if self._due:
            self._set_timer(min(self._due.values()))
        self._kick()
