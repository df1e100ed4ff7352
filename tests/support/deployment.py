"""A deployment of the hub on a shared Kafka: its own topics, groups, sources and workers. All but the (then empty)
groups are removed in the end."""

from __future__ import annotations

import asyncio
import base64
import secrets
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from hub_app.dev.facts import FactProducer, NewFact, make_topics, topic_of
from hub_app.dev.kafka.guard import Guard
from hub_app.dev.worker import Api, Worker
from hub_app.kafka.assignor import read_owners
from tests.support.background import Background
from tests.support.waiting import until

SHARDS = 4
KEK = "TEST_KEY_ENCRYPTION_KEY"
SETTINGS: Mapping[str, str] = {
    "shards": str(SHARDS),
    "topic_replication": "1",
    "allow_insecure_kafka": "true",
    "dev_kek": "",
    "kek_ref": KEK,
    "metadata_max_age": "500ms",
    "shutdown_timeout": "10s",
    # Tests of other things let sinks fail often.
    "breaker_failures": "1000000",
}


class GuardedWorker(Worker):
    """A worker that does not outlive the tests, however they end."""

    guard: Guard

    def start(self, **options: Any) -> Worker:
        return super().start(**{"process_group": self.guard.group, **options})


class Deployment:
    """`settings` are those of every worker. Group names carry ENV, topic names the prefix: nobody else has either.

    The hub reads every producer's topic there is: count only what has your own ids."""

    def __init__(self, background: Background, bootstrap: str, folder: Path, **settings: str) -> None:
        self._background, self.bootstrap, self.folder = background, bootstrap, folder
        self.run_id = secrets.token_hex(4)
        self.prefix, self.env = f"t{self.run_id}.", f"t{self.run_id}"
        self.settings = {"topic_prefix": self.prefix, "env": self.env, **SETTINGS, **settings}
        self.workers: list[Worker] = []
        self._sources: set[str] = set()
        self._reader, self._guard = Reader(bootstrap), Guard()
        self._kek = base64.b64encode(secrets.token_bytes(32)).decode()

    # -- workers -------------------------------------------------------------------------------------------------------
    def worker(self, *, data: Path | None = None, **settings: str) -> Worker:
        """One more, not started, with a data folder of its own unless one is given."""
        folder = data or self.folder / f"worker-{len(self.workers) + 1}"
        made = GuardedWorker(self.bootstrap, folder, **{**self.settings, **settings})
        made.guard = self._guard
        made.environment[KEK] = self._kek
        self.workers.append(made)
        return made

    def started(self, **settings: str) -> Worker:
        return self.worker(**settings).start().wait_ready()

    def metric(self, name: str) -> float:
        """The sum over the workers that live."""
        return sum(worker.metric(name) for worker in self.workers if worker.alive())

    # -- producers -----------------------------------------------------------------------------------------------------
    def source(self, label: str = "app", *, create: bool = True) -> str:
        """A producer's name that nobody else has, with its topic."""
        source = f"{label}-{secrets.token_hex(4)}"
        self._sources.add(source)
        if create:
            self.run(make_topics(self.bootstrap, [source]))
        return source

    async def make_topic(self, name: str, config: Mapping[str, str], partitions: int = 4) -> None:
        """A topic that is not like the others."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            answer = await admin.create_topics([NewTopic(name, partitions, 1, topic_configs=dict(config))])
            assert not any(error[1] for error in answer.topic_errors), answer
        finally:
            await admin.close()

    async def delete_topic(self, name: str) -> None:
        """Returns when it is gone."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            await admin.delete_topics([name])
            while name in await admin.list_topics():
                await asyncio.sleep(0.05)
        finally:
            await admin.close()

    async def list_topics(self) -> list[str]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return sorted(await admin.list_topics())
        finally:
            await admin.close()

    def send(self, facts: Sequence[NewFact], *, compression: str | None = "lz4") -> None:
        """All acknowledged."""

        async def produce() -> None:
            async with FactProducer(self.bootstrap, compression=compression) as producer:
                await producer.send_many(facts)

        self.run(produce())

    # -- looking -------------------------------------------------------------------------------------------------------
    def api(self, worker: Worker, tenant: str) -> Api:
        return Api(worker.url).tenant(tenant)

    def owners(self, plane: str) -> Mapping[int, str]:
        """shard -> URL of its owner, as the broker has it; empty while the group is rebalancing."""

        async def look() -> Mapping[int, str]:
            admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
            await admin.start()
            try:
                return await read_owners(admin, f"streaming-hub-{plane}.{self.env}") or {}
            finally:
                await admin.close()

        return self.run(look())

    def wait_owners(self, *workers: Worker, seconds: float = 40) -> None:
        """Until these, and no others, own every shard of both planes, about equally many each, and say ready."""
        urls = {worker.url for worker in workers}

        def settled() -> bool:
            for plane in ("inbox", "dispatch"):
                owners = self.owners(plane)
                if set(owners.values()) != urls or len(owners) != int(self.settings["shards"]):
                    return False
                shares = [list(owners.values()).count(url) for url in urls]
                if max(shares) - min(shares) > 1:
                    return False
            return all(worker.get("/readyz")[0] == 200 for worker in workers)

        until(settled, lambda: [self.owners("inbox"), *(w.get("/readyz") for w in workers)], seconds=seconds)

    def lag(self, plane: str, topic: str, shard: int) -> int:
        """Records of an internal topic's partition that the plane's group has not committed."""
        tp = TopicPartition(self.prefix + topic, shard)

        async def look() -> int:
            group = f"streaming-hub-{plane}.{self.env}"
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self.bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="none"
            )
            await consumer.start()
            try:
                consumer.assign([tp])
                end = (await consumer.end_offsets([tp]))[tp]
                return int(end - (await consumer.committed(tp) or 0))
            finally:
                await consumer.stop()

        return self.run(look())

    def records(self, topic: str) -> list[ConsumerRecord]:
        """Everything an internal topic holds now (`attempts`, `retry.1s`), read committed."""
        return self.run(self._reader.read_all(self.prefix + topic))

    def wait_records(self, topic: str, count: int, header: tuple[str, str], *, seconds: float = 30) -> list[Any]:
        """Records of an internal topic with this header, once there are `count`."""
        name, value = header

        def found() -> list[ConsumerRecord] | None:
            mine = [r for r in self.records(topic) if dict(r.headers).get(name) == value.encode()]
            return mine if len(mine) >= count else None

        result = until(found, f"{count} records in {topic} with {name}={value}", seconds=seconds)
        assert result is not None
        return result

    def run(self, work: Any, seconds: float = 60) -> Any:
        return self._background.run(work, seconds)

    def start(self, work: Any) -> Future[Any]:
        """As `run`, beside the test."""
        return self._background.start(work)

    # -- ending --------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self._guard.close()
        with suppress(KafkaError, OSError):
            self.run(self._reader.close())
            self.run(self._remove())

    async def _remove(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            mine = [topic_of(source) for source in self._sources]
            topics = [t for t in await admin.list_topics() if t.startswith(self.prefix) or t in mine]
            if topics:
                await admin.delete_topics(topics)
        finally:
            await admin.close()


class Reader:
    """Reads whole topics, one after another, over one connection."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._consumer: AIOKafkaConsumer | None = None

    async def read_all(self, topic: str) -> list[ConsumerRecord]:
        """Every record of a topic, read committed, up to where its partitions end now."""
        consumer = await self._started()
        parts = await self._partitions(consumer, topic)
        consumer.assign(parts)
        ends = await consumer.end_offsets(parts)
        for tp, begin in (await consumer.beginning_offsets(parts)).items():
            consumer.seek(tp, begin)
        found: list[ConsumerRecord] = []
        while any([await consumer.position(tp) < ends[tp] for tp in parts]):
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
        return [r for r in found if r.offset < ends[TopicPartition(topic, r.partition)]]

    async def _started(self) -> AIOKafkaConsumer:
        if self._consumer is None:
            self._consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed",
                enable_auto_commit=False,
                fetch_max_wait_ms=20,
            )
            await self._consumer.start()
        return self._consumer

    async def _partitions(self, consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
        consumer._client.add_topic(topic)
        while not (found := consumer.partitions_for_topic(topic)):
            await consumer._client.force_metadata_update()
            await asyncio.sleep(0.05)
        return [TopicPartition(topic, p) for p in sorted(found)]

    async def close(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()


def header(record: ConsumerRecord, name: str) -> str:
    """A header's text; KeyError when it is not there."""
    return dict(record.headers)[name].decode()


def facts(source: str, count: int, *, tenants: Iterable[str] = ("acme",), start: int = 0, **more: Any) -> list[NewFact]:
    """Ordinary facts with ids of their own, the tenants in turn."""
    names = list(tenants)
    return [
        NewFact(id=f"{source}-{i}", tenant=names[i % len(names)], source=source, **more)
        for i in range(start, start + count)
    ]
