"""Dispatch in random worlds: the hub's own classes over a simulated Kafka, disks and sinks, on one seed.

A few workers own one or two shards in turn. They die at every write, lose their disks, come back with old ones, sleep
through the loss of their shards and go on writing; Kafka fails for a while, a disk is full. When the storm is over
everything heals, and then every job must be delivered or dead, and nothing may be left in hands, tables or logs.

    python -m tests.simulation.dispatch_world --seeds 2000 [--first 0]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from agents.attempt import Go
from agents.dispatch_shard import DispatchShard
from hub_app.domain.classify import answered, not_tried, unanswered
from hub_app.domain.delivery import Dead, DeadReason, Deferred, Job, Result, version
from hub_app.domain.ids import delivery_id, destination_key
from hub_app.topics import partition_for
from hub_app.wire import jobs as wire_jobs
from tables.memory import Memory
from tests.simulation import clockwork
from tests.simulation.dispatch_checks import CARRIED, Checks, payload_of
from tests.simulation.dispatch_worker import NAMES, SOURCES, TIMEOUT_MS, DispatchWorker
from tests.simulation.process import Process
from tests.simulation.world import Machine, World

POINTS = [
    f"{when} {what}"
    for when in ("before", "after")
    for what in ("carry_on", "record", "forget", "commit", "intake", "claim", "table")
]
"""Where a worker may be made to die."""


class DispatchWorld(World[DispatchWorker]):
    points = POINTS

    def __init__(
        self,
        seed: int,
        folder: Path,
        memory: Memory | None = None,
        plant: Callable[[DispatchWorker], None] = lambda worker: None,
    ) -> None:
        """`memory`: tables are RocksDB's, in `folder`; else they are in memory. `plant` spoils every worker."""
        super().__init__(seed, folder)
        self.checks, self._memory, self._plant = Checks(self.problem, gentle=self.gentle), memory, plant
        choose = self.random.choice
        self.workers = choose((1, 2, 4, 8))
        self.head_rows = choose((2, 4, 64))
        self.burst = choose((1, 3, 12, 150) if seed % 4 == 0 else (1, 3, 12))
        self.jobs_max = 400 if self.burst == 150 else 60
        self.places = choose((1, 2, 6))
        self.failing = choose((0.0, 0.2, 0.6, 0.9))
        self.odd = 0.0 if self.gentle else choose((0.0, 0.1, 0.3))  # not charged, deferred, without a subscription

    # -- sinks: what attempts come to ----------------------------------------------------------------------------------
    def may(self, job: Job, now_ms: int) -> Go | Dead | Deferred:
        if not self.healed and self.random.random() < self.odd / 3:
            return Deferred(now_ms + self.random.randint(1, 3_000))
        if not self.healed and self.random.random() < self.odd / 10:
            return Dead(DeadReason.SUBSCRIPTION_DELETED)
        return Go(cast("Any", None))

    def claimed(self, worker: DispatchWorker, shard: DispatchShard, job: Job) -> None:
        self.checks.claimed(worker, shard, job)

    async def attempt(self, worker: DispatchWorker, job: Job, headers: Any, body: bytes) -> Result:
        self.checks.begins(worker, job)
        self.checks.carries(job, headers, body)
        try:
            return await self._answer(worker, job)
        finally:
            self.checks.ends(worker, job)

    async def _answer(self, worker: DispatchWorker, job: Job) -> Result:
        roll, process = self.random.random(), worker.process
        if roll < 0.1 and not self.healed:
            await asyncio.sleep(TIMEOUT_MS / 1_000)
            await process.pause(0.0)
            return unanswered("timeout")
        await process.pause(0.005 if self.healed else self.random.choice((0.005, 0.1, 2.0)))
        if not self.healed and self.random.random() < self.odd / 3:
            raise RuntimeError("a fault of ours") if self.random.random() < 0.3 else RuntimeError("another")
        if not self.healed and self.random.random() < self.odd / 3:
            return not_tried("secret_unavailable")
        if not self.healed and self.random.random() < self.failing:
            return answered(503)
        self.checks.delivered.add(job.delivery_id)
        return answered(204)

    # -- what happens --------------------------------------------------------------------------------------------------
    def _begin(self) -> None:
        self.broker.on_append.append(self.checks.appended)
        self.broker.on_commit.append(self.checks.committed)

    def _new_worker(self, process: Process, machine: Machine) -> DispatchWorker:
        worker = DispatchWorker(
            process,
            machine,
            self,
            shards=self.shards,
            workers=self.workers,
            head_rows=self.head_rows,
            batch_max=self.batch_max,
            memory=self._memory,
        )
        self._plant(worker)
        return worker

    async def _something_else(self, worker: DispatchWorker) -> None:
        if self.random.random() < 0.4:
            self._repeat()
        else:
            self._park(worker)

    def _produce(self) -> None:
        """Deliveries of facts received in one go: they are due at the same moment."""
        now_ms, count = self.clock.now_ms(), self.random.randint(1, self.burst)
        for _ in range(min(count, self.jobs_max - len(self.checks.made))):
            seq = len(self.checks.made) + 1
            tenant = f"t{self.random.randrange(self.places) // 2}"
            destination = f"https://{self.random.randrange(self.places)}.example/"
            id = delivery_id(tenant, seq, "sub")
            job = Job(id, 1, 0, tenant, destination, "sub", "", seq, "lender", now_ms, 0, 0, 0)
            self.checks.made[id] = job
            self._append(NAMES.deliveries, job)

    def _append(self, topic: str, job: Job) -> None:
        key = destination_key(job.tenant, job.destination)
        headers = wire_jobs.write(job, CARRIED)
        self.broker.append(topic, partition_for(key, self.shards), key, payload_of(job.delivery_id), headers)

    def _repeat(self) -> None:
        """Upstream emits a delivery again."""
        if self.checks.made:
            self._append(NAMES.deliveries, self.random.choice(list(self.checks.made.values())))

    def _park(self, worker: DispatchWorker) -> None:
        """What an owner does with a waiting job that holds the mark back."""
        rows = [row for shard in worker.shards.shards.values() for row in shard.offered.values()]
        if rows and worker.process.lease:
            job = self.random.choice(rows).job
            if version(job) == self.checks.highest[job.delivery_id]:
                self._append(NAMES.parked, job._replace(moves=job.moves + 1))

    # -- checks --------------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        for worker in self.alive.values():
            self.checks.look_into(worker, self.head_rows)

    def _at_rest(self) -> bool:
        done = self.checks.delivered | self.checks.dead.keys()
        ends = all(
            self.broker.committed.get((topic, number), 0) == self.broker.end(topic, number)
            for topic in SOURCES
            for number in range(self.shards)
        )
        return done >= self.checks.made.keys() and ends

    def _last_look(self) -> None:
        checks = self.checks
        if lost := checks.made.keys() - checks.delivered - checks.dead.keys():
            checks.problem(f"{len(lost)} are lost: {sorted(key.hex() for key in lost)[:3]}")
        for number in range(self.shards):
            for topic in SOURCES:
                low, end = self.broker.committed.get((topic, number)), self.broker.end(topic, number)
                if (low or 0) != end:
                    checks.problem(f"{topic}/{number}: everything is finished, but {low} of {end} is committed")
        for worker in self.alive.values():
            checks.look_into(worker, self.head_rows)
            for shard in worker.shards.shards.values():
                left = [*shard.in_hand, *shard.offered, *shard.held, *shard.successors]
                if left or shard.table.count:
                    names = [key.hex() for key in left[:3]]
                    checks.problem(f"{worker.process.name}/{shard.number}: left {names}, {shard.table.count} rows")


def run(
    seed: int, memory: Memory | None = None, plant: Callable[[DispatchWorker], None] = lambda worker: None
) -> str | None:
    """One world from its seed; what is wrong in it, or None."""
    with tempfile.TemporaryDirectory(dir=_fast()) as folder:
        world = DispatchWorld(seed, Path(folder), memory, plant)
        clockwork.run(world.story)
        for worker in world.alive.values():
            worker.kill()
    return world.problems[0] if world.problems else None


def _fast() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    parser.add_argument("--rocksdb", action="store_true", help="tables on the disk: the same worlds, ten times slower")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failures, memory = 0, Memory() if asked.rocksdb else None
    for seed in range(asked.first, asked.first + asked.seeds):
        if problem := run(seed, memory):
            print(f"seed {seed}: {problem}", flush=True)
            failures += 1
            if not asked.all:
                return 1
    print(f"{asked.seeds} seeds, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
