"""A worker's dispatch plane in the simulation: the hub's own classes. Sinks, Kafka, disks and clocks are played."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Protocol, cast

from agents.attempt import Attempted, Go
from agents.dispatch import Dispatcher
from agents.dispatch_opening import DispatchShards
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.settle import Settler
from agents.unattempted import Unattempted
from hub_app.domain.backoff import Curve
from hub_app.domain.delivery import Dead, Deferred, Job, Result, next_step
from hub_app.domain.errors import StoreFailed, StoreFull
from hub_app.domain.fairness import Scheduler
from hub_app.kafka.batch import Batch
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names
from tables.batch import Batch as RealBatch
from tables.claims import ClaimFile
from tables.jobs import LastRule, Row
from tables.memory import Memory
from tables.shard import ShardStore
from tests.fakes.store import MemoryStore
from tests.simulation.broker import Refusal
from tests.simulation.plane import SimPlane
from tests.simulation.process import Process, SimProducer, SimReader
from tests.simulation.world import Machine
from tests.support.dispatching import calm_health, nothing_to_read

CURVE = Curve((400, 800, 1_000, 1_200, 1_500, 2_000, 3_000))
NAMES = names("hub.")
SOURCES = (NAMES.deliveries, *(NAMES.retry(tier) for tier in CURVE.tiers), NAMES.parked)
TIMEOUT_MS = 4_000
MAX_AGE_MS = 60_000


class Sinks(Protocol):
    """What the world decides and sees of attempts."""

    def may(self, job: Job, now_ms: int) -> Go | Dead | Deferred: ...
    def claimed(self, worker: DispatchWorker, shard: DispatchShard, job: Job) -> None: ...
    async def attempt(self, worker: DispatchWorker, job: Job, headers: Any, body: bytes) -> Result: ...


class HookedStore(ShardStore):
    """The real store, with the places for crashes that the one in memory has."""

    before_write = after_write = staticmethod(lambda: None)

    def write(self, batch: RealBatch) -> None:
        self.before_write()
        super().write(batch)
        self.after_write()


class SimSettler(Settler):
    process: Process

    async def _carry_on(self, tick: Any) -> None:
        self.process.at("before carry_on")
        await super()._carry_on(tick)
        self.process.at("after carry_on")

    async def _record(self, tick: Any) -> None:
        self.process.at("before record")
        await super()._record(tick)
        self.process.at("after record")

    def _forget(self, tick: Any) -> None:
        self.process.at("before forget")
        super()._forget(tick)
        self.process.at("after forget")


class SimAttempter:
    """`agents.attempt.Attempter` with the hub's own rules for what becomes of a job, and sinks that are played."""

    timeout_ms = TIMEOUT_MS

    def __init__(self, worker: DispatchWorker, sinks: Sinks) -> None:
        self._worker, self._sinks = worker, sinks

    def may(self, row: Row, now_ms: int) -> Go | Dead | Deferred:
        return self._sinks.may(row.job, now_ms)

    async def make(self, job: Job, subscription: Any, headers: Any, body: bytes) -> Attempted:
        clock = self._worker.process.clock
        started_ms, began = clock.now_ms(), clock.monotonic_ms()
        return self._attempted(job, await self._sinks.attempt(self._worker, job, headers, body), started_ms, began)

    def broken(self, job: Job, error: BaseException, started_ms: int, began: int) -> Attempted:
        self._worker.broken_attempts.append(
            f"{self._worker.process.name}: attempt of {job.delivery_id.hex()}: {error!r}"
        )
        result = Result(cast("Any", "not_charged"), None, "internal", repr(error))
        return self._attempted(job, result, started_ms, began)

    def _attempted(self, job: Job, result: Result, started_ms: int, began: int) -> Attempted:
        process = self._worker.process
        step = next_step(
            job,
            result,
            curve=CURVE,
            started_at_ms=started_ms,
            now_ms=process.clock.now_ms(),
            draw=process.random.random(),
            max_age_ms=MAX_AGE_MS,
        )
        return Attempted(result, step, b"", started_ms, process.clock.monotonic_ms() - began)


class SimDispatcher(Dispatcher):
    worker: DispatchWorker
    sinks: Sinks

    def take_in(self, shard: DispatchShard, batch: Batch) -> None:
        with self.worker.writing("intake"):
            super().take_in(shard, batch)

    def _claim(self, shard: DispatchShard, claimed: list[Any], now_ms: int) -> None:
        self.worker.process.at("before claim")
        for row, _ in claimed:
            self.sinks.claimed(self.worker, shard, row.job)
        super()._claim(shard, claimed, now_ms)
        self.worker.process.at("after claim")


