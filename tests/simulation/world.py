"""What every random world shares: workers on machines, shards that go from hand to hand, accidents, and a heal."""

from __future__ import annotations

import asyncio
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from random import Random
from typing import Any, Generic, Protocol, TypeVar

from tests.fakes.store import Disk
from tests.simulation.broker import Broker
from tests.simulation.clockwork import SimClock
from tests.simulation.plane import SimPlane
from tests.simulation.process import Killed, Process, task_factory

HEAL_S = 400


class Machine:
    """Where workers run one after another: its disk stays when they die. `folder` is for what are real files."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder, self.disk = name, folder / name, Disk()
        self.folder.mkdir()

    def lose_disk(self) -> None:
        self.disk = Disk()
        shutil.rmtree(self.folder)
        self.folder.mkdir()


class Worker(Protocol):
    process: Process
    machine: Machine
    plane: SimPlane
    full: bool
    """Its disk has no room."""

    def kill(self) -> None:
        """Called when the process has died: nothing of it moves any more."""


W = TypeVar("W", bound=Worker)


class World(ABC, Generic[W]):
    """`self.points`: the writes at which a worker may be made to die."""

    points: list[str]

    def __init__(self, seed: int, folder: Path) -> None:
        self.random, self.folder = Random(seed), folder
        self.shards = self.random.choice((1, 1, 2))
        self.batch_max = self.random.choice((1, 5, 50))
        self.gentle = self.random.random() < 0.25
        self.problems: list[str] = []
        self.healed = False
        self.count = 0
        self.died_at: list[str] = []

    # -- what a world says of itself -----------------------------------------------------------------------------------
    @abstractmethod
    def _new_worker(self, process: Process, machine: Machine) -> W: ...

    @abstractmethod
    def _produce(self) -> None: ...

    @abstractmethod
    async def _something_else(self, worker: W) -> None: ...

    @abstractmethod
    def _look(self) -> None:
        """Checks at any moment."""

    @abstractmethod
    def _at_rest(self) -> bool:
        """Whether everything that had to happen has."""

    @abstractmethod
    def _last_look(self) -> None:
        """Checks when nothing moves any more."""

    def problem(self, text: str) -> None:
        self.problems.append(text)

    # -- the story -----------------------------------------------------------------------------------------------------
    async def story(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.loop.set_task_factory(task_factory)
        self.loop.set_exception_handler(self._unhandled)
        self.clock = SimClock(self.loop)
        self.broker = Broker(self.clock.now_ms)
        self._begin()
        self.alive: dict[str, W] = {}
        for number in range(3):
            self._start(Machine(f"m{number}", self.folder))
        for number in range(self.shards):
            await self._give(number)
        for _ in range(self.random.randint(10, 60)):
            await asyncio.sleep(self.random.choice((0.02, 0.3, 1.0, 3.0)) * self.random.random())
            await self._something()
            self._look()
            if self.problems:
                return
        await self._heal()

    def _begin(self) -> None:
        """The broker is there, nobody else is."""

    async def _something(self) -> None:
        random, roll = self.random, self.random.random()
        worker = random.choice(list(self.alive.values()))
        if roll < 0.45:
            self._produce()
        elif roll < 0.6:
            await self._hand_over()
        elif self.gentle:
            return
        elif roll < 0.70:
            await self._something_else(worker)
        elif roll < 0.78:
            worker.process.doom = (random.choice(self.points), random.randint(1, 4))
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

    def _room(self, worker: W) -> None:
        worker.full = False

    async def _heal(self) -> None:
        self.healed = True
        for worker in self.alive.values():
            worker.process.doom, worker.full, worker.process.broken_until_s = None, False, 0.0
            worker.process.slowness = 1
        for _ in range(HEAL_S):
            await asyncio.sleep(1)
            if self.problems or (self._at_rest() and all(w.process.lease for w in self.alive.values())):
                break
        self._last_look()

    # -- workers come and go -------------------------------------------------------------------------------------------
    def _start(self, machine: Machine) -> None:
        self.count += 1
        off_ms = self.random.randint(-50, 50)
        process = Process(f"{machine.name}#{self.count}", self.broker, self.random, self.problem, off_ms)
        worker = self.alive[machine.name] = self._new_worker(process, machine)
        process.on_death = lambda: self._died(worker)

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Killed):
            self.problem(f"unhandled: {context['message']} {error!r}")

    def _died(self, worker: W) -> None:
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

    async def _inherit(self, lost: frozenset[int], dead: W) -> None:
        await asyncio.sleep(self.random.choice((0.1, 10.0)) * self.random.random())
        for number in sorted(lost):
            if self.broker.owners.get(number) is dead.plane:
                await self._give(number)

    def _later(self, work: Any) -> None:
        task = self.loop.create_task(work)
        task.add_done_callback(self._told)

    def _told(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.problem(f"the world failed: {task.exception()!r}")

    # -- shards go from hand to hand -----------------------------------------------------------------------------------
    def _members(self) -> list[W]:
        """Those that the group knows, and that answer it."""
        return [worker for worker in self.alive.values() if worker.process.lease and worker.process.awake]

    async def _give(self, number: int, worker: W | None = None) -> None:
        while worker is None or not worker.process.alive:
            members = self._members()
            worker = self.random.choice(members) if members else None
            if worker is None:
                await asyncio.sleep(0.5)
        await self._in(worker, worker.plane.given(number))

    async def _in(self, worker: W, work: Any) -> None:
        """Runs a part of the world's will inside a process, for as long as that lives."""
        await asyncio.wait([worker.process.spawn(work)])

    def _owner(self, number: int) -> W | None:
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

    async def _overtake(self, worker: W, asleep: bool) -> None:
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
