"""One worker process of the simulation: its tasks, its connection to Kafka, and all the ways in which it ends.

A process can be killed between any two steps, or exactly before or after a write that has a name; it can sleep (all it
does stands still, but what it sent is on its way), and it can be cut off from its group without knowing.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from random import Random
from typing import Any

from hub_app.kafka.outbox import Flushed, Outbox, Target
from tests.simulation.broker import Broker, Rec, Refusal
from tests.simulation.clockwork import SimClock

_CURRENT: ContextVar[Process | None] = ContextVar("process", default=None)


class Killed(BaseException):
    """The process ends here, in the midst of what it is doing."""


def task_factory(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **more: Any) -> asyncio.Task[Any]:
    """Tasks belong to the process that makes them, and die with it."""
    task = asyncio.Task(work, loop=loop, **more)
    process = _CURRENT.get()
    if process is not None:
        process.adopt(task)
    return task


class Process:
    def __init__(self, name: str, broker: Broker, random: Random, problem: Callable[[str], None], off_ms: int) -> None:
        self.name, self.broker, self.random, self.problem = name, broker, random, problem
        self.loop = asyncio.get_running_loop()
        self.clock = SimClock(self.loop, off_ms)
        self.alive, self.lease = True, True
        self.broken_until_s = 0.0  # the broker does not answer this process well until then
        self.doom: tuple[str, int] | None = None  # die at the n-th time this point is reached
        self.died_at = ""
        self.slowness = random.choice((1, 1, 1, 1, 40))
        """How long it takes to come round to reading."""
        self.on_death: Callable[[], None] = lambda: None
        self._awake = asyncio.Event()
        self._awake.set()
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._on_the_way: dict[asyncio.TimerHandle, None] = {}

    # -- life and death ------------------------------------------------------------------------------------------------
    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, Killed):
            self.problem(f"{self.name}: a task ended with {error!r}")

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Runs `work` as a part of this process."""
        before = _CURRENT.set(self)
        try:
            return self.loop.create_task(work)
        finally:
            _CURRENT.reset(before)

    def at(self, point: str) -> None:
        """A write with a name begins or has ended."""
        if self.doom is not None and self.doom[0] == point:
            left = self.doom[1] - 1
            self.doom = (point, left)
            if left <= 0:
                self.died_at = point
                self.kill()
                raise Killed(f"{self.name} {point}")

    def kill(self) -> None:
        """Half of what was sent but has not arrived is lost with the process."""
        if not self.alive:
            return
        self.alive = self.lease = False
        for task in list(self._tasks):
            task.cancel()
        for handle in list(self._on_the_way):
            if self.random.random() < 0.5:
                handle.cancel()
        self._on_the_way.clear()
        self.on_death()

    def sleep(self) -> None:
        self._awake.clear()

    def wake_up(self) -> None:
        self._awake.set()

    @property
    def awake(self) -> bool:
        return self._awake.is_set()

    async def pause(self, longest_s: float = 0.02) -> None:
        """Some time passes; what a sleeping process does goes on when it wakes."""
        await asyncio.sleep(self.random.random() * longest_s)
        await self._awake.wait()

    # -- to and from Kafka ---------------------------------------------------------------------------------------------
    def later(self, longest_s: float, act: Callable[[], None]) -> None:
        """Something this process sent takes effect after a while, perhaps when the process is gone."""

        def landed() -> None:
            self._on_the_way.pop(handle, None)
            act()

        handle = self.loop.call_later(self.random.random() * longest_s, landed)
        self._on_the_way[handle] = None

    @property
    def broken(self) -> bool:
        return self.loop.time() < self.broken_until_s


class _Builder:
    """A Kafka batch being filled: one is enough for every record."""

    size = 100

    def append(self, **_record: Any) -> _Builder:
        return self


class SimProducer:
    """`hub_app.kafka.producer.HubProducer`: each partition takes its records by itself, at a time of its own."""

    message_bytes_max = 5 << 19

    def __init__(self, process: Process) -> None:
        self._process = process

    def outbox(self) -> Outbox:
        return Outbox(self)

    def create_batch(self) -> Any:
        return _Builder()

    async def send_until(self, targets: Sequence[Target], deadline_ms: int) -> Flushed:
        raise NotImplementedError

    async def send(self, targets: Sequence[Target]) -> Flushed:
        process = self._process
        await process.pause(0.002)
        answers: list[asyncio.Future[list[int | None]]] = []
        for target in targets:
            answers.append(answer := process.loop.create_future())
            refused = process.broken and process.random.random() < 0.5
            process.later(0.01, partial(_land, process, target, answer, refused=refused))
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        await process.pause(0.01)
        offsets: dict[tuple[str, int], list[int | None]] = {}
        for target, outcome in zip(targets, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                raise outcome
            offsets[target.topic, target.partition] = outcome
        return Flushed(sum(map(len, offsets.values())), (), offsets)


def _land(process: Process, target: Target, answer: asyncio.Future[list[int | None]], *, refused: bool) -> None:
    offsets: list[int | None] = []
    if not refused:
        for part in target.parts:
            for key, value, headers in part.records:
                offsets.append(process.broker.append(target.topic, target.partition, key, value, headers))
    if answer.done():
        return
    # Of an answer that is lost nobody knows what came before it.
    if refused or (process.broken and process.random.random() < 0.3):
        answer.set_exception(Refusal(f"{target.topic}/{target.partition}"))
    else:
        answer.set_result(offsets if process.random.random() < 0.9 else [None] * len(offsets))


class SimReader:
    """`hub_app.kafka.reader.RangeReader`."""

    def __init__(self, process: Process, read: Callable[[Sequence[Rec]], None] = lambda records: None) -> None:
        self._process, self._read = process, read

    async def _ask(self) -> Broker:
        await self._process.pause(0.005)
        if self._process.broken and self._process.random.random() < 0.5:
            raise Refusal("reader")
        return self._process.broker

    async def read_range(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Sequence[Rec]]:
        at = start
        while at < stop:
            log = (await self._ask()).log(topic, partition)
            some = log[at : min(stop, at + self._process.random.randint(1, 8))]
            if not some:
                return  # it ends earlier than it did
            self._read(some)
            yield some
            at = some[-1].offset + 1

    async def topic_ids(self, topics: Sequence[str]) -> Mapping[str, bytes]:
        return {}  # as with brokers that know of none

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        log = (await self._ask()).log(topic, partition)
        return next((record.offset for record in log if record.timestamp >= time_ms), None)

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        broker = await self._ask()
        return {partition: broker.end(topic, partition) for partition in partitions}
