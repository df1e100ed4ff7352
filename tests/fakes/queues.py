"""One inbox shard with its queues over a Kafka in a list: real tables, real agents, and a worker that may die."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.inbox import Inbox
from agents.inbox_opening import InboxShards
from agents.publishing import Publisher
from agents.queue_access import Queues
from agents.queue_steps import Delivered, TokenError
from agents.sealing import secret_context
from hub_app.domain.cloudevents import Accept
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import DAY_MS
from hub_app.domain.queue import Operation
from hub_app.domain.queue_sinks import queue_destination
from hub_app.domain.queue_tokens import read
from hub_app.domain.subscription import Draft, QueueSink, Subscription, created
from hub_app.kafka.batch import Batch
from hub_app.ports import Clock, Keyring
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names
from hub_app.wire import facts as wire_facts
from hub_app.wire import subscriptions as wire_subscriptions
from hub_app.wire.owned import write_deleted
from tables.datadir import DataDir
from tables.memory import Memory
from tables.subscriptions import SubscriptionsTable
from tests.fakes.keyring import FakeKeyring
from tests.fakes.log import Entry, FakeLog

NAMES = names("hub.")
RETENTION_MS = 7 * DAY_MS


class _Owner:
    async def open(self, shard: int) -> None: ...

    async def close(self, shard: int) -> None: ...


class QueueWorld:
    """Shard 0 of 1. `start` opens it, `die` leaves it as a killed process would, `lease` False takes it away."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        *,
        subscriptions: SubscriptionsTable | None = None,
        keyring: Keyring | None = None,
    ) -> None:
        self.path, self.clock, self.log = path, clock, FakeLog(clock.now_ms)
        self.keyring = keyring or FakeKeyring("K1")
        self.subscriptions = SubscriptionsTable(NAMES.subscriptions) if subscriptions is None else subscriptions
        self.metrics = Metrics()
        self.publisher = Publisher(
            producer=self.log,  # type: ignore[arg-type]
            names=NAMES,
            shards=1,
            clock=clock,
            metrics=self.metrics,
        )
        self.lease, self.committed, self.reopened = True, 0, 0
        self._made = 0

    async def start(self, folder: str = "data") -> None:
        data = DataDir.lock(self.path / folder)
        assert isinstance(data, DataDir)
        self.data = data
        self.inbox = Inbox(
            producer=self.log,  # type: ignore[arg-type]
            names=NAMES,
            shards=1,
            subscriptions=self.subscriptions,
            metrics=self.metrics,
            dedup_window_ms=RETENTION_MS,
            events_retention_ms=RETENTION_MS,
            lease=lambda: self.lease,
            arrived=lambda shard, tenants: None,
        )
        self.queues = Queues(
            producer=self.log,  # type: ignore[arg-type]
            reader=self.log,
            names=NAMES,
            shards=1,
            clock=self.clock,
            metrics=self.metrics,
            subscriptions=self.subscriptions,
            keyring=self.keyring,
            events_retention_ms=RETENTION_MS,
            alive=lambda shard: self.lease and shard in self.inbox.shards,
            failed=self._failed,
        )
        self.shards = InboxShards(
            inbox=self.inbox,
            owner=_Owner(),  # type: ignore[arg-type]
            queues=self.queues,
            names=NAMES,
            data=self.data,
            memory=Memory(),
            metrics=Metrics(),
            dedup_window_ms=RETENTION_MS,
            cluster_id=lambda: "c",
            epoch=lambda shard: 0,
            raise_epoch=_unexpected,
            topic_ids=self.log.topic_ids,
            left=lambda shard: None,
            reopen=lambda shard, reason: None,
        )
        end = len(self.log.topics[NAMES.facts, 0])
        topic = NAMES.facts
        starts = await self.shards.opened(0, {topic: self.committed}, {topic: 0}, {topic: end})
        self._position = starts[topic]
        self.lease = True

    async def stop(self) -> None:
        await self.shards.closed(0)
        self.data.release()

    def die(self) -> None:
        """Whatever runs is cut off; files stay as they are."""
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().startswith("queues/"):
                task.cancel()
        if 0 in self.inbox.shards:
            self.inbox.shards.pop(0).table.store.close(clean=False)
        self.data.release()

    def _failed(self, shard: int, error: StoreFailed) -> None:
        self.reopened += 1

    # -- the tenant ----------------------------------------------------------------------------------------------------
    def queue(self, topic: str = "orders", name: str = "worker", tenant: str = "t", **more: Any) -> Subscription:
        """A queue subscription to everything of a topic."""
        self._made += 1
        sink = QueueSink(
            **{"topic": topic, "name": name, "lock_ms": 60_000, "deliveries_max": 3, "ttl_ms": DAY_MS, **more}
        )
        draft = Draft(
            name=name, event_types=("*",), origin=(), filters=(), sink=sink, destination=queue_destination(sink)
        )
        made = created(draft, id=f"sub_{self._made}", tenant=tenant, secret="", now_ms=self.clock.now_ms())
        return self.put(made)

    def put(self, subscription: Subscription) -> Subscription:
        """Writes it, with a secret of its own."""
        if not subscription.secret:
            sealed = self.keyring.seal(subscription.id.encode(), context=secret_context(subscription))
            subscription = type(subscription)(
                **{name: getattr(subscription, name) for name in subscription.__slots__} | {"secret": sealed}
            )
        self._apply(wire_subscriptions.write(subscription))
        return subscription

    def delete(self, subscription: Subscription) -> None:
        self._apply(write_deleted(subscription.tenant, subscription.id))

    def _apply(self, record: Any) -> None:
        offset = self.subscriptions.offset(0)
        self.subscriptions.apply(0, offset, record.key, record.value, record.headers)

    # -- facts ---------------------------------------------------------------------------------------------------------
    def publish(self, *ids: str, topic: str = "orders", tenant: str = "t", size: int = 10) -> None:
        """Facts in the log, not read yet."""
        log = self.log.topics[NAMES.facts, 0]
        for id in ids:
            ce = {"specversion": "1.0", "id": id, "source": "test", "type": "com.example.made"}
            headers = [(f"ce-{name}", text.encode()) for name, text in ce.items()]
            accept = Accept(tenant, tenant.encode(), topic, headers)
            made = wire_facts.write(accept, received_at_ms=self.clock.now_ms(), origin=None)
            value = b'"' + b"x" * size + b'"'
            log.append(Entry(NAMES.facts, 0, len(log), tenant.encode(), value, made, self.clock.now_ms()))

    async def pump(self, *, commit: bool = True) -> None:
        """The inbox reads on to the end."""
        records = self.log.topics[NAMES.facts, 0][self._position :]
        if not records:
            return
        end = self._position + len(records)

        def settled(batch: Batch, error: BaseException | None) -> None:
            if error is not None:
                raise error

        batch = Batch(shard=0, topic=NAMES.facts, partition=0, records=records, next_offset=end, settled=settled)
        await self.inbox.handle([batch], lambda batch, error: batch.failed(error))
        self._position = end
        if commit:
            self.committed = end

    async def pump_for_ever(self) -> None:
        """As a consumer would."""
        while True:
            await asyncio.sleep(0.005)
            await self.pump()

    async def give(self, *ids: str, **more: Any) -> None:
        self.publish(*ids, **more)
        await self.pump()

    # -- asking --------------------------------------------------------------------------------------------------------
    async def receive(self, subscription: Subscription, most: int = 10, wait_ms: int = 20) -> list[Delivered]:
        return await self.queues.receive(0, subscription, most=most, wait_ms=wait_ms, connected=lambda: True)

    async def settle(
        self, subscription: Subscription, operation: Operation, tokens: Sequence[object], delay_ms: int = 0
    ) -> list[TokenError | None]:
        return await self.queues.settle(0, subscription, operation, [read(t) for t in tokens], delay_ms=delay_ms)

    def dead(self) -> list[tuple[str, str, bytes]]:
        """(reason, ce-id, payload) of the dead letters."""
        found = []
        for record in self.log.records(NAMES.dlq):
            headers = dict(record.headers)
            found.append((headers["hub-reason"].decode(), headers.get("ce-id", b"").decode(), record.value or b""))
        return found


def ids(events: Sequence[Delivered]) -> list[str]:
    return [event.fact.id for event in events]


def tokens(events: Sequence[Delivered]) -> list[str]:
    return [event.token for event in events]


async def _unexpected(shard: int, reason: str) -> None:
    raise AssertionError(reason)
