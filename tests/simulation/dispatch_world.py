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
from random import Random
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
from tests.simulation.broker import Broker
from tests.simulation.clockwork import SimClock
from tests.simulation.dispatch_checks import CARRIED, Checks, payload_of
from tests.simulation.dispatch_worker import NAMES, SOURCES, TIMEOUT_MS, DispatchWorker, Machine
from tests.simulation.process import Killed, Process, task_factory

POINTS = [
    f"{when} {what}"
    for when in ("before", "after")
    for what in ("carry_on", "record", "forget", "commit", "intake", "claim", "table")
]
"""Where a worker may be made to die."""
HEAL_S = 400


class DispatchWorld:
    def __init__(
        self,
        seed: int,
        folder: Path,
        memory: Memory | None = None,
        plant: Callable[[DispatchWorker], None] = lambda worker: None,
    ) -> None:
        """`memory`: tables are RocksDB's, in `folder`; else they are in memory. `plant` spoils every worker."""
        self._plant = plant
        self.random, self.folder, self.checks, self._memory = Random(seed), folder, Checks(), memory
        choose = self.random.choice
        self.shards = choose((1, 1, 2))
        self.workers = choose((1, 2, 4, 8))
        self.head_rows = choose((2, 4, 64))
        self.batch_max = choose((1, 5, 50))
        self.burst = choose((1, 3, 12, 150) if seed % 4 == 0 else (1, 3, 12))
        self.jobs_max = 400 if self.burst == 150 else 60
        self.places = choose((1, 2, 6))
        self.gentle = self.checks.gentle = self.random.random() < 0.25
        self.failing = choose((0.0, 0.2, 0.6, 0.9))
        self.odd = 0.0 if self.gentle else choose((0.0, 0.1, 0.3))  # not charged, deferred, without a subscription
        self.healed = False
        self.count = 0
        self.died_at: list[str] = []

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

    # -- the story -----------------------------------------------------------------------------------------------------
    async def story(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_task_factory(task_factory)
        self.loop.set_exception_handler(self._unhandled)
        self.clock = SimClock(self.loop)
        self.broker = Broker(self.clock.now_ms)
        self.broker.on_append.append(self.checks.appended)
        self.broker.on_commit.append(self.checks.committed)
        self.machines = [Machine(f"m{number}", self.folder) for number in range(3)]
        self.alive: dict[str, DispatchWorker] = {}
        for machine in self.machines:
            self._start(machine)
        for number in range(self.shards):
            await self._give(number)
        for _ in range(self.random.randint(10, 60)):
            await asyncio.sleep(self.random.choice((0.02, 0.3, 1.0, 3.0)) * self.random.random())
            await self._something()
            for worker in self.alive.values():
                self.checks.look_into(worker, self.head_rows)
            if self.checks.problems:
                return
        await self._heal()

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Killed):
            self.checks.problem(f"unhandled: {context['message']} {error!r}")

    def _start(self, machine: Machine) -> DispatchWorker:
        self.count += 1
        off_ms = self.random.randint(-50, 50)
        process = Process(f"{machine.name}#{self.count}", self.broker, self.random, self.checks.problem, off_ms)
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
        self.alive[machine.name] = worker
        process.on_death = lambda: self._died(worker)
        return worker

    def _died(self, worker: DispatchWorker) -> None:
        """The process is gone; the group finds out, and the machine is started again, perhaps with an empty disk."""
        worker.kill()
        if worker.process.died_at:
            self.died_at.append(worker.process.died_at)
        machine = worker.machine
        lost = worker.plane.has
        del self.alive[machine.name]
        if self.random.random() < 0.3:
            machine.lose_disk()
        self._start(machine)
        self._later(self._inherit(lost, worker))

    async def _inherit(self, lost: frozenset[int], dead: DispatchWorker) -> None:
        await asyncio.sleep(self.random.choice((0.1, 10.0)) * self.random.random())
        for number in sorted(lost):
            if self.broker.owners.get(number) is dead.plane:
                await self._give(number)

    def _later(self, work: Any) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.checks.problem(f"the world failed: {task.exception()!r}")

    # -- shards go from hand to hand -----------------------------------------------------------------------------------
    def _members(self) -> list[DispatchWorker]:
        """Those that the group knows, and that answer it."""
        return [worker for worker in self.alive.values() if worker.process.lease and worker.process.awake]

    async def _give(self, number: int, worker: DispatchWorker | None = None) -> None:
        while worker is None or not worker.process.alive:
            members = self._members()
            worker = self.random.choice(members) if members else None
            if worker is None:
                await asyncio.sleep(0.5)
        await self._in(worker, worker.plane.given(number))

    async def _in(self, worker: DispatchWorker, work: Any) -> None:
        """Runs a part of the world's will inside a process, for as long as that lives."""
        await asyncio.wait([worker.process.spawn(work)])

    def _owner(self, number: int) -> DispatchWorker | None:
        plane = self.broker.owners.get(number)
        return next((worker for worker in self.alive.values() if worker.plane is plane), None)

    async def _hand_over(self) -> None:
        """A rebalance: everybody steps back, then some shards have another owner, and the others are resumed."""
        workers = self._members()
        for worker in workers:
            await self._in(worker, worker.plane.step_back())
        for number in range(self.shards):
            old, members = self._owner(number), self._members()
            new = self.random.choice(members) if members else old
            if old is None or new is None or old is new or old not in members or number not in old.plane.has:
                continue
            self._later(self._in(old, old.plane.taken(number)))
            await self._give(number, new)
        for worker in workers:
            if worker.process.alive:
                await self._in(worker, worker.plane.go_on())

    async def _overtake(self, worker: DispatchWorker, asleep: bool) -> None:
        """Cut off, or asleep, for longer than the group waits: others own its shards before it knows."""
        process = worker.process
        if asleep:
            process.sleep()
        await asyncio.sleep(10)
        if not process.alive:
            return
        process.lease = False
        for number in sorted(worker.plane.has):
            if self.broker.owners.get(number) is worker.plane:
                await self._give(number)
        await asyncio.sleep(self.random.random() * 20)
        process.wake_up()
        await asyncio.sleep(self.random.random())
        if process.alive:
            for number in sorted(worker.plane.has):
                if self.broker.owners.get(number) is not worker.plane:
                    await self._in(worker, worker.plane.taken(number))
            process.lease = True

    # -- what happens --------------------------------------------------------------------------------------------------
    async def _something(self) -> None:
        random, roll = self.random, self.random.random()
        worker = random.choice(list(self.alive.values()))
        if roll < 0.45:
            self._produce(random.randint(1, self.burst))
        elif roll < 0.6:
            await self._hand_over()
        elif self.gentle:
            return
        elif roll < 0.64:
            self._repeat()
        elif roll < 0.70:
            self._park(worker)
        elif roll < 0.78:
            worker.process.doom = (random.choice(POINTS), random.randint(1, 4))
        elif roll < 0.83:
            worker.process.kill()
        elif roll < 0.90:
            if worker.process.lease and worker.process.awake:
                self._later(self._overtake(worker, asleep=random.random() < 0.5))
        elif roll < 0.95:
            worker.process.broken_until_s = self.loop.time() + random.random() * 5
        else:
            worker.full = True
            self.loop.call_later(random.random() * 3, self._room, worker)

    def _room(self, worker: DispatchWorker) -> None:
        worker.full = False

    def _produce(self, count: int) -> None:
        """Deliveries of facts received in one go: they are due at the same moment."""
        now_ms = self.clock.now_ms()
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

    # -- the end -------------------------------------------------------------------------------------------------------
    async def _heal(self) -> None:
        self.healed = True
        for worker in self.alive.values():
            worker.process.doom, worker.full, worker.process.broken_until_s = None, False, 0.0
        for _ in range(HEAL_S):
            await asyncio.sleep(1)
            if self.checks.problems or self._at_rest():
                break
        self._last_look()

    def _at_rest(self) -> bool:
        done = self.checks.delivered | self.checks.dead.keys()
        ends = all(
            self.broker.committed.get((topic, number), 0) == self.broker.end(topic, number)
            for topic in SOURCES
            for number in range(self.shards)
        )
        return done >= self.checks.made.keys() and ends and all(w.process.lease for w in self.alive.values())

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
    return world.checks.problems[0] if world.checks.problems else None


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
