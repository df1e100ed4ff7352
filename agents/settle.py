"""Settling: what an attempt came to is written, in the order that loses nothing (docs/protocol.md, "Dispatch shard").

One tick settles everything that ended since the last one, in three writes, each acknowledged before the next begins:

    carry_on   the record that carries a job on: its next tier, hub.retry.parked, or hub.dlq
    record     the outcome, and the claims made meanwhile, in hub.attempts; what it says of its sink, in hub.health and
               hub.operator
    forget     the job leaves the table, and its source records count as finished

A tick that fails is tried again from its first unfinished write until Kafka takes it; its jobs are not attempted again
while this worker lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from agents.carrier import Carrier
from agents.dispatch_shard import DispatchShard
from agents.outcomes import Counts, Note, Settled, finishes, outcome
from agents.outputs import OutputRefused, flush
from hub_app.domain.backoff import Curve
from hub_app.domain.delivery import Dead, DeadReason, Deferred, Parked
from hub_app.domain.errors import StoreFailed
from hub_app.domain.ids import destination_key
from hub_app.domain.limits import MINUTE_MS
from hub_app.kafka.producer import HubProducer
from hub_app.ports import Clock
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from hub_app.wire import attempts as wire_attempts
from tables.jobs import Row

TICK_S = 0.02
"""Outcomes gather for this long: a batch to Kafka costs more than the records in it, and nothing waits for a tick but
the record itself."""
GATHERED_MAX = 48
"""So many do not wait any longer: few are to be lost with a process, and repeated by the next."""
CAREFUL_MS = 10 * MINUTE_MS
"""After an unclean opening, claims are acknowledged before their attempts for this long."""

Started = Callable[[DispatchShard, list[Any]], None]


class _Claimed(NamedTuple):
    shard: DispatchShard
    rows: list[Row]
    deadline_ms: int
    start: Callable[[], None] | None


class _Tick:
    """What one tick has to write, and how far it got."""

    def __init__(self, settled: list[Settled], claimed: list[_Claimed], notes: list[Note]) -> None:
        self.settled, self.claimed, self.notes = settled, claimed, notes
        self.carried_on = self.recorded = False
        self.outcomes: dict[DispatchShard, list[wire_attempts.Outcome]] = {}


class Settler:
    def __init__(
        self,
        *,
        producer: HubProducer,
        names: Names,
        shards: int,
        clock: Clock,
        curve: Curve,
        metrics: Metrics,
        store_failed: Callable[[DispatchShard, StoreFailed], None],
    ) -> None:
        self._producer, self._names, self._clock, self._store_failed = producer, names, clock, store_failed
        self._carrier = Carrier(producer, names, shards, clock, curve)
        self._counts = Counts(metrics, curve)
        self.on_settled: Callable[[DispatchShard, Row | None], None] = lambda shard, row: None
        self.on_death: Callable[[Settled], None] = lambda settled: None
        self.on_recorded: Callable[[], None] = lambda: None
        self._settled: list[Settled] = []
        self._claimed: list[_Claimed] = []
        self._notes: list[Note] = []
        self._tick: _Tick | None = None
        self._wanted, self._many = asyncio.Event(), asyncio.Event()
        self.unrecorded = 0
        """Attempts that were made and whose outcome is not in the log yet: what a crash now would repeat."""
        self._idle, self._ticked = asyncio.Event(), asyncio.Event()
        self._idle.set()
        self._careful_until_ms = 0

    # -- what others hand in -------------------------------------------------------------------------------------------
    @property
    def waiting(self) -> int:
        """Outcomes not yet recorded."""
        return len(self._settled) + (len(self._tick.settled) if self._tick else 0)

    async def below(self, count: int) -> None:
        """Returns when fewer outcomes than that wait."""
        while self.waiting >= count:
            await self._ticked.wait()

    def put(self, settled: Settled) -> None:
        self._settled.append(settled)
        self.unrecorded += settled.attempted is not None
        if len(self._settled) >= GATHERED_MAX:
            self._many.set()
        self._ask()

    def note(self, note: Note) -> None:
        """A record to be written with the outcomes handed in so far."""
        self._notes.append(note)
        self._ask()

    def note_claims(
        self, shard: DispatchShard, rows: list[Row], deadline_ms: int, start: Started, claimed: list[Any]
    ) -> None:
        """Claims are in the table; `start` begins their attempts: at once, or, while careful, when the log has them."""
        careful = self._clock.monotonic_ms() < self._careful_until_ms
        self._claimed.append(_Claimed(shard, rows, deadline_ms, (lambda: start(shard, claimed)) if careful else None))
        self._ask()
        if not careful:
            start(shard, claimed)

    def be_careful(self) -> None:
        """The last owner of a shard did not close it: a job may have killed it (docs/protocol.md, "Crash")."""
        self._careful_until_ms = self._clock.monotonic_ms() + CAREFUL_MS

    async def flushed(self) -> None:
        """Everything handed in so far is settled."""
        while self._settled or self._claimed or self._notes or self._tick:
            await self._idle.wait()

    def _ask(self) -> None:
        self._wanted.set()
        self._idle.clear()

    # -- the loop's step -----------------------------------------------------------------------------------------------
    async def step(self) -> None:
        """One tick. Raises what Kafka answered; called again, it goes on with the write that failed."""
        if self._tick is None:
            await self._wanted.wait()
            if not any(claimed.start for claimed in self._claimed):  # no attempt waits for this tick
                await self._gather()
            self._wanted.clear()
            self._many.clear()
            self._tick = _Tick(self._settled, self._claimed, self._notes)
            self._settled, self._claimed, self._notes = [], [], []
        tick = self._tick
        if not tick.carried_on:
            await self._carry_on(tick)
            tick.carried_on = True
        if not tick.recorded:
            await self._record(tick)
            tick.recorded = True
            self.unrecorded -= sum(settled.attempted is not None for settled in tick.settled)
            self.on_recorded()
        self._tick = None
        self._forget(tick)
        self._ticked.set()
        self._ticked = asyncio.Event()
        if not (self._settled or self._claimed or self._notes):
            self._idle.set()

    async def _gather(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(TICK_S):
                await self._many.wait()

    async def _carry_on(self, tick: _Tick) -> None:
        """What no topic takes for its size, although ours would be large enough (somebody has set its limit lower), can
        go no further: it is dead, and the rest of the tick is not held up."""
        refused, dead = await self._carrier.write(tick.settled), Dead(DeadReason.PAYLOAD_TOO_LARGE)
        for settled in [s for s in tick.settled if s.row.job.delivery_id in refused]:
            tick.settled.remove(settled)
            if not isinstance(settled.step, Parked):  # that one waits on where it is
                tick.settled.append(settled if isinstance(settled.step, Dead) else settled._replace(step=dead))
        if refused and await self._carrier.write([s for s in tick.settled if s.row.job.delivery_id in refused]):
            raise OutputRefused(f"{self._names.dlq} does not even take a dead letter without its payload")

    async def _record(self, tick: _Tick) -> None:
        outbox, topic, now_ms = self._producer.outbox(), self._names.attempts, self._clock.now_ms()
        tick.outcomes.clear()
        for claimed in tick.claimed:
            claims = [
                wire_attempts.Claim(job.delivery_id, job.attempt, job.moves, job.reclaims, claimed.deadline_ms)
                for job in (row.job for row in claimed.rows)
            ]
            for made in wire_attempts.write_claimed(claims, now_ms):
                outbox.add(topic, claimed.shard.number, made.key, made.value, made.headers)
        for settled in tick.settled:
            said, job = outcome(settled, now_ms), settled.row.job
            tick.outcomes.setdefault(settled.shard, []).append(said)
            key = destination_key(job.tenant, job.destination)
            headers = wire_attempts.write(said, settled.headers)
            outbox.add(topic, settled.shard.number, key, wire_attempts.value(said), headers)
        for note in tick.notes:
            if note.shard is None or not note.shard.closed:
                outbox.add(note.topic, note.partition, *note.record)
        flushed = await flush(outbox)
        shards = {c.shard: None for c in tick.claimed} | {s.shard: None for s in tick.settled}
        left = {shard.number for shard in shards if shard.closed}  # their next opening has to read what is written here
        for shard in shards:
            if shard.number not in left:
                shard.wrote(flushed.offsets.get((topic, shard.number), ()))

    def _forget(self, tick: _Tick) -> None:
        for claimed in tick.claimed:
            if claimed.start is not None:
                claimed.start()
        by_shard: dict[DispatchShard, list[Settled]] = {}
        for settled in tick.settled:
            self._counts.add(settled)
            if isinstance(settled.step, Dead):
                self.on_death(settled)
            by_shard.setdefault(settled.shard, []).append(settled)
        for shard, ended in by_shard.items():
            if shard.closed:
                continue  # its next owner reads these outcomes from the log
            batch = shard.table.store.batch()
            goes_on = [self._settle(shard, batch, settled) for settled in ended]
            shard.history.note(batch, tick.outcomes[shard])
            try:
                shard.table.store.write(batch)
            except StoreFailed as error:
                self._store_failed(shard, error)
                continue
            for row in goes_on:
                self.on_settled(shard, row)

    def _settle(self, shard: DispatchShard, batch: Any, settled: Settled) -> Row | None:
        if isinstance(settled.step, Parked):
            return None  # it waits on; its copy takes its place when it is read
        row = shard.settle(batch, settled.row, finishes(settled))
        if row is not None and isinstance(settled.step, Deferred) and row.job.attempt == settled.row.job.attempt:
            row.deferred_ms = settled.row.deferred_ms or self._clock.now_ms()
            shard.reschedule(batch, row, settled.step.until_ms, row.job._replace(reclaims=0))
        return row
