"""A deployment in one process: workers with real tables and real HTTP, over a log that is a list.

What is written is in the writer's tables at once, and in the others' when their tail reads on (`lag` holds it back)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson
from aiohttp import ClientSession, DummyCookieJar, web
from aiohttp.test_utils import TestServer, unused_port
from yarl import URL

from agents.archive import Archive
from agents.dead_letters import DeadLetters
from agents.dispatch_shard import DispatchShard
from agents.observer import readmit
from agents.operations import Operations
from agents.operator_log import OperatorEvents
from agents.queue_steps import Delivered, TokenError
from agents.registrations import KeyStore, OperationStore, SubscriptionStore
from agents.sinks import Sink
from hub_app.adapters.clock import SystemClock
from hub_app.derived import disable_policy
from hub_app.domain.errors import BrokerTrouble, Fenced, OutcomeUnknown
from hub_app.domain.health import Place
from hub_app.domain.ids import tenant_key
from hub_app.domain.operation import OperationKind
from hub_app.domain.publishing import Published, Unfit
from hub_app.domain.queue import Operation as QueueOperation
from hub_app.domain.queue_tokens import Token
from hub_app.domain.subscription import Subscription
from hub_app.ports import Clock
from hub_app.settings import Settings, parse
from hub_app.telemetry import Log, Metrics
from hub_app.topics import names, partition_for
from hub_app.web.arrivals import Arrivals
from hub_app.web.deps import WebDeps
from hub_app.web.peers import AiohttpPeers
from hub_app.web.routes import build_web
from hub_app.wire.record import Headers, Record
from tables import dead_letters, history, jobs
from tables.globals import GlobalTable
from tables.keys import KeysTable
from tables.memory import Family, Memory
from tables.operations import OperationsTable
from tables.shard import Identity, ShardStore
from tables.subscriptions import SubscriptionsTable
from tests.fakes.entropy import FakeEntropy
from tests.fakes.inbox import FakeInbox
from tests.fakes.keyring import FakeKeyring, Vault
from tests.fakes.outbox import FakeOutbox
from tests.fakes.queues import QueueWorld
from tests.fakes.sender import FakeSender

ADMIN_KEY = "bootstrap-admin-key"
NAMES = names("hub.")


class Entry(NamedTuple):
    topic: str
    partition: int
    offset: int
    record: Record


class Followed(NamedTuple):
    """A record as a follower sees it."""

    offset: int
    headers: Headers
    value: bytes | None


class Reason(NamedTuple):
    since_ms: int
    text: str
    blocks: bool = True


class Cluster:
    """What the workers share: the log, who owns which shard, the shards' facts, the vault of the keys."""

    def __init__(self, shards: int = 4) -> None:
        self.shards = shards
        self.log: list[Entry] = []
        self.owner: dict[int, Worker] = {}
        self._folder: TemporaryDirectory[str] | None = None
        self.inboxes = {shard: FakeInbox(partial(self._store, shard)) for shard in range(shards)}
        self.sinks: dict[int, DispatchShard] = {}
        self.sink_owner: dict[int, Worker] = {}
        self.held: dict[Place, Sink] = {}
        self.log_begins: dict[tuple[str, int], int] = {}
        self.vault = Vault()
        self.workers: list[Worker] = []

    def shard_of(self, tenant: str) -> int:
        return partition_for(tenant_key(tenant), self.shards)

    def give(self, tenant: str, worker: Worker | None) -> None:
        """Moves the tenant's shard; None: nobody has it."""
        shard = self.shard_of(tenant)
        self.owner.pop(shard, None)
        if worker is not None:
            worker.catch_up()
            self.owner[shard] = worker
        for other in self.workers:
            other.arrivals.notify_all()

    def append(self, topic: str, partition: int, record: Record) -> int:
        offset = sum(entry[:2] == (topic, partition) for entry in self.log)
        self.log.append(Entry(topic, partition, offset, record))
        for worker in self.workers:
            if not worker.lags:
                worker.catch_up()
        if topic == NAMES.dlq and partition in self.owner:
            seen = Followed(offset, record.headers, record.value)
            self.owner[partition].dead_letters.take_in(partition, [seen], offset + 1)
        return offset

    def sink(self, shard: int) -> DispatchShard:
        """A dispatch shard with real tables, made when it is first asked for."""
        if shard not in self.sinks:
            store = self._open(f"dispatch-{shard}", shard, (*jobs.FAMILIES, *history.FAMILIES))
            self.sinks[shard] = DispatchShard(shard, jobs.JobTable(store, shard, jobs.LastRule(8, 24 * 3_600_000)))
        return self.sinks[shard]

    def _store(self, shard: int) -> ShardStore:
        return self._open(f"inbox-{shard}", shard, dead_letters.FAMILIES)

    def _open(self, name: str, shard: int, families: tuple[Family, ...]) -> ShardStore:
        """A real one: what is made from logs is not worth a fake."""
        self._folder = self._folder or TemporaryDirectory()
        folder, identity = Path(self._folder.name) / name, Identity("fake", 0, 1)
        return ShardStore.open(
            folder, plane="inbox", shard=shard, families=families, memory=Memory(), identity=identity
        )

    def close(self) -> None:
        for sink in self.sinks.values():
            sink.table.store.close()
        for inbox in self.inboxes.values():
            inbox.close()
        if self._folder is not None:
            self._folder.cleanup()


