"""Assembly: makes every part of a worker from settings and ports, one method a room, and ties them together.
Opens nothing and starts nothing; `hub_app.lifecycle` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from agents import registry
from agents.dispatch_opening import DispatchShards
from agents.epochs import Epochs
from agents.inbox import Inbox
from agents.inbox_opening import InboxShards
from agents.ingest import Ingest
from agents.observer import Observer
from agents.owner import OwnerLog, OwnerSetup
from agents.queue_access import Queues
from hub_app.assembly_dispatch import dispatch_parts
from hub_app.assembly_web import serve_web
from hub_app.derived import kafka_config, topic_specs
from hub_app.domain.backoff import Curve
from hub_app.domain.errors import StoreFailed
from hub_app.kafka.patterns import PatternPlane
from hub_app.kafka.plane import ShardPlane
from hub_app.kafka.producer import HubProducer
from hub_app.kafka.reader import RangeReader
from hub_app.kafka.standing import Standing
from hub_app.kafka.tail import TopicTail
from hub_app.kafka.transactions import TransactionalProducer
from hub_app.lifecycle import Hub
from hub_app.measures import measure
from hub_app.ports import Clock, Entropy, Keyring, Sender
from hub_app.settings import Settings
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import (
    INGEST_PATTERN,
    OBSERVER_PATTERN,
    names,
    observed_source_of,
    source_of,
)
from hub_app.web.arrivals import Arrivals
from tables.datadir import DataDir
from tables.globals import GlobalTable
from tables.health import HealthTable
from tables.keys import KeysTable
from tables.memory import Memory
from tables.meta import MetaTable
from tables.operations import OperationsTable
from tables.subscriptions import SubscriptionsTable


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """The hands of a worker; tests give others. `close` ends what they hold open."""

    clock: Clock
    entropy: Entropy
    keyring: Keyring
    sender: Sender
    close: Callable[[], Awaitable[None]]


class Assembly:
    """Builds one worker's parts; each method one room."""

    def __init__(self, app: Any, settings: Settings, ports: Ports, data: DataDir) -> None:
        self.app, self.settings, self.ports, self.data = app, settings, ports, data
        self.names, self.config = names(settings.topic_prefix), kafka_config(settings)
        self.metrics, self.standing, self.memory = Metrics(), Standing(self.ports.clock), Memory()
        self.arrivals, self.curve = Arrivals(), Curve(settings.backoff_caps_ms)
        self.producer = HubProducer(self.config, standing=self.standing)
        self.reader = RangeReader(self.config)
        self.subscriptions = SubscriptionsTable(self.names.subscriptions)
        self.keys, self.meta = KeysTable(self.names.keys), MetaTable(self.names.meta)
        self.operations, self.health = OperationsTable(self.names.operations), HealthTable(self.names.health)
        self.tables: dict[str, GlobalTable[Any]] = {
            table.topic: table for table in (self.subscriptions, self.keys, self.operations, self.health, self.meta)
        }
        self.tails = {topic: self._tail(table) for topic, table in self.tables.items()}
        self.ingests = settings.role in ("all", "ingest")
        self.delivers = settings.role in ("all", "delivery")
        self.built: Hub | None = None
        self.failures: dict[str, Callable[[int, StoreFailed], None]] = {}

    def hub(self) -> Hub:
        settings, clock = self.settings, self.ports.clock
        dispatch = dispatch_parts(self)
        owner = self._owner(self.inbox_lease)
        meta_owner = self._owner(lambda: True, plain="meta-")
        epochs = Epochs(meta_owner, self.meta, clock=clock, entropy=self.ports.entropy)
        inbox = self._inbox()
        self.queues = self._queues(inbox)
        inbox_shards = self._inbox_shards(inbox, owner, epochs)
        failures = self.failures = {"inbox": inbox_shards.store_failed, "dispatch": dispatch.shards.store_failed}
        channels = registry.register(
            self.app,
            ingest=self._ingest(),
            inbox=inbox,
            dispatcher=dispatch.dispatcher,
            observer=Observer(outbox=self.producer.outbox, names=self.names, shards=settings.shards),
            shards=dispatch.shards.shards,
            store_failed=lambda agent, shard, error: failures[agent](shard, error),
            metrics=self.metrics,
        )
        hub = self.built = Hub(
            settings=settings,
            clock=clock,
            entropy=self.ports.entropy,
            config=self.config,
            standing=self.standing,
            data=self.data,
            specs=topic_specs(settings),
            producer=self.producer,
            reader=self.reader,
            tables=list(self.tables.values()),
            tails=list(self.tails.values()),
            close_ports=self.ports.close,
            settler=dispatch.settler,
            dispatcher=dispatch.dispatcher,
            dispatch_shards=dispatch.shards,
            background={"upkeep": dispatch.upkeep.step, "changes": dispatch.shelf.step},
            owner=owner,
            ingest_plane=self._ingest_plane(channels.ingest.put) if self.ingests else None,
            observer_plane=self._observer_plane(channels.observer.put) if self.delivers else None,
            inbox_plane=self._inbox_plane(inbox_shards, channels.inbox.put) if self.ingests else None,
            dispatch_plane=self._dispatch_plane(dispatch.shards, channels.dispatch.put) if self.delivers else None,
            close_web=_nothing,
            wake_polls=self._wake_polls,
        )
        serve_web(self, hub, inbox)
        measure(hub, self.metrics)
        return hub

    # -- steps of the journey ------------------------------------------------------------------------------------------
    def _ingest(self) -> Ingest:
        settings = self.settings
        return Ingest(
            producer=self.producer,
            names=self.names,
            shards=settings.shards,
            clock=self.ports.clock,
            metrics=self.metrics,
            default_tenant=None if settings.multi_tenant_enabled else settings.tenant_id,
        )

    def _inbox(self) -> Inbox:
        settings = self.settings
        return Inbox(
            producer=self.producer,
            names=self.names,
            shards=settings.shards,
            subscriptions=self.subscriptions,
            metrics=self.metrics,
            dedup_window_ms=settings.dedup_window_ms,
            events_retention_ms=settings.events_retention_ms,
            lease=self.inbox_lease,
            arrived=lambda shard, tenants: self.arrivals.notify_many(tenants),
        )

    def _owner(self, lease: Callable[[], bool], *, plain: str = "") -> OwnerLog:
        """The transactional single writer of the shards here; `plain` marks the one of `hub.meta`."""

        async def catch_up(shard: int) -> None:
            for topic, tail in self.tails.items():
                if (topic == self.names.meta) == bool(plain):
                    await tail.read_to_end(shard)

        return OwnerLog(
            OwnerSetup(
                prefix=self.names.prefix + plain,
                producers=lambda id: TransactionalProducer(self.config, id),
                lease=lease,
                catch_up=catch_up,
                apply=lambda topic, partition, offset, key, value, headers: self.tables[topic].apply(
                    partition, offset, key, value, headers
                ),
            )
        )

    def _queues(self, inbox: Inbox) -> Queues:
        return Queues(
            producer=self.producer,
            reader=self.reader,
            names=self.names,
            shards=self.settings.shards,
            clock=self.ports.clock,
            metrics=self.metrics,
            subscriptions=self.subscriptions,
            keyring=self.ports.keyring,
            events_retention_ms=self.settings.events_retention_ms,
            alive=lambda shard: shard in inbox.shards and self.inbox_lease(),
            failed=self._inbox_failed,
        )

    def _wake_polls(self) -> None:
        self.arrivals.notify_all()
        self.queues.end_polls()

    def _inbox_failed(self, shard: int, error: StoreFailed) -> None:
        self.failures["inbox"](shard, error)

    def _inbox_shards(self, inbox: Inbox, owner: OwnerLog, epochs: Epochs) -> InboxShards:
        async def raise_epoch(shard: int, reason: str) -> None:
            epoch = await epochs.raise_epoch(shard, reason)
            Log("inbox").warning(Event.EPOCH_RAISED, shard=shard, epoch=epoch, reason=reason)

        return InboxShards(
            inbox=inbox,
            owner=owner,
            queues=self.queues,
            names=self.names,
            data=self.data,
            memory=self.memory,
            metrics=self.metrics,
            dedup_window_ms=self.settings.dedup_window_ms,
            cluster_id=self.cluster_id,
            epoch=self.meta.epoch,
            raise_epoch=raise_epoch,
            topic_ids=self.reader.topic_ids,
            left=lambda shard: self.arrivals.notify_all(),
            reopen=lambda shard, reason: self.plane("inbox_plane").reopen(shard, reason),
        )

    # -- the planes ----------------------------------------------------------------------------------------------------
    def _ingest_plane(self, deliver: Callable[[Any], Awaitable[None]]) -> PatternPlane:
        return PatternPlane(
            self.config,
            name="ingest",
            group=f"streaming-hub.{self.settings.env}",
            pattern=INGEST_PATTERN,
            accepts=lambda topic: source_of(topic) is not None,
            deliver=deliver,
            instance_id=self.settings.instance_id or None,
            **self._watched(),
        )

    def _observer_plane(self, deliver: Callable[[Any], Awaitable[None]]) -> PatternPlane:
        """Producers' dead letters, in a group apart."""
        return PatternPlane(
            self.config,
            name="observer",
            group=f"streaming-hub-dlq.{self.settings.env}",
            pattern=OBSERVER_PATTERN,
            accepts=lambda topic: observed_source_of(topic) is not None,
            deliver=deliver,
            instance_id=self.settings.instance_id or None,
            **self._watched(),
        )

    def _inbox_plane(self, listener: InboxShards, deliver: Callable[[Any], Awaitable[None]]) -> ShardPlane:
        return self._shard_plane("inbox", [self.names.facts], listener, deliver, commit="after_batch")

    def _dispatch_plane(self, listener: DispatchShards, deliver: Callable[[Any], Awaitable[None]]) -> ShardPlane:
        topics = [self.names.deliveries, *(self.names.retry(tier) for tier in self.curve.tiers), self.names.parked]
        return self._shard_plane("dispatch", topics, listener, deliver, commit="manual", also=self.names.is_retry)

    def _shard_plane(
        self, name: Any, topics: list[str], listener: Any, deliver: Callable[[Any], Awaitable[None]], **more: Any
    ) -> ShardPlane:
        return ShardPlane(
            self.config,
            name=name,
            group=f"streaming-hub-{name}.{self.settings.env}",
            topics=topics,
            shards=self.settings.shards,
            url=self.settings.http_advertised_url,
            listener=listener,
            deliver=deliver,
            shards_on_disk=lambda: self.data.shards(name),
            instance_id=self.settings.instance_id or None,
            **more,
            **self._watched(),
        )

    def _watched(self) -> dict[str, Any]:
        return {"standing": self.standing, "clock": self.ports.clock, "entropy": self.ports.entropy}

    # -- what is known later -------------------------------------------------------------------------------------------
    def _tail(self, table: GlobalTable[Any]) -> TopicTail:
        return TopicTail(
            self.config, table.topic, table.apply, reader=self.reader, reset=table.reset, **self._watched()
        )

    def plane(self, name: str) -> ShardPlane:
        plane = getattr(self.built, name)
        assert isinstance(plane, ShardPlane)
        return plane

    def dispatch_lease(self, now_ms: int) -> bool:
        return self.plane("dispatch_plane").lease.valid(now_ms)

    def inbox_lease(self) -> bool:
        return self.plane("inbox_plane").lease.valid(self.ports.clock.monotonic_ms())

    def cluster_id(self) -> str:
        assert self.built is not None
        return self.built.cluster_id


async def _nothing() -> None:
    """A worker without an API has none to close."""