class DispatchWorker:
    def __init__(
        self,
        process: Process,
        machine: Machine,
        sinks: Sinks,
        *,
        shards: int,
        workers: int,
        head_rows: int,
        batch_max: int,
        memory: Memory | None = None,
    ) -> None:
        """`memory` is for tables on the disk; None: tables in memory."""
        self.process, self.machine, self._memory = process, machine, memory
        self.stores: list[Any] = []
        self.full = False
        self.broken_attempts: list[str] = []
        self._writing = "table"
        self.heard: dict[int, set[int]] = {}  # shard -> offsets of the attempts log read since it was opened
        metrics, claims = Metrics(), ClaimFile(machine.folder / "claims", workers)
        self.claims = claims
        self.settler = SimSettler(
            producer=cast("Any", SimProducer(process)),
            names=NAMES,
            shards=shards,
            clock=process.clock,
            curve=CURVE,
            metrics=metrics,
            store_failed=self._failed,
        )
        self.settler.process = process
        heads = Heads(
            Scheduler(workers), store_failed=self._failed, head_rows=head_rows, low_rows=max(1, head_rows // 4)
        )
        self.dispatcher = SimDispatcher(
            heads=heads,
            health=calm_health(process.clock, self.settler, shards),
            unattempted=Unattempted(heads=heads, settler=self.settler, clock=process.clock, store_failed=self._failed),
            claim_batch=4,
            idle_interval_ms=250,
            attempter=cast("Any", SimAttempter(self, sinks)),
            settler=self.settler,
            claims=claims,
            clock=process.clock,
            lease_valid=lambda now_ms: process.lease and process.awake,
            metrics=metrics,
        )
        self.dispatcher.worker, self.dispatcher.sinks = self, sinks
        self.settler.on_settled = self.dispatcher.settled
        self.plane = SimPlane(
            process,
            "dispatch",
            SOURCES,
            on_disk=lambda number: self._folder(number).exists() or self._folder(number) in machine.disk.folders,
            batch_max=batch_max,
            after_batch=False,
        )
        self.shards = DispatchShards(
            dispatcher=self.dispatcher,
            settler=self.settler,
            reader=cast("Any", SimReader(process, self._heard)),
            names=NAMES,
            data=cast("Any", self),
            left=claims.left,
            memory=cast("Any", None),
            clock=process.clock,
            metrics=metrics,
            cluster_id=lambda: "cluster",
            reopen=self.plane.reopen,
            commit=self.plane.commit,
            lasts=LastRule(CURVE.attempts_max, MAX_AGE_MS),
            read_health=nothing_to_read,
            on_opened=lambda shard: None,
            open_store=cast("Any", self._open_store),
        )
        self.plane.listener, self.plane.store_failed = self.shards, self.shards.store_failed
        self.plane.handle = self._take_in
        process.spawn(self._settle())
        process.spawn(self._commit_marks())

    def _failed(self, shard: DispatchShard, error: StoreFailed) -> None:
        self.shards.store_failed(shard.number, error)

    # -- the roof ------------------------------------------------------------------------------------------------------
    async def _take_in(self, batch: Batch) -> None:
        self.dispatcher.take_in(self.shards.shards[batch.shard], batch)
        batch.done()

    async def _settle(self) -> None:
        while True:
            try:
                await self.settler.step()
            except Exception as error:
                if not isinstance(error, Refusal):
                    self.process.problem(f"{self.process.name}: settling failed: {error!r}")
                await self.process.pause(0.5)

    async def _commit_marks(self) -> None:
        while True:
            await asyncio.sleep(0.25)
            if self.process.awake:
                self.shards.commit_marks()

    def kill(self) -> None:
        """Called when the process has died: nothing of it moves any more."""
        self.dispatcher.draining = True
        for store in self.stores:
            store.before_write = store.after_write = _nothing
            store.close(clean=False)
        self.claims.close()

    # -- disks ---------------------------------------------------------------------------------------------------------
    def folder(self, plane: str, number: int) -> Path:
        """`tables.datadir.DataDir.folder`."""
        return self._folder(number)

    def _folder(self, number: int) -> Path:
        return self.machine.folder / "dispatch" / str(number)

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> Any:
        self._may_write()
        self.heard.pop(more["shard"], None)
        store: Any
        if self._memory is None:
            store = MemoryStore.open(self.machine.disk, folder, **more)
        else:
            store = HookedStore.open(folder, memory=self._memory, **more)
        self.stores.append(store)
        store.before_write = partial(self._hook, "before")
        store.after_write = partial(self._hook, "after")
        return store

    def _may_write(self) -> None:
        if self.full:
            raise StoreFull("dispatch", "No space left on device")

    def _hook(self, when: str) -> None:
        if when == "before":
            self._may_write()
        self.process.at(f"{when} {self._writing}")

    @contextmanager
    def writing(self, what: str) -> Any:
        before, self._writing = self._writing, what
        try:
            yield
        finally:
            self._writing = before

    # -- for the checks ------------------------------------------------------------------------------------------------
    def _heard(self, records: Any) -> None:
        for record in records:
            if record.topic == NAMES.attempts:
                self.heard.setdefault(record.partition, set()).add(record.offset)

    @property
    def waiting(self) -> Mapping[int, Any]:
        return self.dispatcher.heads._waiting


def _nothing() -> None:
    """A dead process has no more hooks."""
