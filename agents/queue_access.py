"""The queues of this worker's inbox shards: opened from the log, asked by the API, closed (docs/queues.md)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from agents.inbox import InboxShard
from agents.outputs import flush
from agents.queue_steps import Delivered, Queue, Receive, Settle, TokenError
from agents.queues import QueueParts, QueueShard
from agents.sealing import secret_context
from hub_app.domain.errors import Fenced, OutcomeUnknown, StoreFailed
from hub_app.domain.queue import Operation, Rules
from hub_app.domain.queue_tokens import Token, Tokens
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.kafka.producer import HubProducer
from hub_app.ports import Clock, Keyring
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from hub_app.wire import queue as wire
from hub_app.wire.record import Unreadable
from tables.queues import QueueTable
from tables.subscriptions import SubscriptionsTable

SETTLE_MS_MAX = 10_000
"""An answer that takes longer is not known: the log goes on taking it."""
LOCKED_MS_MAX = 10_000
MAKERS_MAX = 10_000


class LogReader(Protocol):
    """What an opening needs of `hub_app.kafka.reader.RangeReader`."""

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]: ...
    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]: ...
    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None: ...
    def read_range(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Sequence[Any]]: ...


class Queues:
    """One per worker. `alive(shard)`: open here, under a valid lease; `failed(shard, error)`: open it again."""

    def __init__(
        self,
        *,
        producer: HubProducer,
        reader: LogReader,
        names: Names,
        shards: int,
        clock: Clock,
        metrics: Metrics,
        subscriptions: SubscriptionsTable,
        keyring: Keyring,
        events_retention_ms: int,
        alive: Callable[[int], bool],
        failed: Callable[[int, StoreFailed], None],
    ) -> None:
        self._reader, self._names, self._clock = reader, names, clock
        self._subscriptions, self._keyring, self._retention_ms = subscriptions, keyring, events_retention_ms
        self._parts = QueueParts(producer, names, shards, clock, metrics, self._queue_of, alive, failed)
        self._shards: dict[int, QueueShard] = {}
        self._makers: dict[str, Tokens] = {}
        self._log = Log("queues")

    # -- shards come and go --------------------------------------------------------------------------------------------
    async def open(self, shard: InboxShard) -> QueueShard:
        """Brings the rows to the end of the log. The subscriptions have been read to their end before."""
        table = QueueTable(shard.table.store, self._names.queue)
        await self._catch_up(shard.number, table)
        made = QueueShard(shard.number, table, shard.table, self._parts, shard.position)
        made.begin(self._tenants())
        self._shards[shard.number] = made
        return made

    async def _catch_up(self, number: int, table: QueueTable) -> None:
        topic, reader = self._names.queue, self._reader
        begin = (await reader.begin_offsets(topic, [number]))[number]
        end = (await reader.end_offsets(topic, [number]))[number]
        start = table.next_offset
        if start is not None and start > end:  # another log: its events are the only ones there are
            batch = table.store.batch()
            for subscription in table.subscriptions():
                table.drop(batch, subscription)
            table.restart(batch)
            table.store.write(batch)
            start = None
        if start is None:
            # What is older than the facts themselves cannot be received any more.
            found = await reader.offset_for_time(topic, number, self._clock.now_ms() - self._retention_ms)
            start = end if found is None else max(begin, found)
        known = self._tenants()
        async for records in reader.read_range(topic, number, start, end):
            self._apply(table, records, known)
        batch = table.store.batch()
        table.reached(batch, end)
        table.store.write(batch)

    def _apply(self, table: QueueTable, records: Iterable[Any], known: dict[str, str]) -> None:
        for record in records:
            said = wire.read(record.headers, record.value)
            if isinstance(said, Unreadable):
                self._log.warning(Event.SHARD_PROGRESS, topic=self._names.queue, offset=record.offset, detail=said)
            elif said.subscription in known:
                batch = table.store.batch()
                table.apply(batch, said)
                table.reached(batch, record.offset + 1)
                table.store.write(batch)

    def _tenants(self) -> dict[str, str]:
        """The tenant of every queue's subscription."""
        return {
            one.id: tenant
            for tenant in self._subscriptions.tenants()
            for one in self._subscriptions.of_tenant(tenant)
            if isinstance(one.sink, QueueSink)
        }

    async def rest(self, shards: Iterable[int]) -> None:
        """A rebalance begins: what was begun ends, nothing new begins."""
        await asyncio.gather(*(self._shards[shard].rest() for shard in shards if shard in self._shards))

    def go_on(self, shards: Iterable[int]) -> None:
        for shard in shards:
            if shard in self._shards:
                self._shards[shard].go_on()

    def close(self, shard: int) -> None:
        left = self._shards.pop(shard, None)
        if left is not None:
            left.close()

    def end_polls(self) -> None:
        """Whoever waits is answered now: the worker is about to stop."""
        for shard in self._shards.values():
            shard.end_polls()

    # -- what the API asks ---------------------------------------------------------------------------------------------
    async def receive(
        self, shard: int, subscription: Subscription, *, most: int, wait_ms: int, connected: Callable[[], bool]
    ) -> list[Delivered]:
        """Up to `most` events, locked, as soon as there is one; none when there was none in time, or the shard moves.
        Raises Fenced and SecretUnavailable before anything is locked, and nothing after."""
        here, queue = self._here(shard), queue_for(subscription)
        asked = Receive(queue, self.maker(subscription), most, connected)
        here.receive(asked)
        try:
            done, _ = await asyncio.wait([asked.answered], timeout=wait_ms / 1000)
            if not done:
                here.give_up(asked)
                done, _ = await asyncio.wait([asked.answered], timeout=LOCKED_MS_MAX / 1000)
        except asyncio.CancelledError:
            here.give_up(asked)
            raise
        return asked.answered.result() if done else []

    async def settle(
        self,
        shard: int,
        subscription: Subscription,
        operation: Operation,
        tokens: Sequence[Token | None],
        *,
        delay_ms: int = 0,
    ) -> list[TokenError | None]:
        """An error or None per token. Raises Fenced (nothing was done, or nobody knows), OutcomeUnknown, BrokerTrouble,
        StoreFailed, SecretUnavailable."""
        here = self._here(shard)
        asked = Settle(queue_for(subscription), self.maker(subscription), operation, tokens, delay_ms)
        here.settle(asked)
        done, _ = await asyncio.wait([asked.answered], timeout=SETTLE_MS_MAX / 1000)
        if not done:
            raise OutcomeUnknown("the log of queues does not answer in time")
        return asked.answered.result()

    async def give_again(self, shard: int, subscription: Subscription, seqs: Sequence[int], series: str) -> list[int]:
        """Puts events into their queue once more (a redrive): once per `series`, an operation's id, and not those that
        are there. The seqs that are new. Their time to live begins now. Raises Fenced, and what Kafka answered; the
        same call may be made again."""
        here, now_ms, outbox = self._here(shard), self._clock.now_ms(), self._parts.producer.outbox()
        events = [(seq, now_ms) for seq in seqs]
        for made in wire.write_enqueued(subscription.tenant, subscription.id, events, at_ms=now_ms, series=series):
            outbox.add(self._names.queue, shard, made.key, made.value, made.headers)
        await flush(outbox)
        if self._here(shard) is not here:
            raise Fenced("the shard has moved to another worker")
        batch = here.table.store.batch()
        new = here.table.enqueue(batch, subscription.id, events, series=series)
        here.table.store.write(batch)
        here.enqueued(subscription.tenant, subscription.id)
        return new

    def maker(self, subscription: Subscription) -> Tokens:
        """Makes and knows the tokens of a queue. Raises SecretUnavailable."""
        made = self._makers.get(subscription.secret)
        if made is None:
            assert isinstance(subscription.sink, QueueSink)
            made = Tokens(
                self._keyring.open(subscription.secret, context=secret_context(subscription)),
                tenant=subscription.tenant,
                topic=subscription.sink.topic,
                subscription=subscription.id,
            )
            if len(self._makers) >= MAKERS_MAX:
                self._makers.clear()
            self._makers[subscription.secret] = made
        return made

    def _here(self, shard: int) -> QueueShard:
        found = self._shards.get(shard)
        if found is None or not self._parts.alive(shard):
            raise Fenced("the shard is not open here")
        return found

    def _queue_of(self, tenant: str, id: str) -> Queue | None:
        subscription = self._subscriptions.get(tenant, id)
        return None if subscription is None else queue_for(subscription)


def queue_for(subscription: Subscription) -> Queue:
    sink = subscription.sink
    assert isinstance(sink, QueueSink)  # a sink never changes its type
    rules = Rules(sink.lock_ms, sink.deliveries_max, sink.ttl_ms)
    return Queue(subscription.tenant, subscription.id, subscription.destination, rules)
