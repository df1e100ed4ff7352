"""The processes of one run of the demo, all of which end with it, however it ends."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from aiokafka.admin import AIOKafkaAdminClient

from hub_app.dev.demo import producer, stage
from hub_app.dev.demo.plan import Plan
from hub_app.dev.demo.stage import DemoFailed, SinkClient
from hub_app.dev.facts import make_topics, topic_of
from hub_app.dev.kafka import Cluster, External, from_environment
from hub_app.dev.kafka.guard import Guard
from hub_app.dev.kafka.ports import HOST, free_ports
from hub_app.dev.worker import Worker
from hub_app.topics import Names, names

STOP_SECONDS_MAX = 20.0

Kafka = Cluster | External


@contextmanager
def kafka_for(folder: Path, say: Callable[[str], None]) -> Iterator[Kafka]:
    """The one of KAFKA_BROKERS, or one of the run's own, of which nothing is left."""
    if (external := from_environment()) is not None:
        say(f"using the Kafka at {external.bootstrap}")
        stage.check_alone(external)
        yield external
        return
    say("starting Kafka")
    cluster = Cluster(folder / "kafka")
    try:
        yield cluster.start()
    finally:
        cluster.wipe()


@contextmanager
def topics_for(kafka: Kafka, run: str, facts: int) -> Iterator[tuple[Plan, Names]]:
    """What is published, and where the hub keeps its topics. On a Kafka that others use, both have names of this run,
    and are deleted."""
    shared = isinstance(kafka, External)
    plan = Plan(run, facts, suffix=f"-{run}" if shared else "")
    found = names(f"demo-{run}." if shared else "hub.")
    asyncio.run(make_topics(kafka.bootstrap, plan.sources))
    try:
        yield plan, found
    finally:
        if shared:
            asyncio.run(_delete(kafka.bootstrap, found.prefix, plan.sources))


async def _delete(bootstrap: str, prefix: str, sources: tuple[str, ...]) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        own = {topic_of(source) for source in sources}
        await admin.delete_topics(
            [name for name in await admin.list_topics() if name in own or name.startswith(prefix)]
        )
    finally:
        await admin.close()


class Cast(NamedTuple):
    """What runs, beside Kafka. `started` are all the processes, by what to call them."""

    workers: list[Worker]
    sink: SinkClient
    guard: Guard
    folder: Path
    started: dict[str, subprocess.Popen[bytes]]

    def urls(self) -> list[str]:
        return [worker.url for worker in self.workers]

    def spawn(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """A further process, with a log of its own."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, process_group=self.guard.group
            )
        self.started[name] = process
        return process

    def publish(self, bootstrap: str, plan: Plan, seconds: float) -> None:
        """Starts the producer."""
        self.spawn("producer", producer.command(bootstrap, plan, seconds))

    def check(self) -> None:
        """DemoFailed when something has ended that should not have; the producer may, if it ended well."""
        for name, process in self.started.items():
            status = process.poll()
            if status is not None and (name, status) != ("producer", 0):
                raise DemoFailed(f"the {name} ended with status {status}")

    def end_workers(self) -> tuple[int, ...]:
        """Ends them together. Their exit statuses: 0 is well, -9 is one that took too long."""
        processes = [worker.process for worker in self.workers if worker.process is not None]
        return tuple(stage.end(processes, STOP_SECONDS_MAX))


@contextmanager
def cast_for(kafka: Kafka, topics: Names, folder: Path, *, skip: int) -> Iterator[Cast]:
    """Workers and sink, started and ready. DemoFailed when one does not become so."""
    with ExitStack() as ending:
        guard = Guard()
        ending.callback(guard.close)
        *ports, sink_port = free_ports(stage.WORKERS + 1)
        made = Cast(
            stage.workers(kafka.bootstrap, folder, ports, topic_prefix=topics.prefix),
            SinkClient(f"http://{HOST}:{sink_port}"),
            guard,
            folder,
            {},
        )
        ending.callback(lambda: stage.end(made.started.values(), STOP_SECONDS_MAX))
        made.spawn("sink", stage.sink_command(sink_port, skip))
        for number, worker in enumerate(made.workers, 1):
            process = worker.start(process_group=guard.group).process
            assert process is not None
            made.started[f"worker {number}"] = process
        try:
            for worker in made.workers:
                worker.wait_ready(stage.READY_SECONDS_MAX)
        except RuntimeError as error:
            raise DemoFailed(str(error)) from error
        made.sink.wait_ready()
        yield made
