"""What a tick of queues is made of: requests that wait, and what was decided about rows before any of it is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple

from hub_app.domain.delivery import Job
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id, tenant_key
from hub_app.domain.queue import Effect, Operation, Row, Rules
from hub_app.domain.queue_tokens import Token, Tokens
from hub_app.kafka.producer import Outbox
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import partition_for
from hub_app.wire import dead_letters as wire_dead
from hub_app.wire import queue as wire
from hub_app.wire.queue import Action, Marked
from tables.queues import QueueTable

LOOK_MAX = 200


class Queue(NamedTuple):
    """A queue, as its subscription stands."""

    tenant: str
    subscription: str
    destination: str
    rules: Rules


class TokenError(Enum):
    """Why a token did nothing. `BAD`: no token at all; `LOST`: unknown, expired, settled, or of another queue."""

    BAD = "BadToken"
    LOST = "TokenLost"


class Delivered(NamedTuple):
    """An event, locked: `row` as it is now."""

    fact: Fact
    row: Row
    token: str


class Receive:
    """Wants up to `most` events. `connected()`: somebody still waits for the answer."""

    def __init__(self, queue: Queue, maker: Tokens, most: int, connected: Callable[[], bool]) -> None:
        self.queue, self.maker, self.most, self.connected = queue, maker, most, connected
        self.events: list[Delivered] = []
        self.in_hand = False
        self.answered: asyncio.Future[list[Delivered]] = asyncio.get_running_loop().create_future()

    @property
    def done(self) -> bool:
        return self.answered.done()

    def answer(self, events: list[Delivered]) -> None:
        if not self.answered.done():
            self.answered.set_result(events)


class Settle:
    """Wants `operation` done to each token; None stands for what could not be one. `delay_ms` is that of a release."""

    def __init__(
        self, queue: Queue, maker: Tokens, operation: Operation, tokens: Sequence[Token | None], delay_ms: int = 0
    ) -> None:
        self.queue, self.maker, self.operation = queue, maker, operation
        self.tokens, self.delay_ms = tokens, delay_ms
        self.results: list[TokenError | None] = []
        self.answered: asyncio.Future[list[TokenError | None]] = asyncio.get_running_loop().create_future()

    def answer(self) -> None:
        if not self.answered.done():
            self.answered.set_result(self.results)

    def fail(self, error: Exception) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


class _Burial(NamedTuple):
    queue: Queue
    row: Row
    fact: Fact | None
    reason: str


class Step:
    """What one tick decided. `changes`: (subscription, seq) -> the row as stored, and as it will be."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.changes: dict[tuple[str, int], tuple[Row | None, Row | None]] = {}
        self.settles: list[Settle] = []
        self.receives: list[Receive] = []
        self.dropped: set[str] = set()
        self._marks: dict[tuple[Action, str, str, str, int], list[tuple[int, int]]] = {}
        self._burials: list[_Burial] = []

    # -- deciding ------------------------------------------------------------------------------------------------------
    def row(self, queue: Queue, seq: int, stored: Row | None) -> Row | None:
        """The row as this tick has made it so far."""
        changed = self.changes.get((queue.subscription, seq))
        return changed[1] if changed is not None else stored

    def change(self, queue: Queue, row: Row, after: Row | None, action: Action) -> None:
        place = (queue.subscription, row.seq)
        first = self.changes.get(place)
        self.changes[place] = (first[0] if first is not None else row, after)
        delivery = row.deliveries if after is None else after.deliveries
        until_ms = 0 if after is None else after.until_ms
        key = (action, queue.tenant, queue.subscription, row.series, until_ms)
        self._marks.setdefault(key, []).append((row.seq, delivery))

    def bury(self, queue: Queue, row: Row, fact: Fact | None, effect: Effect) -> None:
        self._burials.append(_Burial(queue, row, fact, effect.value))
        self.change(queue, row, None, Action.BURIED)

    @property
    def buried(self) -> int:
        return len(self._burials)

    def touched(self, subscription: str) -> bool:
        return any(name == subscription for name, _ in self.changes)

    # -- writing -------------------------------------------------------------------------------------------------------
    def add_dead(self, outbox: Outbox, topic: str, shards: int) -> int:
        """The dead letters of this tick; how many."""
        for queue, row, fact, reason in self._burials:
            made = wire_dead.write(
                _job(queue, row, fact),
                fact.headers if fact is not None else (),
                fact.value if fact is not None else b"",
                reason=reason,
                at_ms=self.now_ms,
                error="" if fact is not None else "the event itself is not kept any more",
            )
            outbox.add(topic, partition_for(tenant_key(queue.tenant), shards), made.key, made.value, made.headers)
        return len(self._burials)

    def add_records(self, outbox: Outbox, topic: str, partition: int) -> int:
        """Everything else that happened, in the order in which it was decided; how many records."""
        count = 0
        for (action, tenant, subscription, series, until_ms), marks in self._marks.items():
            marked = Marked(action, tenant, subscription, series, self.now_ms, until_ms, tuple(marks))
            for made in wire.write_marked(marked):
                outbox.add(topic, partition, made.key, made.value, made.headers)
                count += 1
        return count

    # -- answering -----------------------------------------------------------------------------------------------------
    def succeed(self, metrics: Metrics) -> None:
        for burial in self._burials:
            metrics.dead.labels(burial.reason).inc()
        for settle in self.settles:
            settle.answer()
        for receive in self.receives:
            receive.answer(receive.events)

    def fail(self, error: Exception) -> None:
        """Not known, or not ours any more: nobody is told of a lock."""
        for settle in self.settles:
            settle.fail(error)
        for receive in self.receives:
            receive.answer([])


class Ready:
    """The ready events of a queue, lowest seq first, without those that the tick has changed."""

    def __init__(self, table: QueueTable, step: Step, queue: Queue, before_seq: int) -> None:
        self._table, self._step, self._queue, self._before = table, step, queue, before_seq
        self._rows: list[Row] = []
        self._after, self._ended = -1, False

    def take(self, count: int) -> list[Row]:
        """The next ones; fewer, or none, at the end."""
        while len(self._rows) < count and not self._ended:
            self._look()
        taken, self._rows = self._rows[:count], self._rows[count:]
        return taken

    def put_back(self, rows: list[Row]) -> None:
        """The last ones taken."""
        self._rows = rows + self._rows

    def _look(self) -> None:
        name = self._queue.subscription
        seqs = self._table.ready(name, self._before, LOOK_MAX, self._after)
        self._ended = len(seqs) < LOOK_MAX
        if seqs:
            self._after = seqs[-1]
            fresh = [seq for seq in seqs if (name, seq) not in self._step.changes]
            self._rows += [row for row in self._table.rows(name, fresh) if row is not None]


def _job(queue: Queue, row: Row, fact: Fact | None) -> Job:
    """A dead letter speaks of a delivery; that of a queue has the number of its last one, 1 if it had none."""
    return Job(
        delivery_id(queue.tenant, row.seq, queue.subscription, row.series),
        max(1, row.deliveries),
        0,
        queue.tenant,
        queue.destination,
        queue.subscription,
        row.series,
        row.seq,
        fact.topic if fact is not None else "",
        row.received_at_ms,
        0,
        0,
        0,
    )
