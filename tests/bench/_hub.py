"""A broker, workers and tenants for benchmarks of the whole hub; everything of a run lies in one temporary folder."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import uvloop
from aiokafka import AIOKafkaConsumer, TopicPartition

from hub_app.dev.facts import FactProducer, NewFact, make_topics
from hub_app.dev.kafka import Cluster, from_environment
from hub_app.dev.worker import Api, Worker
from tests.bench._lib import Usage, progress, rss_mib

BODY = b'{"note":"' + os.urandom(507).hex().encode() + b'"}'
"""1 KiB that does not compress."""
TENANTS = 10
SHARDS = 12


class Bench:
    """One broker and a folder. Workers made here are ended with it."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap, self.folder = bootstrap, folder
        self.workers: list[Worker] = []
        self._made = 0

    def worker(self, prefix: str, **settings: Any) -> Worker:
        """A worker of the deployment `prefix`, not started. The settings are those of the quickest honest run."""
        self._made += 1
        made = Worker(self.bootstrap, self.folder / f"w{self._made}", topic_prefix=prefix, **settings)
        self.workers.append(made)
        return made

    def worker_of_another(self, name: str, **settings: Any) -> Worker:
        """The same, of a deployment with consumer groups and topics of its own on the same broker."""
        own = {"topic_replication": 1, "allow_insecure_kafka": "true", "dev_kek": "", "kek_ref": "BENCH_KEK"}
        made = self.worker(f"{name}.", env=name, **own, **settings)
        made.environment["BENCH_KEK"] = base64.b64encode(secrets.token_bytes(32)).decode()
        return made

    def end_workers(self) -> None:
        for worker in self.workers:
            if worker.alive():
                worker.stop()
        self.workers.clear()


@contextlib.contextmanager
def bench() -> Iterator[Bench]:
    with tempfile.TemporaryDirectory(prefix="hub-bench-") as folder:
        external = from_environment()
        if external is not None:
            yield from _within(Bench(external.bootstrap, Path(folder)))
            return
        progress("starting a broker")
        with Cluster(Path(folder) / "kafka") as cluster:
            yield from _within(Bench(cluster.bootstrap, Path(folder)))


def _within(made: Bench) -> Iterator[Bench]:
    try:
        yield made
    finally:
        for worker in made.workers:
            worker.kill()


def new_source() -> str:
    """A source nobody used: benchmarks on a broker of yours see only their own facts."""
    return f"bench-{secrets.token_hex(4)}"


def facts(source: str, count: int, *, start: int = 0, tenants: int = TENANTS) -> list[NewFact]:
    return [
        NewFact(id=f"{source}-{i}", tenant=f"tenant-{i % tenants}", source=source, body=BODY)
        for i in range(start, start + count)
    ]


def preload(bootstrap: str, made: Sequence[NewFact]) -> None:
    """Writes facts to their topic; all acknowledged."""

    async def run() -> None:
        await make_topics(bootstrap, {fact.source for fact in made})
        async with FactProducer(bootstrap, compression=None) as producer:
            await producer.send_many(made)

    uvloop.run(run())


def subscribe(api: Api, urls: Sequence[str]) -> None:
    """Tenant i of the benchmark subscribes the i-th URL to everything."""
    for i, url in enumerate(urls):
        api.tenant(f"tenant-{i}").subscribe(url, "*")


class Sample(NamedTuple):
    done: float
    usage: Usage
    rss_mib: float


def watch(worker: Worker, done: Callable[[], float], target: float, *, seconds: float = 180) -> list[Sample]:
    """Samples progress, CPU and memory of a worker until `done()` reaches `target`. RuntimeError when it does not."""
    samples: list[Sample] = []
    ends = time.monotonic() + seconds
    while True:
        sample = Sample(done(), Usage.now(worker.pid), rss_mib(worker.pid))
        samples.append(sample)
        if sample.done >= target:
            return samples
        if time.monotonic() > ends or not worker.alive():
            raise RuntimeError(f"{sample.done:.0f} of {target:.0f} after {seconds} s\n{worker.log_tail()}")
        time.sleep(0.05)


def slope(samples: Sequence[Sample], low: float = 0.1, high: float = 0.95) -> tuple[float, float]:
    """(items a second, CPU µs an item) between two shares of the way, so that starting and ending do not count."""
    last = samples[-1].done
    begin = next(s for s in samples if s.done >= low * last)
    end = next(s for s in samples if s.done >= high * last)
    if end is begin:
        begin = samples[0]
    items, spent = end.done - begin.done, end.usage.since(begin.usage)
    return items / spent.at_s, 1e6 * spent.cpu_s / items


class Committed:
    """How far a consumer group has committed a topic, asked from a thread of its own loop."""

    def __init__(self, bootstrap: str, group: str, topic: str, partitions: int = SHARDS) -> None:
        self._loop = asyncio.new_event_loop()
        self._places = [TopicPartition(topic, p) for p in range(partitions)]
        self._consumer = self._loop.run_until_complete(self._open(bootstrap, group))

    async def _open(self, bootstrap: str, group: str) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        consumer.assign(self._places)
        return consumer

    def __call__(self) -> float:
        async def ask() -> float:
            return sum([await self._consumer.committed(place) or 0 for place in self._places])

        return self._loop.run_until_complete(ask())

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()
