"""One member of a consumer group: sessions for ever, what both kinds of plane are made of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import suppress
from typing import Any

import mode
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka import errors as err
from aiokafka.abc import ConsumerRebalanceListener

from hub_app.kafka import lenient, pace
from hub_app.kafka.client import Isolation, KafkaConfig, make_consumer
from hub_app.kafka.closing import CLOSE_TIMEOUT_S, close_consumer, ended, to_the_end
from hub_app.kafka.commits import Committer
from hub_app.kafka.coverage import Coverage, Nudged
from hub_app.kafka.flow import Flow
from hub_app.kafka.forever import describe, run_forever
from hub_app.kafka.lease import Lease
from hub_app.kafka.limits import Limits
from hub_app.kafka.partitions import Deliver, Partitions
from hub_app.kafka.standing import Standing
from hub_app.kafka.topicwatch import TopicWatch
from hub_app.ports import Clock, Entropy

log = logging.getLogger(__name__)

POLL_MS = 500
NO_GENERATION = -2
POLL_SOME_MS = 20
TAKE_RECORDS_MAX = 2_000
"""How many records are decoded at a time: what a fetch brought beyond it stays compressed until there is room. All of
it is taken before the next wait, so that no partition starves."""
STEP_TIMEOUT_S = 3.0
"""How long a rebalance waits for each of: the listener, batches in flight, commits."""
CONTROL_RECORDS_EVERY_S = 5
# What the fetch of one partition can raise through getmany; anything else of KafkaError is the group's business.
FETCH_ERRORS = (
    err.OffsetOutOfRangeError,
    err.NoOffsetForPartitionError,
    err.RecordTooLargeError,
    err.TopicAuthorizationFailedError,
    err.CorruptRecordException,
)


class OutOfContact(Exception):
    """The group has not answered for long."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """aiokafka's listener, as two functions."""

    def __init__(self, revoked: Callable[[], Awaitable[None]], assigned: Callable[[Any], None]) -> None:
        self._revoked = revoked
        self._assigned = assigned

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """aiokafka calls this before every join; the group waits for it, heartbeats go on."""
        await self._revoked()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """aiokafka calls this before heartbeats start again."""
        self._assigned(assigned)


