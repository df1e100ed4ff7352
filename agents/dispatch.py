"""Dispatch: claims due jobs in fair order, has each attempted once, hands the outcome to be settled.

One per process. It claims only under a valid lease, from shards that have read what their logs held when they were
opened (docs/protocol.md, "Dispatch shard"). No job costs a task or a future before it is claimed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from agents.attempt import Attempted, Attempter, Go, Hold
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.health import SinkHealth
from agents.outcomes import Settled
from agents.settle import Settler
from agents.solitude import Solitude, Turn
from agents.unattempted import Unattempted
from hub_app.domain.delivery import ALONE_FROM, Deferred
from hub_app.domain.subscription import Subscription
from hub_app.kafka.batch import Batch
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from tables.claims import Claim, ClaimFile
from tables.jobs import Row

CLAIM_MARGIN_MS = 2_000
"""A claim without an outcome counts as interrupted this long after its deadline."""
UNRECORDED_MAX = 128
"""Attempts whose outcomes wait for Kafka; with so many, nothing more is claimed. They, and those in flight, are what a
crash can repeat, however slow Kafka is."""


class Dispatcher:
    def __init__(
        self,
        *,
        heads: Heads,
        health: SinkHealth,
        unattempted: Unattempted,
        claim_batch: int,
        idle_interval_ms: int,
        attempter: Attempter,
        settler: Settler,
        claims: ClaimFile,
        clock: Clock,
        lease_valid: Callable[[int], bool],
        metrics: Metrics,
    ) -> None:
        self.heads, self.health, self._unattempted = heads, health, unattempted
        self._claim_batch, self._idle_interval_ms = claim_batch, idle_interval_ms
        self._attempter, self._settler, self._clock, self._lease_valid = attempter, settler, clock, lease_valid
        self._claims, self._solitude, self._log = claims, Solitude(), Log("dispatch")
        heads.on_place, settler.on_recorded = health.again, self.wake
        health.block = lambda place, until_ms, at_most: heads.scheduler.set_blocked(*place, until_ms, at_most=at_most)
        self.draining = False
        self._pump_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._attempts: set[asyncio.Task[None]] = set()
        self._running: dict[Row, DispatchShard] = {}
        metrics.in_flight.only().watch(lambda: len(self._running))

    # -- reading -------------------------------------------------------------------------------------------------------
    def take_in(self, shard: DispatchShard, batch: Batch) -> None:
        """A batch of deliveries, retries or parked records goes into the shard's table and order. StoreFailed if the
        table cannot take it."""
        was_ready = shard.caught_up
        taken = shard.take_in(batch.topic, batch.records, batch.next_offset)
        for row in taken.stale:
            self.heads.withdraw(shard, row)
        for row in taken.fresh:
            self.heads.accept(shard, row)
        if not was_ready:
            self.resume_when_ready(shard)
        if taken.fresh:
            self.wake()

    def resume_when_ready(self, shard: DispatchShard) -> None:
        if shard.suspended and shard.caught_up and not (shard.closed or shard.handing_over):
            self.heads.resume(shard)
            self.wake()

    # -- claiming ------------------------------------------------------------------------------------------------------
    def wake(self) -> None:
        """Something changed: look for work once in this turn of the event loop."""
        if not self._pump_due:
            self._pump_due = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.draining:
            return
        now_ms, mono_ms = self._clock.now_ms(), self._clock.monotonic_ms()
        wait_ms = self._idle_interval_ms
        if self._lease_valid(mono_ms) and self._settler.unrecorded < UNRECORDED_MAX:
            if self._solitude.busy:
                self._run_alone(now_ms)
            elif self._claim_round(now_ms, mono_ms) >= self._claim_batch:
                self.wake()
                return
            wake_ms = self.heads.scheduler.next_wake_ms()
            if wake_ms is not None:
                wait_ms = max(1, min(wait_ms, wake_ms - now_ms))
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self.wake)

    def _claim_round(self, now_ms: int, mono_ms: int) -> int:
        """Claims up to a batch of jobs; every claim is in its table before its attempt starts."""
        taken, by_shard = 0, dict[DispatchShard, list[tuple[Row, Subscription]]]()
        waits: dict[DispatchShard, list[tuple[Row, Deferred | Hold]]] = {}
        finished = self.heads.scheduler.finished
        while taken < self._claim_batch and (row := self.heads.pick(now_ms, mono_ms)) is not None:
            taken += 1
            shard = self.heads.shards[row.shard]
            may = self._attempter.may(row, now_ms)
            if isinstance(may, Go):
                if row.job.reclaims >= ALONE_FROM:
                    self._solitude.ask(Turn(shard, row, may.subscription))
                    break
                by_shard.setdefault(shard, []).append((row, may.subscription))
                continue
            finished(row, ok=None, now_ms=now_ms, mono_ms=mono_ms)
            if isinstance(may, Deferred | Hold):
                waits.setdefault(shard, []).append((row, may))
            else:
                self._unattempted.end(shard, row, may)
        for shard, rows in waits.items():
            self._unattempted.put_off(shard, rows)
        for shard, claimed in by_shard.items():
            self._claim(shard, claimed, now_ms)
        self._run_alone(now_ms)
        return taken

    def _run_alone(self, now_ms: int) -> None:
        """Claims the job that is to run alone, once nothing else is in flight."""
        turn = self._solitude.begin(self._claims.in_use)
        if turn is not None:
            self._claim(turn.shard, [(turn.row, turn.subscription)], now_ms)

    def _claim(self, shard: DispatchShard, claimed: list[tuple[Row, Subscription]], now_ms: int) -> None:
        deadline_ms = now_ms + self._attempter.timeout_ms
        for row, _ in claimed:
            row.claim = Claim(row.job.attempt, row.job.reclaims, deadline_ms)
            row.slot = self._claims.take(shard.number, row.job.delivery_id, row.claim)
        self._settler.note_claims(shard, [row for row, _ in claimed], deadline_ms, self._start, claimed)

    def _start(self, shard: DispatchShard, claimed: list[tuple[Row, Subscription]]) -> None:
        """Begins the attempts of claimed rows (at once, or when the claims' record is acknowledged)."""
        loop, now_ms = asyncio.get_running_loop(), self._clock.now_ms()
        for row, subscription in claimed:
            assert row.claim is not None
            if now_ms + self._attempter.timeout_ms > row.claim.deadline_ms + CLAIM_MARGIN_MS // 2:
                self._give_up(shard, row)
                continue
            self._running[row] = shard
            task = loop.create_task(self._attempt(shard, row, subscription))
            self._attempts.add(task)
            task.add_done_callback(self._attempts.discard)

    def _give_up(self, shard: DispatchShard, row: Row) -> None:
        """The log had the claim so late that the attempt would outlast it: somebody else may have the job by then."""
        self._claims.release(row.slot)
        late = TimeoutError("its claim was recorded too late")
        attempted = self._attempter.broken(row.job, late, self._clock.now_ms(), self._clock.monotonic_ms())
        self._finish(shard, row, attempted, (), b"")

    # -- attempting ----------------------------------------------------------------------------------------------------
    async def _attempt(self, shard: DispatchShard, row: Row, subscription: Subscription) -> None:
        job = row.job
        headers: tuple[tuple[str, bytes], ...] = ()
        body = b""
        started_ms, began = self._clock.now_ms(), self._clock.monotonic_ms()
        try:
            headers, body = shard.table.payload(row)
            attempted = await self._attempter.make(job, subscription, headers, body)
        except Exception as error:
            # Whatever went wrong here is ours, not the sink's: the job is deferred, and somebody is told.
            self._log.error(Event.AGENT_FAILED, error=error, delivery=job.delivery_id.hex())
            attempted = self._attempter.broken(job, error, started_ms, began)
        self._running.pop(row, None)
        self._claims.release(row.slot)
        self._finish(shard, row, attempted, headers, body)

    def _finish(
        self,
        shard: DispatchShard,
        row: Row,
        attempted: Attempted,
        headers: tuple[tuple[str, bytes], ...],
        body: bytes,
    ) -> None:
        self._solitude.ended(row)
        kind = attempted.result.kind
        ok = True if kind == "delivered" else None if kind == "not_charged" else False
        now_ms = attempted.started_ms + attempted.took_ms
        self.heads.scheduler.finished(row, ok=ok, now_ms=now_ms, mono_ms=self._clock.monotonic_ms())
        self.health.attempted(shard, row.job, ok=ok)
        self._settler.put(Settled(shard, row, attempted.step, attempted, headers, body))
        self.wake()

    def settled(self, shard: DispatchShard, row: Row | None) -> None:
        """The settler is done with a job; `row` is what is to be put into the order, if anything."""
        if row is not None and not shard.closed:
            self.heads.accept(shard, row)
            self.wake()

    # -- ending --------------------------------------------------------------------------------------------------------
    def suspend(self, shard: DispatchShard) -> None:
        """Nothing of the shard is claimed any more; attempts in hand go on."""
        self.heads.suspend(shard)
        row = self._solitude.give_up(shard)
        if row is not None:
            now_ms, mono_ms = self._clock.now_ms(), self._clock.monotonic_ms()
            self.heads.scheduler.finished(row, ok=None, now_ms=now_ms, mono_ms=mono_ms)
            self.heads.accept(shard, shard.let_go(row))

    def close(self, shard: DispatchShard) -> None:
        """Forgets the shard."""
        self.suspend(shard)
        self.heads.close(shard)
        self.health.close(shard)

    @property
    def in_flight(self) -> int:
        return len(self._running)

    async def drain(self, timeout_ms: int) -> None:
        """Claims nothing more and waits for the attempts in hand."""
        self.draining = True
        if self._attempts:
            await asyncio.wait(list(self._attempts), timeout=timeout_ms / 1000)
        self.health.log.flush(list(self.heads.shards.values()))
