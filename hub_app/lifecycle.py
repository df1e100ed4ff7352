"""The life of a worker: what starts after what, and how it ends (docs/operations.md).

`Foundation` starts before the web server: producer and readers, which connect in the background. `Planes` starts last:
it waits for the broker, provisions, reads the global tables to their end, and only then joins the groups. It stops
first: not ready, then no new batches, then no new claims, then what is in hand is settled and committed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import mode

from agents.dispatch import Dispatcher
from agents.dispatch_opening import DispatchShards
from agents.owner import OwnerLog
from agents.settle import Settler
from hub_app.instance import taken_by
from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.closing import ended
from hub_app.kafka.forever import run_forever
from hub_app.kafka.patterns import PatternPlane
from hub_app.kafka.plane import ShardPlane
from hub_app.kafka.producer import HubProducer
from hub_app.kafka.provisioning import Provisioned, provision
from hub_app.kafka.reader import RangeReader
from hub_app.kafka.standing import Standing
from hub_app.kafka.tail import TopicTail
from hub_app.ports import Clock, Entropy
from hub_app.settings import Settings
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.topics import TopicSpec
from tables.datadir import DataDir
from tables.globals import GlobalTable

SAY_EVERY_S = 10.0
COMMIT_EVERY_S = 0.25
BROKER = "broker"


@dataclass(slots=True, kw_only=True)
class Hub:
    """The parts of one worker that start or stop. Planes that the role leaves out are None."""

    settings: Settings
    clock: Clock
    entropy: Entropy
    config: KafkaConfig
    standing: Standing
    data: DataDir
    specs: Sequence[TopicSpec]
    producer: HubProducer
    reader: RangeReader
    tables: Sequence[GlobalTable[Any]]
    tails: Sequence[TopicTail]
    close_ports: Callable[[], Awaitable[None]]
    settler: Settler
    dispatcher: Dispatcher
    dispatch_shards: DispatchShards
    owner: OwnerLog
    ingest_plane: PatternPlane | None
    observer_plane: PatternPlane | None
    inbox_plane: ShardPlane | None
    dispatch_plane: ShardPlane | None
    close_web: Callable[[], Awaitable[None]]
    wake_polls: Callable[[], None]
    background: dict[str, Callable[[], Awaitable[None]]] = field(default_factory=dict)
    cluster_id: str = ""
    stopping: bool = False
    started: asyncio.Event = field(default_factory=asyncio.Event)


def say_settings(settings: Settings) -> None:
    """Every setting, redacted, and what is odd about them."""
    log = Log("settings")
    for entry in settings.entries:
        log.info(Event.SETTING, name=entry.name, value=entry.value, source=entry.source)
    for warning in settings.warnings:
        log.warning(Event.SETTING_WARNING, detail=warning)


class Foundation(mode.Service):  # type: ignore[misc]
    """What everything else stands on; stops last."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub = hub

    def on_init_dependencies(self) -> list[Any]:
        return [self._hub.producer, self._hub.reader]

    async def on_start(self) -> None:
        say_settings(self._hub.settings)

    async def on_stop(self) -> None:
        await self._hub.close_ports()
        await self._hub.close_web()
        self._hub.data.release()