class GroupMember(mode.Service):  # type: ignore[misc]
    """Consumer sessions for ever; in each: fetch, deliver, commit, rewind what failed.

    Subclasses say what an assignment means: `_suspend`, `_disown`, `_take_assignment`, `_close_all`."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        name: str,
        group: str,
        topics: TopicWatch,
        deliver: Deliver,
        commit_after_batch: bool,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        limits: Limits,
        instance_id: str | None,
        isolation_level: Isolation,
        from_earliest: bool,
        assignor: Nudged,
    ) -> None:
        super().__init__()
        self.name = name
        self.group = group
        self.lease = Lease(clock, session_timeout_ms=limits.session_timeout_ms)
        self._config = config
        self._watch = topics
        self._standing = standing
        self._entropy = entropy
        self._limits = limits
        self._instance_id = instance_id or None
        self._isolation: Isolation = isolation_level
        self._from_earliest = from_earliest
        self._assignor = assignor
        self._commit_after_batch = commit_after_batch
        self._committer = Committer(name, standing=standing)
        self._coverage = Coverage(name, group, assignor, standing=standing, clock=clock)
        self._partitions = Partitions(
            name,
            deliver=deliver,
            done=self._committer.add if commit_after_batch else _nothing,
            standing=standing,
            clock=clock,
            entropy=entropy,
            limits=limits,
        )
        self._topics_changed = asyncio.Event()
        self._ended = asyncio.Event()
        self._rebalances = 0
        self._generation = NO_GENERATION
        self._clock, self._in_contact_ms = clock, 0
        self._stopping = False
        self._running: asyncio.Future[None] | None = None

    # -- service ----------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Joins in the background; readiness tells how far it is."""
        self._standing.report(self.name, "has not joined its group yet")
        self._running = self.add_future(self._sessions())

    async def on_stop(self) -> None:
        """Suspends, waits for batches in flight, commits, closes, leaves the group; each step within a bound."""
        self._stopping = True
        await self._step_back()
        await self._close_all()
        await self._committer.flush(STEP_TIMEOUT_S)
        if self._running is not None:
            await asyncio.wait([asyncio.ensure_future(ended(self._running))], timeout=3 * CLOSE_TIMEOUT_S)
        self._standing.clear_under(self.name)

    async def _sessions(self) -> None:
        async def step() -> None:
            await self._session()
            if self._ended.is_set():  # fenced: it never joins again
                await asyncio.Event().wait()

        await run_forever(self.name, step, standing=self._standing, entropy=self._entropy, cap_ms=5_000)

    async def _session(self) -> None:
        """One consumer's life. It ends by an exception, or by returning when this member may not go on."""
        limits = self._limits
        consumer = make_consumer(
            self._config,
            group_id=self.group,
            group_instance_id=self._instance_id,
            assignor=self._assignor,
            isolation_level=self._isolation,
            auto_offset_reset="earliest" if self._from_earliest else "none",
            fetch_max_wait_ms=limits.fetch_wait_ms,
            max_partition_fetch_bytes=limits.partition_fetch_bytes_max,
            fetch_max_bytes=limits.fetch_bytes_max,
            session_timeout_ms=limits.session_timeout_ms,
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            await consumer.start()
            pace.calm(consumer)
            pace.never_hold_back(consumer)
            self.lease.attach(consumer, may_join=self._may_join)
            self._partitions.consumer = consumer
            work = [self._pump(consumer), self._partitions.courier(), self._committer.run(consumer)]
            work += [self._subscribe(consumer), self._look_after(consumer), self._until_ended()]
            if self._instance_id is not None:
                work.append(self._coverage.run(consumer))
            tasks = [asyncio.create_task(w) for w in work]
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await to_the_end(self._end_session(consumer, tasks))

    async def _end_session(self, consumer: AIOKafkaConsumer, tasks: list[asyncio.Task[None]]) -> None:
        await ended(*tasks)
        self._committer.left()
        if tasks and not self._stopping:
            await self._step_back()
        self._partitions.consumer = None
        await close_consumer(consumer)
        self.lease.end()

    async def _until_ended(self) -> None:
        await self._ended.wait()

    async def _may_join(self) -> bool:
        """Asked when this member was disowned under a valid lease."""
        return True

    # -- topics and fetching ----------------------------------------------------------------------------------------

    async def _subscribe(self, consumer: AIOKafkaConsumer) -> None:
        """Subscribes, and again whenever the topics change."""
        subscribed: frozenset[str] = frozenset()
        wait_s = self._config.metadata_max_age_ms / 1000 if self._watch.looks else None
        while True:
            self._topics_changed.clear()
            if self._watch.looks:
                try:
                    self._watch.saw(await consumer.topics())
                except err.KafkaError as exc:
                    log.warning("%s: cannot list topics: %s", self.name, describe(exc))
            if self._watch.topics != subscribed:
                await self._committer.flush(STEP_TIMEOUT_S)  # a new subscription forgets what is assigned
                subscribed = self._watch.topics
                if subscribed:
                    consumer.subscribe(list(subscribed), listener=Rebalances(self._step_back, self._assigned))
                else:
                    consumer.unsubscribe()
            if not subscribed:
                self._standing.report(self.name, self._nothing_to_read(), blocks=False)
            try:
                await asyncio.wait_for(self._topics_changed.wait(), wait_s)
            except TimeoutError:
                continue

    def _nothing_to_read(self) -> str:
        return "there is no topic to read"

    async def _pump(self, consumer: AIOKafkaConsumer) -> None:
        partitions = self._partitions
        while True:
            await partitions.room.wait()
            wanted = partitions.wanted()
            if wanted is not None and not wanted:
                with suppress(TimeoutError):
                    await asyncio.wait_for(partitions.wanted_more.wait(), POLL_MS / 1000)
                continue
            # A partition that has room again is asked for with the next poll, and has half a buffer until then.
            timeout_ms = POLL_MS if wanted is None else POLL_SOME_MS
            try:
                fetched = await consumer.getmany(*wanted or (), timeout_ms=timeout_ms, max_records=TAKE_RECORDS_MAX)
            except Exception as exc:
                if isinstance(exc, err.KafkaError) and not isinstance(exc, FETCH_ERRORS):
                    raise
                await self._fetch_failed(consumer, exc, wanted)
            else:
                quiet = not fetched and timeout_ms == POLL_MS and partitions.all_read()
                pace.wait(consumer, self._limits.quiet_wait_ms if quiet else self._limits.fetch_wait_ms)
                if fetched:
                    await partitions.take(fetched)

    async def _fetch_failed(
        self, consumer: AIOKafkaConsumer, exc: Exception, wanted: Collection[TopicPartition] | None
    ) -> None:
        """aiokafka drops with the error what it had decoded of other partitions: read on from what has arrived here.
        `wanted`: the partitions it was asked for (None: all)."""
        flows = self._partitions.flows
        culprits: list[TopicPartition] = []
        if isinstance(exc, err.OffsetOutOfRangeError):
            culprits = list(exc.args[0])
        elif isinstance(exc, err.TopicAuthorizationFailedError):
            culprits = [tp for tp in flows if tp.topic in str(exc)]
        elif not isinstance(exc, err.NoOffsetForPartitionError):
            # It stopped at the first result it still holds: everything before that was drained and dropped, and what it
            # was not asked for was passed over.
            culprits = [tp for tp in consumer._fetcher._records if wanted is None or tp in wanted][:1]
        for tp in list(flows):
            self._partitions.reposition(tp)
        if isinstance(exc, UnicodeDecodeError) and culprits and culprits[0] in flows:
            await self._read_around(consumer, flows[culprits[0]])
            return
        log.warning("%s: fetching failed: %s %s", self.name, describe(exc), culprits)
        for tp in culprits:
            if tp in flows and isinstance(exc, err.OffsetOutOfRangeError):
                self._out_of_range(flows[tp])
            elif tp in flows:
                self._partitions.fail(flows[tp], f"unreadable at or after {flows[tp].fetched}: {describe(exc)}")
        if not culprits:
            await asyncio.sleep(0.1)

    async def _read_around(self, consumer: AIOKafkaConsumer, flow: Flow) -> None:
        """A header's name is not UTF-8: one fetch is read another way (`hub_app.kafka.lenient`)."""
        start = flow.fetched
        assert start is not None
        try:
            records, next_offset = await lenient.fetch(
                consumer, flow.tp, start, isolation=self._isolation, bytes_max=self._limits.partition_fetch_bytes_max
            )
        except Exception as exc:
            if self._partitions.flows.get(flow.tp) is flow:
                self._partitions.fail(flow, f"unreadable at or after {start}: {describe(exc)}")
            return
        if self._partitions.flows.get(flow.tp) is flow and flow.fetched == start:
            await self._partitions.take_read(flow, records, next_offset)

    def _out_of_range(self, flow: Flow) -> None:
        """The flow's position is not in the log (any more)."""
        self._partitions.fail(flow, f"offset {flow.fetched} is not in the log")

    # -- rebalances -------------------------------------------------------------------------------------------------

    async def _step_back(self) -> None:
        """Deliver nothing more, wait a little for what is in flight, commit what is done. A rebalance begins, the
        session ended, or the service stops."""
        self._rebalances += 1
        self._partitions.suspended = True
        await self._suspend()
        if not await self._partitions.idle(STEP_TIMEOUT_S):
            log.warning("%s: %d batches stay in flight over a rebalance", self.name, self._partitions.in_flight)
        if not await self._committer.flush(STEP_TIMEOUT_S):
            log.warning("%s: not everything done could be committed before a rebalance", self.name)

    def _assigned(self, tps: Collection[TopicPartition]) -> None:
        """Runs inside the join: no waiting here, heartbeats start after it."""
        assert self._partitions.consumer is not None
        before, self._generation = self._generation, self._partitions.consumer._coordinator.generation
        if not 0 <= self._generation - before <= 1:
            # This member was not in every generation of the group since its last assignment: what it held may have
            # been another's meanwhile, so nothing of it has come straight back.
            self._committer.forget(list(self._partitions.flows))
            self._disown()
        self._committer.assigned(tps)
        for tp in tps:
            self._partitions.reposition(tp)
        self._standing.clear(self.name)
        self._take_assignment(frozenset(tps))

    def _go_on(self) -> None:
        if not self._stopping:
            self._partitions.go_on()

    async def _suspend(self) -> None:
        """Tell whoever has to know; bounded."""

    def _disown(self) -> None:
        """Nothing that is held counts as held when the assignment is taken."""
        raise NotImplementedError

    def _take_assignment(self, tps: frozenset[TopicPartition]) -> None:
        raise NotImplementedError

    async def _close_all(self) -> None:
        """The service stops."""

    async def _look_after(self, consumer: AIOKafkaConsumer) -> None:
        """Once a second: batches that nobody answers, commits that do not return, positions behind control records."""
        beat, self._in_contact_ms = 0, self._clock.monotonic_ms()
        while True:
            await asyncio.sleep(1)
            beat += 1
            self._partitions.look_after()
            self._committer.look_after()
            self._look_for_contact(consumer)
            if beat % CONTROL_RECORDS_EVERY_S == 0 and not self._partitions.suspended:
                await self._partitions.pass_control_records()

    def _look_for_contact(self, consumer: AIOKafkaConsumer) -> None:
        """Ends a session that has lost its group for long, whatever in the client may be the matter: the next one
        begins with everything new. In an outage that costs nothing."""
        now_ms, most_ms = self._clock.monotonic_ms(), self._limits.no_contact_ms
        if not consumer.subscription() or self.lease.valid(now_ms):
            self._in_contact_ms = now_ms
        elif now_ms - self._in_contact_ms > most_ms:
            raise OutOfContact(f"no contact with group {self.group} for {most_ms // 1000} s")

    async def quiesce(self, timeout_s: float) -> bool:
        """For an orderly end: deliver nothing more, wait for batches in flight and their commits; the member stays in
        its group until it is stopped. False when the time was not enough."""
        self._stopping = True
        self._partitions.suspended = True
        idle = await self._partitions.idle(timeout_s)
        return await self._committer.flush(STEP_TIMEOUT_S) and idle

    @property
    def rebalances(self) -> int:
        """How often this member had to step back: rebalances, and sessions that ended."""
        return self._rebalances

    def lags(self) -> Mapping[tuple[str, int], int]:
        """(topic, partition) -> records between what is settled and the end, as of the last fetch."""
        return self._partitions.lags()

    async def committed_up_to(self) -> None:
        """Waits until everything that was to be committed so far is committed or dropped."""
        await self._committer.flush(None)


def _nothing(tp: TopicPartition, offset: int) -> None:
    """Manual planes commit by themselves."""
