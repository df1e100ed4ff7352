"""`make up` and `make down`: the demo left running, on the development Kafka of this checkout, and ended.

What runs is known by pid files in `.hub/up`, which hold a lock as long as their process lives. Data stays: the next
`up` goes on where `down` left off.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hub_app.dev.demo import commands, producer, stage
from hub_app.dev.demo.plan import TENANTS, WISHES, Plan
from hub_app.dev.demo.stage import DemoFailed, SinkClient
from hub_app.dev.facts import make_topics
from hub_app.dev.kafka import Cluster, from_environment
from hub_app.dev.kafka.jars import cache_home
from hub_app.dev.kafka.ports import HOST, free_ports, is_free
from hub_app.dev.pidfile import PidFile
from hub_app.dev.worker import ADMIN_KEY, Worker
from hub_app.topics import names

Say = Callable[[str], None]

KAFKA_PORT, SINK_PORT, HUB_PORTS = 9092, 9000, (8080, 8081)
STOP_SECONDS_MAX: Final = 30.0
PUBLISH_SECONDS: Final = 3.0
TIER: Final = "1s"


class Standing:
    """The folder of what `up` started."""

    def __init__(self, home: Path) -> None:
        self.folder, self.note = home / "up", home / "up" / "up.json"
        self.kafka_home = home / "broker"
        self.workers = [PidFile(self.folder / f"worker-{number}.pid") for number in range(1, stage.WORKERS + 1)]
        self.sink = PidFile(self.folder / "sink.pid")

    def running(self) -> list[PidFile]:
        return [one for one in (*self.workers, self.sink) if one.pid() is not None]

    def known(self) -> dict[str, Any]:
        """What `up` noted; empty when nothing was."""
        try:
            noted: dict[str, Any] = json.loads(self.note.read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return noted

    def write(self, **noted: Any) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.note.write_text(json.dumps(self.known() | noted))


def up(facts: int, say: Say, home: Path | None = None) -> int:
    """Starts what does not run, subscribes, publishes `facts`, and leaves it so. 0. DemoFailed, BrokerFailed and
    KafkaUnavailable when that cannot be; then nothing that this call started is left."""
    standing = Standing(home or cache_home())
    if len(standing.running()) == stage.WORKERS + 1 and standing.known():
        say("it is up already")
        _tell(standing, say)
        return 0
    if standing.known():  # a part of it died, or was started by an `up` that did
        down(lambda _: None, home)
    try:
        _start(standing, facts, say)
    except BaseException:
        down(lambda _: None, home)
        raise
    _tell(standing, say)
    return 0


def down(say: Say, home: Path | None = None) -> int:
    """Ends what `up` started: workers and sink, and Kafka if it was not running before. 0, also when nothing runs."""
    standing = Standing(home or cache_home())
    for one in (*standing.workers, standing.sink):
        one.signal(signal.SIGTERM)
    for one in (*standing.workers, standing.sink):
        one.await_end(STOP_SECONDS_MAX)
    if standing.known().get("kafka_is_ours"):
        Cluster(standing.kafka_home, owned=False).stop()
    standing.note.unlink(missing_ok=True)
    say("everything is ended; data stays until `python -m hub_app.dev.broker wipe`")
    return 0


def _start(standing: Standing, facts: int, say: Say) -> None:
    bootstrap = _kafka(standing, say)
    plan = Plan(stage.new_run(), facts)
    asyncio.run(make_topics(bootstrap, plan.sources))
    sink = SinkClient(f"http://{HOST}:{_port(SINK_PORT)}")
    log = standing.folder / "sink.log"
    standing.sink.start(lambda lock: _spawn(stage.sink_command(int(sink.url.rpartition(":")[2])), log, lock))
    workers = stage.workers(bootstrap, standing.folder, map(_port, HUB_PORTS))
    for worker, pid_file in zip(workers, standing.workers, strict=True):
        pid_file.start(lambda lock, worker=worker: _started(worker, lock))  # type: ignore[misc]
    standing.write(urls=[worker.url for worker in workers], sink=sink.url, bootstrap=bootstrap)
    say("starting two hub workers and a sink")
    try:
        for worker in workers:
            worker.wait_ready(stage.READY_SECONDS_MAX)
    except RuntimeError as error:
        raise DemoFailed(str(error)) from error
    sink.wait_ready()
    stage.subscribe([worker.url for worker in workers], sink)
    say(f"publishing {len(plan.records)} records")
    subprocess.run(producer.command(bootstrap, plan, PUBLISH_SECONDS), check=True)


def _kafka(standing: Standing, say: Say) -> str:
    """The Kafka of KAFKA_BROKERS, or the development one, started if it does not run."""
    if (external := from_environment()) is not None:
        say(f"using the Kafka at {external.bootstrap}")
        stage.check_alone(external)
        standing.write(external=external.bootstrap)
        return external.bootstrap
    port = KAFKA_PORT if is_free(KAFKA_PORT) and is_free(KAFKA_PORT + 1) else None
    cluster = Cluster(standing.kafka_home, port=port, owned=False)
    if not any(node.pid for node in cluster.status()):
        say("starting Kafka")
        standing.write(kafka_is_ours=True)
    return cluster.start().bootstrap


def _port(usual: int) -> int:
    return usual if is_free(usual) else free_ports(1)[0]


def _started(worker: Worker, lock: int) -> subprocess.Popen[bytes]:
    process = worker.start(start_new_session=True, pass_fds=(lock,)).process
    assert process is not None
    return process


def _spawn(command: list[str], log: Path, lock: int) -> subprocess.Popen[bytes]:
    with log.open("ab") as out:
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, pass_fds=(lock,)
        )


def _tell(standing: Standing, say: Say) -> None:
    noted = standing.known()
    hub, sink = noted["urls"][0], noted["sink"]
    external = noted.get("external")
    pids = ", ".join(f"{one.path.stem} {one.pid()}" for one in standing.running())
    say(f"""
hub        {"  ".join(noted["urls"])}   (/readyz, /metrics; any worker answers any request)
sink       {sink}/_stats
Kafka      {noted["bootstrap"]}
admin key  {ADMIN_KEY}   (for trying out; it is no secret)
processes  {pids}; logs in {standing.folder}

Tenants {", ".join(TENANTS)} are subscribed to {", ".join(sink + "/" + wish.manner + "/<tenant>" for wish in WISHES)}.

A key for a tenant of yours:
  curl -s -X POST {hub}/admin/tenants/mine/keys -H 'Authorization: Bearer {ADMIN_KEY}' \\
    -H 'Content-Type: application/json' -d '{{"name":"me","scopes":["manage","receive"]}}'
A subscription, with that key:
  curl -s -X POST {hub}/v1/subscriptions -H "Authorization: Bearer $KEY" -H 'Content-Type: application/json' \\
    -d '{{"name":"mine","event_types":["loan_application.*"],"sink":{{"type":"webhook","url":"{sink}/good/mine"}}}}'
A fact for it:
  {commands.published(external)}
What it got:
  curl -s {sink}/_stats
  curl -s "{hub}/v1/events?limit=10" -H "Authorization: Bearer $KEY"
""")
    say("Look into Kafka:")
    for look in commands.looks(names("hub."), TIER):
        say(f"  # {look.what}\n  {commands.typed(look, external)}")
    say("\n`make down` ends all of it.")