class Planes(mode.Service):  # type: ignore[misc]
    """The consumers of every plane, from the first contact with the broker to the last commit."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self._hub, self._log = hub, Log("worker")
        self._loops: list[asyncio.Task[None]] = []
        self._running: list[Any] = []

    async def on_start(self) -> None:
        self._hub.standing.report("start", "starting")
        self._loops.append(asyncio.create_task(self._bring_up_or_end()))

    # -- up ------------------------------------------------------------------------------------------------------------
    async def _bring_up_or_end(self) -> None:
        """What nobody foresaw must not leave a worker that is starting for ever: as after a crash, the next one goes
        on."""
        try:
            await self._bring_up()
        except Exception as error:
            self._log.error(Event.START_FAILED, error=error)
            refuse_to_start([f"could not start: {error!r}"], 75)

    async def _bring_up(self) -> None:
        hub = self._hub
        provisioned = await self._provisioned()
        hub.cluster_id = provisioned.cluster_id
        await self._refuse_taken_instance()
        for tail in hub.tails:
            await self._run(tail)
        hub.standing.report("start", "reading what all workers share")
        for tail in hub.tails:
            await _until_done(tail.all_read_to_end)
        self._forever("settle", hub.settler.step)
        self._forever("low-water marks", self._commit_marks)
        self._forever("unreadable rows", self._show_unreadable)
        for name, step in hub.background.items():
            self._forever(name, step)
        for plane in (hub.dispatch_plane, hub.inbox_plane, hub.ingest_plane, hub.observer_plane):
            if plane is not None:
                await self._run(plane)
        self._forever("instance", self._end_when_displaced)
        spare_the_collector()
        hub.standing.clear("start")
        hub.started.set()
        self._log.info(Event.READY, role=hub.settings.role, url=hub.settings.http_advertised_url)

    async def _provisioned(self) -> Provisioned:
        """Waits for the broker as long as it takes, and says so. Topics that cannot be used end the process."""
        hub, failures, said_at = self._hub, 0, float("-inf")
        loop = asyncio.get_running_loop()
        while True:
            try:
                provisioned = await provision(hub.config, hub.specs, local=hub.settings.is_local)
            except Exception as error:
                failures += 1
                hub.standing.report(BROKER, f"{hub.config.brokers}: {error or type(error).__name__}")
                if loop.time() - said_at >= SAY_EVERY_S:
                    said_at = loop.time()
                    self._log.warning(Event.BROKER_UNREACHABLE, brokers=hub.config.brokers, error=repr(error))
                await asyncio.sleep(min(0.1 * 2 ** min(failures, 10), 5.0))
                continue
            hub.standing.clear(BROKER)
            for name in provisioned.created:
                self._log.info(Event.TOPIC_CREATED, topic=name)
            for problem in provisioned.problems:
                self._log.warning(Event.TOPIC_REFUSED, topic=problem.subject, detail=problem.text)
            fatal = [problem for problem in provisioned.problems if problem.fatal]
            if fatal:
                refuse_to_start([f"{problem.subject}: {problem.text}" for problem in fatal], 78)
            return provisioned

    async def _refuse_taken_instance(self) -> None:
        hub, instance_id = self._hub, self._hub.settings.instance_id
        for plane in (hub.inbox_plane, hub.dispatch_plane):
            if instance_id and plane is not None:
                own_url = hub.settings.http_advertised_url
                url = await taken_by(hub.config, plane.group, instance_id=instance_id, own_url=own_url)
                if url is not None:
                    refuse_to_start([f"STREAMING_HUB_INSTANCE_ID {instance_id}: the worker at {url} has this name"], 75)

    async def _end_when_displaced(self) -> None:
        """Another process took this one's name: its shards are closed, and it would only be displaced again."""
        await asyncio.sleep(1)
        for plane in (self._hub.inbox_plane, self._hub.dispatch_plane):
            if plane is not None and plane.fenced and not self._hub.stopping:
                self._log.error(Event.FENCED, instance=self._hub.settings.instance_id, plane=plane.name)
                signal.raise_signal(signal.SIGTERM)
                await asyncio.Event().wait()

    async def _run(self, service: Any) -> None:
        await service.maybe_start()
        self._running.append(service)

    def _forever(self, name: str, step: Callable[[], Awaitable[None]]) -> None:
        loop = run_forever(name, step, standing=self._hub.standing, entropy=self._hub.entropy, cap_ms=5_000)
        self._loops.append(asyncio.create_task(loop))

    async def _commit_marks(self) -> None:
        await asyncio.sleep(COMMIT_EVERY_S)
        self._hub.dispatch_shards.commit_marks()

    async def _show_unreadable(self) -> None:
        """Rows of the global tables that nobody could read: the last thing understood stands, and people are told."""
        await asyncio.sleep(SAY_EVERY_S)
        for table in self._hub.tables:
            rows = table.unreadable
            if rows:
                text = f"{len(rows)} records cannot be read, the first: {next(iter(rows.values())).reason}"
                self._hub.standing.report(table.topic, text, blocks=False)
            else:
                self._hub.standing.clear(table.topic)

    # -- down ----------------------------------------------------------------------------------------------------------
    async def on_stop(self) -> None:
        """Not ready first; then sources; then attempts in hand; then their outcomes, and the last commit."""
        hub = self._hub
        hub.stopping = True
        hub.wake_polls()
        self._log.info(Event.STOPPING)
        if hub.started.is_set():
            await asyncio.sleep(hub.settings.pre_stop_drain_timeout_ms / 1000)
            if hub.ingest_plane is not None:
                await hub.ingest_plane.stop()
            await hub.dispatcher.drain(hub.settings.shutdown_timeout_ms)
            await _within(hub.settler.flushed(), hub.settings.shutdown_timeout_ms)
            hub.dispatch_shards.commit_marks()
        for service in reversed(self._running):
            await service.stop()
        await hub.owner.stop()
        await ended(*self._loops)
        self._log.info(Event.STOPPED)


def refuse_to_start(lines: Sequence[str], status: int) -> NoReturn:
    """Ends the process now, with one clear line each on standard error. Only where nothing has been started that would
    have to be stopped."""
    # Faust puts a logger in the place of sys.stderr; these lines are for whoever started the process.
    out = sys.__stderr__ or sys.stderr
    for line in lines:
        out.write(f"streaming-hub: {line}\n")
    out.flush()
    os._exit(status)


def spare_the_collector() -> None:
    """Records are tuples of tuples without cycles: Python's default thresholds would look through them every few
    hundred allocations, a tenth of the CPU. What was made at start is never looked at again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


async def _until_done(step: Callable[[], Awaitable[None]]) -> None:
    """Repeats a step that a broker's absence may break."""
    while True:
        try:
            await step()
        except Exception:
            await asyncio.sleep(0.5)  # its service reports why
        else:
            return


async def _within(waiting: Awaitable[None], timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await waiting
    except TimeoutError:
        Log("worker").warning(Event.OUTCOME_UNRECORDED, detail="stopped before every outcome was recorded")
