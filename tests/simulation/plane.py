"""A plane of one process: what `hub_app.kafka.plane.ShardPlane` promises to its listener, over the simulated broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Any

from hub_app.domain.errors import StoreFailed
from hub_app.kafka.batch import Batch
from hub_app.kafka.openings import Found, judge, judge_starts
from hub_app.kafka.plane import ShardListener
from tests.simulation.process import Process

IDLE_S = 0.05
SUSPEND_S = 3.0


class _Shard:
    def __init__(self) -> None:
        self.is_open = self.held = False
        self.work: list[asyncio.Task[Any]] = []
        self.in_flight: dict[str, Batch] = {}
        self.position: dict[str, int] = {}
        self.floor: dict[str, int] = {}
        self.to_commit: dict[str, int] = {}
        self.failures = 0


class SimPlane:
    """`handle` is the agent; `store_failed` the listener's answer to an agent whose table refused."""

    def __init__(
        self,
        process: Process,
        name: str,
        topics: Collection[str],
        *,
        on_disk: Callable[[int], bool],
        batch_max: int,
        after_batch: bool,
    ) -> None:
        self._process, self._name, self._topics = process, name, list(topics)
        self._on_disk, self._batch_max, self._after_batch = on_disk, batch_max, after_batch
        self._shards: dict[int, _Shard] = {}
        self._calls = asyncio.Lock()
        self.listener: ShardListener
        self.handle: Callable[[Batch], Awaitable[None]]
        self.store_failed: Callable[[int, StoreFailed], None]

    # -- the group's doing ---------------------------------------------------------------------------------------------
    async def given(self, number: int) -> None:
        """The shard is this process's now. One that it had before, and did not know it had lost, is closed first."""
        await self.taken(number)
        self._process.broker.owners[number] = self
        shard = self._shards[number] = _Shard()
        shard.work = [self._process.spawn(self._open(number, shard))]

    async def step_back(self) -> None:
        """A rebalance begins: nothing more is delivered, the listener lets its claims and outcomes be written."""
        for shard in self._shards.values():
            shard.held = True
        await self._within(self._suspend())

    async def _suspend(self) -> None:
        async with self._calls:
            shards = self.open_shards
            if shards:
                await self.listener.suspended(shards)

    async def go_on(self) -> None:
        """The rebalance is over; what is still here came straight back."""
        async with self._calls:
            if self.open_shards:
                await self.listener.resumed(self.open_shards)
        for shard in self._shards.values():
            shard.held = False

    async def taken(self, number: int) -> None:
        """The shard is somebody else's now."""
        shard = self._shards.pop(number, None)
        if shard is not None:
            await self._retire(shard)
            async with self._calls:
                await self.listener.closed(number)

    @property
    def open_shards(self) -> frozenset[int]:
        return frozenset(number for number, shard in self._shards.items() if shard.is_open)

    def position(self, number: int, topic: str) -> int:
        """How far it has come with a shard that is open here."""
        return self._shards[number].position[topic]

    @property
    def has(self) -> frozenset[int]:
        return frozenset(self._shards)

    async def _within(self, call: Any) -> None:
        step = self._process.spawn(call)
        await asyncio.wait([step], timeout=SUSPEND_S)

    async def _retire(self, shard: _Shard) -> None:
        shard.is_open = False
        for batch in shard.in_flight.values():
            batch.live = False
        shard.in_flight.clear()
        work = [task for task in shard.work if task is not asyncio.current_task()]
        for task in work:
            task.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    # -- opening -------------------------------------------------------------------------------------------------------
    async def _open(self, number: int, shard: _Shard) -> None:
        while True:
            if shard.failures:
                await self._process.pause(0.2 * 2 ** min(shard.failures, 5))
            try:
                starts = await self._open_once(number)
            except Exception as error:
                shard.failures += 1
                if shard.failures > 30:
                    self._process.problem(f"{self._process.name}: {self._name}/{number} cannot be opened: {error!r}")
                    return
                async with self._calls:
                    await self.listener.closed(number)
            else:
                await self._install(number, shard, starts)
                return

    async def _open_once(self, number: int) -> Mapping[str, int]:
        broker = self._process.broker
        await self._process.pause(0.01)
        found = {t: Found(broker.committed.get((t, number)), 0, broker.end(t, number)) for t in self._topics}
        ruling = judge(found, group="g", shard=number, on_disk=self._on_disk(number))
        if ruling.stopped:
            raise RuntimeError(ruling.stopped)
        for cut in ruling.truncated:
            async with self._calls:
                await self.listener.truncated(number, cut.topic, cut.committed, cut.end)
        await self._process.pause(0.01)
        for topic, offset in ruling.commit.items():
            broker.commit(self, topic, number, offset)
        committed = {t: ruling.commit.get(t, f.committed or 0) for t, f in found.items()}
        starts = await self.listener.opened(
            number, committed, {t: f.begin for t, f in found.items()}, {t: f.end for t, f in found.items()}
        )
        wrong = judge_starts(found, starts, group="g", shard=number)
        if wrong:
            raise RuntimeError(wrong)
        return starts

    async def _install(self, number: int, shard: _Shard, starts: Mapping[str, int]) -> None:
        async with self._calls:
            if self._shards.get(number) is not shard:
                return
            shard.is_open, shard.position, shard.failures = True, dict(starts), 0
            shard.floor = {t: self._process.broker.committed.get((t, number), 0) for t in self._topics}
            if shard.held:
                await self.listener.suspended(frozenset({number}))
        shard.work = [self._process.spawn(self._pump(number, shard))]

    def reopen(self, number: int, reason: str) -> None:
        shard = self._shards.get(number)
        if shard is not None and shard.is_open:
            shard.is_open = False
            shard.failures += 1
            self._process.spawn(self._reopen(number, shard))

    async def _reopen(self, number: int, shard: _Shard) -> None:
        await self._retire(shard)
        shard.work = [self._process.spawn(self._again(number, shard))]

    async def _again(self, number: int, shard: _Shard) -> None:
        async with self._calls:
            await self.listener.closed(number)
        if self._shards.get(number) is shard:
            await self._open(number, shard)

    # -- reading and committing ----------------------------------------------------------------------------------------
    async def _pump(self, number: int, shard: _Shard) -> None:
        """One batch of a topic at a time, of several topics side by side."""
        process, broker = self._process, self._process.broker
        while True:
            await process.pause(IDLE_S * process.slowness)
            if shard.held:
                continue
            for topic in self._topics:
                at, end = shard.position[topic], broker.end(topic, number)
                if at > end:
                    self.reopen(number, f"offset {at} is not in the log")
                    return
                if at < end and topic not in shard.in_flight and process.random.random() < 0.7:
                    size = process.random.randint(1, self._batch_max)
                    self._deliver(number, shard, topic, broker.log(topic, number)[at : at + size])

    def _deliver(self, number: int, shard: _Shard, topic: str, records: list[Any]) -> None:
        batch = Batch(
            shard=number,
            topic=topic,
            partition=number,
            records=records,
            next_offset=records[-1].offset + 1,
            settled=lambda batch, error: self._settled(shard, batch, error),
        )
        shard.in_flight[topic] = batch
        self._process.spawn(self._agent(batch))

    async def _agent(self, batch: Batch) -> None:
        await self._process.pause(0.01)
        if not batch.live:
            return
        try:
            await self.handle(batch)
        except StoreFailed as error:
            batch.failed(error)
            self.store_failed(batch.shard, error)
        except Exception as error:
            if batch.live and not self._process.broken:
                self._process.problem(f"{self._process.name}: {batch!r} failed: {error!r}")
            batch.failed(error)

    def _settled(self, shard: _Shard, batch: Batch, error: BaseException | None) -> None:
        del shard.in_flight[batch.topic]
        if error is None:
            shard.position[batch.topic] = batch.next_offset
            if self._after_batch:
                self.commit({(batch.topic, batch.shard): batch.next_offset})

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Monotone within an opening, as the real one; takes effect later, if the shard is still this process's."""
        for (topic, number), offset in offsets.items():
            shard = self._shards.get(number)
            if shard is None or not shard.is_open or not (self._after_batch or offset > shard.floor[topic]):
                continue
            shard.floor[topic] = offset
            self._process.at("before commit")
            if topic not in shard.to_commit:
                self._process.later(0.02, partial(self._committed, number, shard, topic))
            shard.to_commit[topic] = offset
            self._process.at("after commit")

    def _committed(self, number: int, shard: _Shard, topic: str) -> None:
        offset = shard.to_commit.pop(topic)
        if self._shards.get(number) is shard:
            self._process.broker.commit(self, topic, number, offset)
