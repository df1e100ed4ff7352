"""The partitions of a member: what arrives is buffered within bounds, delivered one batch at a time, and answered.

Everything here runs on one event loop without waiting, but for handing a batch over."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.batch import Batch
from hub_app.kafka.flow import BACKOFF, Flow, chunks_of
from hub_app.kafka.forever import describe
from hub_app.kafka.limits import Limits
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock, Entropy

log = logging.getLogger(__name__)

Deliver = Callable[[Batch], Awaitable[None]]
Done = Callable[[TopicPartition, int], None]

STUCK_AFTER_MS = 30_000


class Partitions:
    """`done(tp, next_offset)` is called for every batch that was answered well.

    `consumer` is the current session's, or None between two; a partition's state outlives sessions and rebalances as
    long as it stays with this member."""

    def __init__(
        self,
        name: str,
        *,
        deliver: Deliver,
        done: Done,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        limits: Limits,
    ) -> None:
        self.name = name
        self.consumer: AIOKafkaConsumer | None = None
        self.flows: dict[TopicPartition, Flow] = {}
        self.suspended = True
        self.room = asyncio.Event()
        self.room.set()
        self.wanted_more = asyncio.Event()
        self._deliver = deliver
        self._done = done
        self._standing = standing
        self._clock = clock
        self._entropy = entropy
        self._limits = limits
        self._ready: deque[Flow] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._held_bytes = 0
        self._in_flight = 0

    # -- arriving and delivering ------------------------------------------------------------------------------------

    async def take(self, fetched: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        """Buffers what was fetched and delivers what may be delivered."""
        arrived = []
        for tp, records in fetched.items():
            flow = self.flows.get(tp)
            if flow is not None and self.consumer is not None:
                # Answers at once: the records just came from there.
                self._buffer(flow, records, await self.consumer.position(tp))
                arrived.append(flow)
        for flow in arrived:
            await self._offer(flow)

    async def take_read(self, flow: Flow, records: Sequence[ConsumerRecord], next_offset: int) -> None:
        """As `take`, for what was read from where the flow was fetched up to, past the consumer. Without records (all
        of them aborted) the place alone moves."""
        if records:
            self._buffer(flow, records, next_offset)
        elif flow.resting():
            flow.position = flow.fetched = next_offset
        self.reposition(flow.tp)
        await self._offer(flow)

    def wanted(self) -> Sequence[TopicPartition] | None:
        """The partitions that may bring more; None: all of them, which is the usual case and costs nothing."""
        self.wanted_more.clear()
        if not any(flow.full for flow in self.flows.values()) or self.consumer is None:
            return None
        assigned = self.consumer.assignment()
        return [tp for tp, flow in self.flows.items() if not flow.full and tp in assigned]

    def all_read(self) -> bool:
        """Nothing keeps a partition of the session out of the next fetch, so a long one holds nobody up."""
        if self.suspended or self.consumer is None or len(self.consumer.assignment()) != len(self.flows):
            return False
        return not any(flow.full or flow.gates for flow in self.flows.values())

    def _buffer(self, flow: Flow, records: Sequence[ConsumerRecord], next_offset: int) -> None:
        limits = self._limits
        first = records[0].offset
        chunks = list(
            chunks_of(records, next_offset, records_max=limits.batch_records_max, bytes_max=limits.batch_bytes_max)
        )
        if flow.fetched is not None and first < flow.fetched:
            log.warning("%s was re-created: it starts again at %d", self.flow_name(flow), first)
            flow.position = first
        flow.arrived(chunks)
        self._hold(sum(chunk.size_bytes for chunk in chunks))
        flow.full = flow.buffered_bytes >= limits.partition_buffer_bytes_max

    async def courier(self) -> None:
        """Brings the next batch of every partition whose former one was answered. Runs until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._ready:
                await self._offer(self._ready.popleft())

    async def _offer(self, flow: Flow) -> None:
        if self.suspended or not flow.may_deliver():
            return
        chunk = flow.take()
        batch = Batch(
            shard=flow.shard,
            topic=flow.tp.topic,
            partition=flow.tp.partition,
            records=chunk.records,
            next_offset=chunk.next_offset,
            size_bytes=chunk.size_bytes,
            settled=self._settled,
        )
        flow.in_flight = batch
        flow.offered_ms = self._clock.monotonic_ms()
        self._in_flight += 1
        self._idle.clear()
        if flow.full and flow.buffered_bytes * 2 < self._limits.partition_buffer_bytes_max:
            flow.full = False
            self.wanted_more.set()
        try:
            await self._deliver(batch)
        except Exception as exc:  # the agent's channel: the batch must not hang
            batch.failed(exc)

    def _settled(self, batch: Batch, exc: BaseException | None) -> None:
        """The agent answered a batch that is still ours."""
        flow = self.flows.get(TopicPartition(batch.topic, batch.partition))
        if flow is None or flow.in_flight is not batch:
            return
        flow.in_flight = None
        self._landed(batch.size_bytes)
        if exc is not None:
            self.fail(flow, describe(exc))
            return
        flow.position = batch.next_offset
        if flow.failures or flow.shown:
            flow.failures = 0
            flow.shown = False
            self._standing.clear(self.flow_name(flow))
        self._done(flow.tp, batch.next_offset)
        if flow.buffer:
            self._kick(flow)

    def fail(self, flow: Flow, why: str) -> None:
        """The partition alone goes back to its settled position, and waits; the others go on."""
        self._hold(-flow.drop_buffer())
        flow.failures += 1
        limits = self._limits
        wait_ms = delay_ms(
            flow.failures, self._entropy.draw(), first_ms=limits.retry_first_ms, cap_ms=limits.retry_cap_ms
        )
        self._standing.report(self.flow_name(flow), f"failed {flow.failures} times, next try in {wait_ms} ms: {why}")
        self.gate(flow, BACKOFF)
        if flow.retry is not None:
            flow.retry.cancel()
        flow.retry = asyncio.get_running_loop().call_later(wait_ms / 1000, self._try_again, flow)

    def _try_again(self, flow: Flow) -> None:
        flow.retry = None
        if self.flows.get(flow.tp) is flow:
            self.ungate(flow, BACKOFF)

    def flow_name(self, flow: Flow) -> str:
        """The name under which the partition stands in readiness."""
        return f"{self.name}/{flow.tp.topic}/{flow.tp.partition}"

    def _kick(self, flow: Flow) -> None:
        self._ready.append(flow)
        self._wake.set()

    # -- bounds and gates -------------------------------------------------------------------------------------------

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        if size_bytes < 0:
            self.wanted_more.set()
        if self._held_bytes < self._limits.buffer_bytes_max:
            self.room.set()
        else:
            self.room.clear()

    def _landed(self, size_bytes: int) -> None:
        self._in_flight -= 1
        if not self._in_flight:
            self._idle.set()
        self._hold(-size_bytes)

    @property
    def held_bytes(self) -> int:
        """Decoded bytes buffered and in flight."""
        return self._held_bytes

    @property
    def in_flight(self) -> int:
        """Batches with agents."""
        return self._in_flight

    def live(self, tp: TopicPartition) -> bool:
        """Whether the current session reads `tp`."""
        return self.consumer is not None and tp in self.consumer.assignment()

    def gate(self, flow: Flow, why: str) -> None:
        """Stops fetching until every reason given was taken away by `ungate`."""
        if not flow.gates and self.live(flow.tp):
            assert self.consumer is not None
            self.consumer.pause(flow.tp)
        flow.gates.add(why)

    def hold_back(self, flow: Flow, why: str) -> None:
        """As `gate`, and forgets what is buffered (it is fetched again), so that a held shard holds no memory."""
        self.gate(flow, why)
        self._hold(-flow.drop_buffer())

    def ungate(self, flow: Flow, why: str) -> None:
        """Takes one reason away; after the last one the partition reads on from where it was."""
        if why not in flow.gates:
            return
        flow.gates.discard(why)
        if not flow.gates and self.live(flow.tp):
            assert self.consumer is not None
            if flow.fetched is not None:
                self.consumer.seek(flow.tp, flow.fetched)
            self.consumer.resume(flow.tp)
        if flow.may_deliver():
            self._kick(flow)

    # -- coming and going -------------------------------------------------------------------------------------------

    def add(self, tp: TopicPartition, shard: int, position: int | None) -> Flow:
        """A partition begins here, at `position` (None: where the group or the log says). Not yet fetched by itself:
        `reposition` or the assignment does that."""
        flow = self.flows[tp] = Flow(tp, shard, position)
        self.wanted_more.set()
        return flow

    def reposition(self, tp: TopicPartition) -> None:
        """Tells the session where `tp` reads on and whether it is paused. After an assignment, an opening, an error."""
        flow = self.flows.get(tp)
        if flow is None or flow.fetched is None or not self.live(tp):
            return
        assert self.consumer is not None
        self.consumer.seek(tp, flow.fetched)
        if flow.gates:
            self.consumer.pause(tp)
        else:
            self.consumer.resume(tp)

    def retire(self, tps: Collection[TopicPartition]) -> None:
        """These partitions left: their flows end, answers to their batches change nothing."""
        for tp in tps:
            flow = self.flows.pop(tp, None)
            if flow is not None:
                if flow.in_flight is not None:
                    self._landed(0)
                self._hold(-flow.retire())
                self._standing.clear(self.flow_name(flow))

    def go_on(self) -> None:
        """Delivering is allowed (again)."""
        self.suspended = False
        for flow in self.flows.values():
            if flow.may_deliver():
                self._kick(flow)

    async def idle(self, timeout_s: float) -> bool:
        """Waits until no batch is in flight; False when that takes too long."""
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            return False
        return True

    def look_after(self) -> None:
        """Shows batches that nobody answers."""
        now_ms = self._clock.monotonic_ms()
        for flow in self.flows.values():
            waited_ms = now_ms - flow.offered_ms
            if flow.in_flight is not None and waited_ms > STUCK_AFTER_MS:
                flow.shown = True
                self._standing.report(
                    self.flow_name(flow), f"a batch has been with its agent for {waited_ms // 1000} s"
                )

    async def pass_control_records(self) -> None:
        """A transaction's end marker is no record: without this a partition read to its end shows a lag of one."""
        for flow in list(self.flows.values()):
            if flow.fetched is None or not flow.resting() or not self.live(flow.tp):
                continue
            assert self.consumer is not None
            position: Any = await self.consumer.position(flow.tp)
            if position > flow.fetched and flow.resting():
                flow.position = flow.fetched = position
                self._done(flow.tp, position)

    def lags(self) -> Mapping[TopicPartition, int]:
        """Records between each partition's settled position and its end, as of the last fetch."""
        known = {}
        for tp, flow in self.flows.items():
            if flow.position is not None and self.live(tp):
                assert self.consumer is not None
                end = self.consumer.highwater(tp)
                if end is not None:
                    known[tp] = max(0, end - flow.position)
        return known
