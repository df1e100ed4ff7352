"""An inbox over stores in memory, for tests of its agent and its openings. Nobody has a queue here."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple, cast

from agents.inbox import Inbox
from agents.inbox_opening import InboxShards
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fact import Fact
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import HOUR_MS
from hub_app.domain.subscription import WebhookSink
from hub_app.kafka.batch import Batch
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names
from tests.fakes.log import FakeLog
from tests.fakes.store import Disk, MemoryStore
from tests.simulation.broker import Rec

NAMES = names("hub.")
NOW_MS = 1_767_323_045_000
WINDOW_MS = 168 * HOUR_MS


class Sub(NamedTuple):
    """A subscription, as far as the match step looks at it."""

    id: str
    destination: str = "https://a.example/"
    sink: WebhookSink = WebhookSink(url="https://a.example/")


class Subscriptions:
    """The subscriptions table: everybody gets everything of their tenant."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Sub]] = defaultdict(list)

    def matcher(self, tenant: str) -> Subscriptions:
        self._tenant = tenant
        return self

    def match(self, fact: Fact) -> list[Sub]:
        return self.rows[fact.tenant]

    def offset(self, partition: int) -> int:
        return 11


class NoQueues:
    """`agents.queue_access.Queues`."""

    table = None

    async def open(self, shard: Any) -> Any:
        return self

    def close(self, shard: int) -> None: ...
    async def rest(self, shards: frozenset[int]) -> None: ...
    def go_on(self, shards: frozenset[int]) -> None: ...
    def advanced(self) -> None: ...


class Owner:
    """`agents.owner.OwnerLog`."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    async def open(self, shard: int) -> None:
        if self.failure is not None:
            raise self.failure

    async def close(self, shard: int) -> None: ...


def fact_record(
    offset: int,
    id: str = "id",
    tenant: str = "t",
    value: bytes = b"{}",
    *,
    type: str = "studio.lerian.lender.loan.paid",
    at_ms: int = NOW_MS,
    shard: int = 0,
) -> Rec:
    headers = [
        ("hub-tenant", tenant.encode()),
        ("hub-topic", b"lender"),
        ("hub-received-at", rfc3339_bytes(at_ms)),
        ("hub-origin-partition", b"3"),
        ("hub-origin-offset", b"%d" % offset),
        ("hub-schema", b"1"),
        ("ce-id", id.encode()),
        ("ce-source", b"lender"),
        ("ce-type", type.encode()),
    ]
    return Rec(NAMES.facts, shard, offset, at_ms, tenant.encode(), value, tuple(headers))


class World:
    """One worker's inbox. `answers` are what became of its batches."""

    def __init__(self, disk: Disk | None = None, log: FakeLog | None = None) -> None:
        self.disk = disk or Disk()
        self.log = log or FakeLog(lambda: NOW_MS)
        self.subscriptions, self.owner, self.metrics = Subscriptions(), Owner(), Metrics()
        self.lease = True
        self.epochs: dict[int, int] = defaultdict(int)
        self.epoch_failure: Exception | None = None
        self.stores: list[Any] = []
        self.reopened: list[int] = []
        self.answers: list[tuple[int, BaseException | None]] = []
        self.arrived: list[set[str]] = []
        self.inbox = Inbox(
            producer=cast("Any", self.log),
            names=NAMES,
            shards=2,
            subscriptions=cast("Any", self.subscriptions),
            metrics=self.metrics,
            dedup_window_ms=WINDOW_MS,
            events_retention_ms=WINDOW_MS,
            lease=lambda: self.lease,
            arrived=lambda shard, tenants: self.arrived.append(tenants),
        )
        self.shards = InboxShards(
            inbox=self.inbox,
            owner=cast("Any", self.owner),
            queues=cast("Any", NoQueues()),
            names=NAMES,
            data=cast("Any", self),
            memory=cast("Any", None),
            metrics=Metrics(),
            dedup_window_ms=WINDOW_MS,
            cluster_id=lambda: "cluster",
            epoch=lambda shard: self.epochs[shard],
            raise_epoch=self._raise_epoch,
            topic_ids=self.log.topic_ids,
            left=lambda shard: None,
            reopen=lambda shard, reason: self.reopened.append(shard),
            open_store=cast("Any", self._open_store),
        )

    async def _raise_epoch(self, shard: int, reason: str) -> None:
        if self.epoch_failure is not None:
            raise self.epoch_failure
        self.epochs[shard] += 1

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> MemoryStore:
        store = MemoryStore.open(self.disk, folder, **more)
        self.stores.append(store)
        return store

    def folder(self, plane: str, number: int) -> Path:
        return Path(f"/{plane}/{number}")

    async def open(self, shard: int = 0, *, committed: int = 0, begin: int = 0, end: int = 1_000) -> int:
        """Where reading is to begin."""
        topic = NAMES.facts
        starts = await self.shards.opened(shard, {topic: committed}, {topic: begin}, {topic: end})
        return starts[topic]

    def batch(self, *records: Rec, shard: int = 0) -> Batch:
        return Batch(
            shard=shard,
            topic=NAMES.facts,
            partition=shard,
            records=cast("Any", records),
            next_offset=records[-1].offset + 1,
            settled=lambda batch, error: self.answers.append((batch.shard, error)),
        )

    async def handle(self, *batches: Batch) -> None:
        def fail(batch: Batch, error: StoreFailed) -> None:
            batch.failed(error)

        await self.inbox.handle(batches, fail)

    async def take(self, *records: Rec) -> None:
        await self.handle(self.batch(*records))
