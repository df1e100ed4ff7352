"""A member of a plane's consumer group: shards come, are opened, deliver batches, and go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, Literal

from aiokafka import AIOKafkaConsumer, TopicPartition

from hub_app.kafka.assignor import ShardAssignor
from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.fencing import taken_over
from hub_app.kafka.flow import Flow
from hub_app.kafka.forever import describe
from hub_app.kafka.limits import Limits
from hub_app.kafka.listener import ShardListener
from hub_app.kafka.member import STEP_TIMEOUT_S, GroupMember
from hub_app.kafka.openings import Found, judge, judge_starts
from hub_app.kafka.partitions import Deliver
from hub_app.kafka.standing import Standing
from hub_app.kafka.topicwatch import TopicWatch
from hub_app.ports import Clock, Entropy

__all__ = ["Deliver", "Limits", "ShardListener", "ShardPlane"]

log = logging.getLogger(__name__)

OFFSETS_TIMEOUT_S = 30.0
CANCEL_AGAIN_S = 0.1
RAN_WELL_MS = 60_000


class Stopped(Exception):
    """The shard may not be opened; people have to act. Looked at again, slowly."""


class Shard:
    """One shard that is here: its topics, who opens it, what holds it back."""

    __slots__ = ("doubtful", "failures", "holds", "is_open", "opened_ms", "opening", "spoiled", "topics")

    def __init__(self, topics: frozenset[str]) -> None:
        self.topics = topics
        self.is_open = False
        self.opening: asyncio.Task[None] | None = None
        self.opened_ms = 0
        self.holds: set[str] = set()
        self.spoiled = ""
        """Why the opening under way cannot stand: it was to be opened again before it was open."""
        self.failures = 0
        self.doubtful = False
        """Whether somebody else may have had it since it was assigned here."""


class ShardPlane(GroupMember):
    """One group member over `topics` (plus every existing topic that `also` accepts), N partitions each."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        name: str,
        group: str,
        topics: Collection[str],
        shards: int,
        url: str,
        listener: ShardListener,
        deliver: Deliver,
        commit: Literal["after_batch", "manual"],
        shards_on_disk: Callable[[], Collection[int]],
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        also: Callable[[str], bool] | None = None,
        instance_id: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """Partitions numbered `shards` or higher (a topic with too many) are left unread and shown in readiness."""
        self._boot = entropy.token(8).hex()
        assignor = ShardAssignor(url=url, shards_on_disk=shards_on_disk, instance=instance_id or "", boot=self._boot)
        super().__init__(
            config,
            name=name,
            group=group,
            topics=TopicWatch(topics, also),
            deliver=deliver,
            commit_after_batch=commit == "after_batch",
            standing=standing,
            clock=clock,
            entropy=entropy,
            limits=limits or Limits(),
            instance_id=instance_id,
            isolation_level="read_uncommitted",
            from_earliest=False,
            assignor=assignor,
        )
        self._assignment = assignor
        self._shards_on_disk = shards_on_disk
        self._listener = listener
        self._count = shards
        self._shards: dict[int, Shard] = {}
        self._calls = asyncio.Lock()
        self._steps: set[asyncio.Task[None]] = set()
        self._fenced = asyncio.Event()

    # -- what others ask and tell -----------------------------------------------------------------------------------

    @property
    def owners(self) -> Mapping[int, str]:
        """shard -> URL for the whole group, as of the last assignment."""
        return self._assignment.owners

    @property
    def open_shards(self) -> frozenset[int]:
        """Shards opened here (also while a rebalance holds them)."""
        return frozenset(number for number, shard in self._shards.items() if shard.is_open)

    @property
    def fenced(self) -> bool:
        """Another process took this member's static id: this one has closed its shards and does not join again."""
        return self._fenced.is_set()

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """For `commit="manual"`: low-water marks by (topic, partition). Returns at once; commits are coalesced and
        monotone; those of shards that are not open here are dropped."""
        for (topic, number), offset in offsets.items():
            shard = self._shards.get(number)
            if shard is not None and shard.is_open:
                self._committer.raise_to(TopicPartition(topic, number), offset)

    def pause(self, shard: int, reason: str) -> None:
        """Back-pressure: no further batches of this shard until every reason given was resumed. Forgotten when the
        shard is closed."""
        here = self._shards.get(shard)
        if here is not None and here.is_open:
            here.holds.add(reason)
            for flow in self._flows_of(shard):
                self._partitions.hold_back(flow, f"shard:{reason}")

    def resume(self, shard: int, reason: str) -> None:
        """Takes one reason away."""
        here = self._shards.get(shard)
        if here is not None and reason in here.holds:
            here.holds.discard(reason)
            for flow in self._flows_of(shard):
                self._partitions.ungate(flow, f"shard:{reason}")

    def extend(self, topics: Collection[str]) -> None:
        """Adds topics to the subscription: a rebalance follows, and the shards are opened again with them."""
        if self._watch.add(topics):
            self._topics_changed.set()

    def reopen(self, shard: int, reason: str) -> None:
        """Closes the shard and opens it again without a rebalance (damaged folder, full disk, log re-created). Soon,
        and slower each time unless it had run well for a minute. While it is being opened: that opening fails."""
        here = self._shards.get(shard)
        if here is not None and here.opening is not None and not here.is_open:
            here.spoiled = here.spoiled or reason
        elif here is not None and here.is_open:
            here.is_open = False
            ran_well = self._clock.monotonic_ms() - here.opened_ms > RAN_WELL_MS
            here.failures = 1 if ran_well else here.failures + 1
            self._standing.report(self._shard_name(shard), f"is opened again: {reason}")
            self._partitions.retire(self._tps(shard, here))
            self._step(self._reopen(shard, here))

    # -- rebalances -------------------------------------------------------------------------------------------------

    async def _suspend(self) -> None:
        step = self._step(self._call_suspended())
        await asyncio.wait([step], timeout=STEP_TIMEOUT_S)

    async def _call_suspended(self) -> None:
        async with self._calls:
            shards = self.open_shards
            if shards:
                await self._guarded("suspended", self._listener.suspended(shards))

    def _disown(self) -> None:
        for shard in self._shards.values():
            shard.doubtful = True

    def _take_assignment(self, tps: frozenset[TopicPartition]) -> None:
        topics: dict[int, set[str]] = {}
        for tp in tps:
            if tp.partition < self._count:
                topics.setdefault(tp.partition, set()).add(tp.topic)
        now = {number: frozenset(names) for number, names in topics.items()}
        kept = {n for n, shard in self._shards.items() if now.get(n) == shard.topics and not shard.doubtful}
        gone = {n: shard for n, shard in self._shards.items() if n not in kept}
        new = {n: Shard(names) for n, names in now.items() if n not in kept}
        assert self._partitions.consumer is not None
        for tp in tps:
            if tp not in self._partitions.flows or tp.partition in gone:
                self._park(self._partitions.consumer, tp)
        for number, shard in gone.items():
            self._partitions.retire(self._tps(number, shard))
            del self._shards[number]
        self._shards.update(new)
        excess = sorted({tp.topic for tp in tps if tp.partition >= self._count})
        if excess:
            self._standing.report(f"{self.name}/topics", f"more than {self._count} partitions: {', '.join(excess)}")
        self._step(self._settle(self._rebalances, kept, gone, new))

    def _park(self, consumer: AIOKafkaConsumer, tp: TopicPartition) -> None:
        """Neither fetched nor positioned by aiokafka until the shard is open."""
        consumer.seek(tp, 0)
        consumer.pause(tp)

    async def _settle(
        self, rebalance: int, kept: Collection[int], gone: Mapping[int, Shard], new: Mapping[int, Shard]
    ) -> None:
        """What an assignment means for the listener: kept shards first, they have waited."""
        async with self._calls:
            resumed = self.open_shards.intersection(kept)
            if resumed:
                await self._guarded("resumed", self._listener.resumed(resumed))
            if rebalance == self._rebalances:  # else the next one has begun meanwhile
                self._go_on()
            for number, shard in sorted(gone.items()):
                await self._close(number, shard)
        for number, shard in sorted(new.items()):
            self._begin(number, shard)

    async def _close(self, number: int, shard: Shard) -> None:
        shard.is_open = False
        while shard.opening is not None and not shard.opening.done():
            # Again and again: `wait_for` loses one that comes as its work ends (3.11), and then waits for our lock.
            shard.opening.cancel()
            await asyncio.wait([shard.opening], timeout=CANCEL_AGAIN_S)
        shard.opening = None
        self._committer.forget(self._tps(number, shard))
        await self._guarded("closed", self._listener.closed(number))
        if number not in self._shards:
            self._standing.clear(self._shard_name(number))

    async def _close_all(self) -> None:
        step = self._step(self._call_closed())
        await asyncio.wait([step], timeout=2 * STEP_TIMEOUT_S)

    async def _call_closed(self) -> None:
        async with self._calls:
            shards, self._shards = self._shards, {}
            for number, shard in sorted(shards.items()):
                self._partitions.retire(self._tps(number, shard))
                await self._close(number, shard)

    # -- openings ---------------------------------------------------------------------------------------------------

    def _begin(self, number: int, shard: Shard) -> None:
        if self._shards.get(number) is shard and shard.opening is None and not self._stopping:
            shard.opening = asyncio.create_task(self._open(number, shard), name=f"{self.name}/{number}/opening")

    async def _reopen(self, number: int, shard: Shard) -> None:
        async with self._calls:
            await self._close(number, shard)
        self._begin(number, shard)

    async def _open(self, number: int, shard: Shard) -> None:
        """Tries until it is open. Every failure is followed by `closed`, so that the next try starts from nothing."""
        while True:
            if shard.failures:
                slow = delay_ms(shard.failures, self._entropy.draw(), first_ms=200, cap_ms=self._limits.retry_cap_ms)
                await asyncio.sleep(slow / 1000)
            else:
                self._standing.report(self._shard_name(number), "is being opened")
            shard.spoiled = ""
            try:
                found, starts = await self._open_once(number, shard)
                await self._install(number, shard, found, starts)
            except Exception as exc:
                shard.failures += 1
                why = (
                    str(exc) if isinstance(exc, Stopped) else f"opening failed {shard.failures} times: {describe(exc)}"
                )
                if shard.failures == 1:
                    log.warning("%s: %s", self._shard_name(number), why, exc_info=not isinstance(exc, Stopped))
                self._standing.report(self._shard_name(number), why)
                async with self._calls:
                    await self._guarded("closed", self._listener.closed(number))
            else:
                return

    async def _open_once(self, number: int, shard: Shard) -> tuple[Mapping[str, Found], Mapping[str, int]]:
        consumer = self._partitions.consumer
        if consumer is None:
            raise Stopped("waits for the group")
        found = await asyncio.wait_for(self._look(consumer, number, shard), OFFSETS_TIMEOUT_S)
        ruling = judge(found, group=self.group, shard=number, on_disk=number in self._shards_on_disk())
        if ruling.stopped:
            raise Stopped(ruling.stopped)
        for cut in ruling.truncated:
            log.warning("%s: another log: %s", self._shard_name(number), cut)
            async with self._calls:
                await self._listener.truncated(number, cut.topic, cut.committed, cut.end)
        if ruling.commit:
            lowered = {TopicPartition(t, number): offset for t, offset in ruling.commit.items()}
            await asyncio.wait_for(consumer.commit(lowered), OFFSETS_TIMEOUT_S)
            found = {t: f._replace(committed=ruling.commit.get(t, f.committed)) for t, f in found.items()}
        starts = await self._listener.opened(
            number,
            {t: f.committed for t, f in found.items() if f.committed is not None},
            {t: f.begin for t, f in found.items()},
            {t: f.end for t, f in found.items()},
        )
        wrong = judge_starts(found, starts, group=self.group, shard=number)
        if wrong:
            raise Stopped(wrong)
        return found, starts

    async def _look(self, consumer: AIOKafkaConsumer, number: int, shard: Shard) -> Mapping[str, Found]:
        tps = sorted(self._tps(number, shard))
        begins = await consumer.beginning_offsets(tps)
        ends = await consumer.end_offsets(tps)
        committed = await asyncio.gather(*(consumer.committed(tp) for tp in tps))
        return {tp.topic: Found(c, begins[tp], ends[tp]) for tp, c in zip(tps, committed, strict=True)}

    async def _install(self, number: int, shard: Shard, found: Mapping[str, Found], starts: Mapping[str, int]) -> None:
        """The shard is open: its partitions are read from `starts`, unless a rebalance holds everything just now."""
        async with self._calls:
            if self._shards.get(number) is not shard:
                return  # it left while this waited: whoever took it away closes it
            if shard.spoiled:
                raise Stopped(f"is opened again: {shard.spoiled}")
            shard.is_open = True
            shard.opening = None
            shard.opened_ms = self._clock.monotonic_ms()
            shard.holds.clear()
            if self._partitions.suspended:
                await self._guarded("suspended", self._listener.suspended(frozenset({number})))
            for topic, place in found.items():
                tp = TopicPartition(topic, number)
                self._committer.opened(tp, place.committed or 0)
                self._partitions.add(tp, number, starts[topic])
                self._partitions.reposition(tp)
            self._standing.clear(self._shard_name(number))

    def _out_of_range(self, flow: Flow) -> None:
        """Re-created, or deleted unread: the opening finds out which."""
        self.reopen(flow.shard, f"offset {flow.fetched} is not in the log of {flow.tp.topic}")

    # -- static members ---------------------------------------------------------------------------------------------

    async def _may_join(self) -> bool:
        """Disowned under a valid lease: either the broker lost its memory, or another process has our id."""
        if self._instance_id is None:
            return True
        if not self.fenced and await taken_over(self._config, self.group, self._instance_id, boot=self._boot):
            self._fenced.set()
            self._standing.report(
                f"{self.name}/instance",
                f"another process runs as INSTANCE_ID {self._instance_id}: this one has closed its shards",
            )
            self._step(self._call_closed())
            self._ended.set()
        return not self.fenced

    # -- small things -----------------------------------------------------------------------------------------------

    def _step(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._steps.add(task)
        task.add_done_callback(self._steps.discard)
        return task

    async def _guarded(self, what: str, call: Awaitable[None]) -> None:
        """A listener that raises must not stop the plane; `opened` is the call that may fail."""
        try:
            await call
        except Exception:
            log.exception("%s: the listener failed in %s", self.name, what)

    def _tps(self, number: int, shard: Shard) -> list[TopicPartition]:
        return [TopicPartition(topic, number) for topic in shard.topics]

    def _flows_of(self, shard: int) -> list[Flow]:
        return [flow for flow in self._partitions.flows.values() if flow.shard == shard]

    def _shard_name(self, number: int) -> str:
        return f"{self.name}/{number}"