class Worker:
    """`hub_app.web.deps.{Owners, KeysTail}` and the owner's log of one worker. `write_fails` is raised by the next
    writes, after the record is in the log if it says that it may be."""

    def __init__(self, cluster: Cluster, clock: Clock, sender: FakeSender, keks: tuple[str, ...], **given: str) -> None:
        self.cluster, self.clock, self.sender = cluster, clock, sender
        self.lags = False
        self.keys_known = True
        self.refreshable = True
        self.write_fails: type[Fenced] | type[BrokerTrouble] | None = None
        self.is_stopping = False
        self.reasons: dict[str, Reason] = {}
        self.stale_owner: dict[int, str] = {}
        self.queue_world: QueueWorld | None = None
        self.arrivals, self.metrics = Arrivals(), Metrics()
        self.refreshes = 0
        self._read = 0
        self.subscriptions, self.keys = SubscriptionsTable(NAMES.subscriptions), KeysTable(NAMES.keys)
        self.operations = OperationsTable(NAMES.operations)
        tables: tuple[GlobalTable[Any], ...] = (self.subscriptions, self.keys, self.operations)
        self.tables = {table.topic: table for table in tables}
        self.settings = _settings(cluster.shards, unused_port(), given)
        self.deps = self._deps(keks)
        self.server: TestServer | None = None
        cluster.workers.append(self)
        self.catch_up()

    async def start(self) -> None:
        application = web.Application(client_max_size=8 << 20)
        application.add_routes(build_web(self.deps))
        self.server = TestServer(application, port=self.settings.http_port)
        await self.server.start_server()

    async def close(self) -> None:
        await self.deps.peers.close()
        if self.server is not None:
            await self.server.close()

    @property
    def url(self) -> str:
        return self.settings.http_advertised_url

    def catch_up(self) -> None:
        for topic, partition, offset, record in self.cluster.log[self._read :]:
            if (table := self.tables.get(topic)) is not None:
                table.apply(partition, offset, record.key, record.value, record.headers)
        self._read = len(self.cluster.log)

    # -- the owner's log -----------------------------------------------------------------------------------------------
    async def write(self, shard: int, topic: str, record: Record) -> int:
        if not self.is_here(shard) or self.write_fails is Fenced:
            raise Fenced("not the owner")
        if self.write_fails is not None and self.write_fails is not OutcomeUnknown:
            raise self.write_fails("no acknowledgement")
        await asyncio.sleep(0)
        self.catch_up()
        offset = self.cluster.append(topic, shard, record)
        if self.write_fails is OutcomeUnknown:
            raise OutcomeUnknown("no acknowledgement")
        self.catch_up()
        return offset

    # -- owners --------------------------------------------------------------------------------------------------------
    def is_here(self, shard: int) -> bool:
        return self.cluster.owner.get(shard) is self

    def inbox(self, shard: int) -> FakeInbox | None:
        return self.cluster.inboxes[shard] if self.is_here(shard) else None

    async def url_of(self, shard: int) -> str | None:
        if shard in self.stale_owner:
            return self.stale_owner.pop(shard)
        owner = self.cluster.owner.get(shard)
        return owner.url if owner else None

    # -- the keys' tail ------------------------------------------------------------------------------------------------
    @property
    def caught_up(self) -> bool:
        return self.keys_known

    async def refresh(self, timeout_ms: int) -> bool:
        self.refreshes += 1
        if self.refreshable:
            self.catch_up()
        return self.refreshable

    # -- bulk operations -----------------------------------------------------------------------------------------------
    def outbox(self) -> FakeOutbox:
        return FakeOutbox(self.cluster)

    async def run_operations(self, steps_max: int = 1_000) -> None:
        """Until nothing that could run here is running."""
        for _ in range(steps_max):
            moved = [await self.runner.advance(one) for one in self.operations.running()]
            if not any(moved):
                return
        raise AssertionError("operations do not come to an end")

    def _deps(self, keks: tuple[str, ...]) -> WebDeps:
        settings, cluster, clock = self.settings, self.cluster, self.clock
        ttl_ms = settings.idempotency_ttl_ms
        operation_store = OperationStore(
            self, self.operations, shards=cluster.shards, clock=clock, idempotency_ttl_ms=ttl_ms
        )
        self.runner = Operations(
            outbox=self.outbox,
            names=NAMES,
            shards=cluster.shards,
            here=self,
            table=self.operations,
            store=operation_store,
            subscriptions=self.subscriptions,
            clock=clock,
            give_again=LateQueues(self).give_again,
        )
        self.dead_letters = DeadLetters(
            outbox=self.outbox,
            names=NAMES,
            shards=cluster.shards,
            inbox=self.inbox,
            subscriptions=self.subscriptions,
            clock=clock,
            retention_ms=settings.dead_letter_retention_ms,
            give_again=LateQueues(self).give_again,
        )
        self.runner.steps[OperationKind.REDRIVE] = self.dead_letters.step
        return WebDeps(
            settings=settings,
            version="0.0.0",
            admin_key=settings.admin_key,
            clock=clock,
            entropy=FakeEntropy(seed=len(cluster.workers)),
            keyring=FakeKeyring(*keks, vault=cluster.vault),
            sender=self.sender,
            keys=self.keys,
            keys_tail=self,
            key_store=KeyStore(self, self.keys, shards=cluster.shards, clock=clock, idempotency_ttl_ms=ttl_ms),
            subscriptions=self.subscriptions,
            subscription_store=SubscriptionStore(
                self, self.subscriptions, shards=cluster.shards, clock=clock, idempotency_ttl_ms=ttl_ms
            ),
            operations=self.operations,
            operation_store=operation_store,
            operation_begun=self.runner.wake,
            dead_letters=self.dead_letters,
            queues=LateQueues(self),
            publisher=LateQueues(self),
            owners=self,
            sinks=FakeSinkOwners(self),
            archive=Archive(LogOf(cluster), cluster.shards),
            operator_events=OperatorEvents(LogOf(cluster), NAMES.operator, cluster.shards),
            held_against=cluster.held.get,
            disabling=disable_policy(settings),
            readmit=partial(readmit, self.outbox, NAMES, cluster.shards, clock),
            peers=AiohttpPeers(),
            readiness=lambda: self.reasons,
            stopping=lambda: self.is_stopping,
            metrics=self.metrics,
            log=Log("web"),
            arrivals=self.arrivals,
        )


class LateQueues:
    """`hub_app.web.deps.{QueueAccess, PublishAccess}`: those of the world that a test gives to the worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def _world(self) -> QueueWorld:
        if self._worker.queue_world is None:
            raise Fenced("no shard is open here")
        return self._worker.queue_world

    async def receive(self, shard: int, subscription: Subscription, **asked: Any) -> list[Delivered]:
        return await self._world().queues.receive(shard, subscription, **asked)

    async def settle(
        self,
        shard: int,
        subscription: Subscription,
        operation: QueueOperation,
        tokens: Sequence[Token | None],
        **asked: Any,
    ) -> list[TokenError | None]:
        return await self._world().queues.settle(shard, subscription, operation, tokens, **asked)

    async def give_again(self, shard: int, subscription: Subscription, seqs: Sequence[int], series: str) -> list[int]:
        return await self._world().queues.give_again(shard, subscription, seqs, series)

    async def publish(self, tenant: str, topic: str, events: Sequence[Published]) -> Unfit | None:
        return await self._world().publisher.publish(tenant, topic, events)


class LogOf:
    """`agents.archive.LogReader` over the cluster's log; broker time is 0."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def _entries(self, topic: str, partition: int) -> list[Entry]:
        return [entry for entry in self._cluster.log if entry[:2] == (topic, partition)]

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return {partition: self._cluster.log_begins.get((topic, partition), 0) for partition in partitions}

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return {partition: len(self._entries(topic, partition)) for partition in partitions}

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        return None

    async def read_range(
        self, topic: str, partition: int, start: int, stop: int, *, records_max: int = 100
    ) -> AsyncIterator[Sequence[SimpleNamespace]]:
        for entry in self._entries(topic, partition)[start:stop]:
            record = entry.record
            yield [
                SimpleNamespace(
                    topic=topic,
                    partition=partition,
                    offset=entry.offset,
                    timestamp=0,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
            ]


class FakeSinkOwners:
    """`hub_app.web.deps.SinkOwners` of one worker."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._cluster = worker, worker.cluster

    def shard(self, number: int) -> DispatchShard | None:
        return self._cluster.sink(number) if self._cluster.sink_owner.get(number) is self._worker else None

    async def url_of(self, shard: int) -> str | None:
        owner = self._cluster.sink_owner.get(shard)
        return owner.url if owner else None


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    json: object
    body: bytes


class Deployment:
    """Workers, and somebody who asks them."""

    def __init__(self, shards: int = 4) -> None:
        self.cluster = Cluster(shards)
        self._session = ClientSession(cookie_jar=DummyCookieJar())

    async def worker(
        self,
        *,
        clock: Clock | None = None,
        sender: FakeSender | None = None,
        keks: tuple[str, ...] = ("K1",),
        **given: str,
    ) -> Worker:
        """Starts a worker; the first one owns every shard. `given` are settings, without the prefix."""
        worker = Worker(self.cluster, clock or SystemClock(), sender or FakeSender(), keks, **given)
        await worker.start()
        if len(self.cluster.workers) == 1:
            self.cluster.owner = dict.fromkeys(range(self.cluster.shards), worker)
            self.cluster.sink_owner = dict(self.cluster.owner)
        return worker

    async def close(self) -> None:
        await self._session.close()
        for worker in self.cluster.workers:
            await worker.close()
        self.cluster.close()

    async def ask(
        self,
        worker: Worker,
        method: str,
        path: str,
        *,
        key: str | None = None,
        json: object = None,
        data: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        sent = dict(headers or {})
        if key is not None:
            sent["Authorization"] = f"Bearer {key}"
        url = URL(worker.url + path, encoded=True)
        async with self._session.request(
            method, url, json=json, data=data, headers=sent, allow_redirects=False
        ) as answer:
            body = await answer.read()
            parsed = orjson.loads(body) if "json" in answer.content_type and body else None
            return Reply(answer.status, answer.headers.copy(), parsed, body)

    async def key(self, worker: Worker, tenant: str, *scopes: str) -> str:
        """Makes an API key, as an admin would."""
        reply = await self.ask(
            worker,
            "POST",
            f"/admin/tenants/{quote(tenant, safe='')}/keys",
            key=ADMIN_KEY,
            json={"scopes": list(scopes or ("publish", "receive", "manage"))},
        )
        assert reply.status == 201, reply
        assert isinstance(reply.json, dict)
        return str(reply.json["key"])


def _settings(shards: int, port: int, given: Mapping[str, str]) -> Settings:
    environ = {
        "SHARDS": str(shards),
        "ADMIN_KEY": ADMIN_KEY,
        "HTTP_LISTEN_ADDR": f"127.0.0.1:{port}",
        "RATE_LIMIT_MAX": "100000",
        "AGGRESSIVE_RATE_LIMIT_MAX": "100000",
        "RELAXED_RATE_LIMIT_MAX": "100000",
        "PULL_BURST": "100000",
        **given,
    }
    settings = parse({f"STREAMING_HUB_{name}": text for name, text in environ.items()})
    assert isinstance(settings, Settings), settings
    return replace(settings, warnings=())
