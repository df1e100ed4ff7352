"""A worker's dispatch plane around one shard, on a clock that does not wait: the hub's own classes over a table in
memory, a Kafka in a list and sinks that are played. What it writes to its own topics it reads back, as a plane would.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from agents.attempt import Attempter
from agents.dispatch import Dispatcher
from agents.dispatch_opening import DispatchShards
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.health import SinkHealth
from agents.health_log import HealthLog
from agents.lasts import LastAttempts
from agents.notices import Notices
from agents.parking import Parking
from agents.settle import Settler
from agents.shelf import ShelfKeeper
from agents.unattempted import Unattempted
from agents.upkeep import Upkeep
from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.delivery import Job
from hub_app.domain.egress import EgressPolicy
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fairness import Scheduler
from hub_app.domain.ids import destination_key
from hub_app.domain.limits import HOUR_MS
from hub_app.domain.operator import OperatorEvent
from hub_app.domain.subscription import Subscription, Verification, WebhookSink
from hub_app.kafka.batch import Batch
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import dead_letters as wire_dead
from hub_app.wire import jobs as wire_jobs
from hub_app.wire import operator as wire_operator
from hub_app.wire import subscriptions as wire_subscriptions
from hub_app.wire.owned import write_deleted
from hub_app.wire.record import Record
from tables.claims import ClaimFile
from tables.health import HealthTable
from tables.jobs import LastRule
from tables.subscriptions import SubscriptionsTable
from tests.fakes.entropy import FakeEntropy
from tests.fakes.keyring import FakeKeyring
from tests.fakes.log import Entry, FakeLog
from tests.fakes.sender import FakeSender, accepts
from tests.fakes.store import Disk, MemoryStore
from tests.simulation import clockwork
from tests.simulation.clockwork import START_MS, SimClock
from tests.support.dispatching import CARRIED, NAMES, PLACE

TIMEOUT_MS = 10_000
MAX_AGE_MS = 24 * HOUR_MS
SOURCES = (NAMES.deliveries, *(NAMES.retry(tier) for tier in DEFAULT_CURVE.tiers), NAMES.parked)
READ_EVERY_S = 0.01
SECRET = b"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="


class World:
    """What outlives a worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SimClock(asyncio.get_running_loop())
        self._brokers_clock = SimClock(asyncio.get_running_loop())
        self.log = FakeLog(self._brokers_clock.now_ms)
        self.sender = FakeSender(accepts)
        self.keyring = FakeKeyring("k1")
        self.disk = Disk()
        self.committed: dict[str, int] = dict.fromkeys(SOURCES, 0)
        self.changes: list[Record] = []  # hub.subscriptions
        self.written = asyncio.Event()
        self.log.after = lambda targets: self.written.set()

    def leap(self, by_ms: int) -> None:
        """So much time passes at once on the wall clock. Back goes the worker's clock alone, not the broker's."""
        self.clock.off_ms += by_ms
        self._brokers_clock.off_ms += max(0, by_ms)

    def deliver(self, *jobs: Job, topic: str = NAMES.deliveries) -> None:
        """As the match step writes them."""
        log = self.log.topics[topic, 0]
        for job in jobs:
            key, headers = destination_key(job.tenant, job.destination), wire_jobs.write(job, CARRIED)
            log.append(Entry(topic, 0, len(log), key, b"{}", headers, self._brokers_clock.now_ms()))
        self.written.set()

    def subscription(self, **changes: Any) -> Subscription:
        """`sub` of tenant `t`, enabled and active."""
        id, tenant = changes.get("id", "sub"), changes.get("tenant", "t")
        plain: dict[str, Any] = {
            "id": id,
            "tenant": tenant,
            "name": "n",
            "event_types": ("*",),
            "origin": (),
            "filters": (),
            "sink": WebhookSink(url=changes.get("destination", PLACE[1])),
            "destination": PLACE[1],
            "enabled": True,
            "verification_state": Verification.ACTIVE,
            "disabled_reason": None,
            "disabled_at_ms": None,
            "enabled_at_ms": START_MS,
            "inactive_since_ms": None,
            "created_at_ms": START_MS,
            "updated_at_ms": START_MS,
            "revision": 1,
            "secret": self.keyring.seal(SECRET, context=f"{tenant}\x1f{id}\x1fsecret"),
        }
        return Subscription(**{**plain, **changes})

    # -- what was written ----------------------------------------------------------------------------------------------
    def told(self) -> list[wire_attempts.Outcome]:
        """Outcomes in the attempts log."""
        entries = [wire_attempts.read(entry.headers, entry.value) for entry in self.log.records(NAMES.attempts)]
        return [entry for entry in entries if isinstance(entry, wire_attempts.Outcome)]

    def outcomes(self) -> list[str]:
        return [outcome.kind.value for outcome in self.told()]

    def reasons(self) -> list[str]:
        """Why jobs died."""
        letters = [wire_dead.read(entry.headers, entry.value) for entry in self.log.records(NAMES.dlq)]
        return [letter.reason for letter in letters if isinstance(letter, wire_dead.DeadLetter)]

    def events(self) -> list[OperatorEvent]:
        """What people were told."""
        found = [wire_operator.read(entry.key, entry.value) for entry in self.log.records(NAMES.operator)]
        return [event for event in found if isinstance(event, OperatorEvent)]

    def traffic(self) -> Counter[str]:
        """Records by topic."""
        counts: Counter[str] = Counter()
        for (topic, _), log in self.log.topics.items():
            counts[topic] += len(log)
        return counts

    @property
    def sent(self) -> int:
        return len(self.sender.requests)


class Worker:
    """One life of a worker that owns shard 0."""

    def __init__(
        self,
        world: World,
        *,
        workers: int = 8,
        breakers: BreakerPolicy | None = None,
        disabling: DisablePolicy | None = None,
        park_behind: int = 1_000_000,
    ) -> None:
        self.world, self.clock, self._park_behind = world, world.clock, park_behind
        self.subscriptions = SubscriptionsTable(NAMES.subscriptions)
        self.health_table = HealthTable(NAMES.health)
        self.lease = True
        self.failed: list[int] = []
        self.metrics = Metrics()
        self._position: dict[str, int] = {}
        self._build(workers, breakers or BreakerPolicy(), disabling)
        self.subscriptions.watchers += (self.health.subscription_changed, self.shelf.subscription_changed)
        for record in world.changes:
            self._apply(record)
        self._tasks: list[asyncio.Task[None]] = []

    # -- life ----------------------------------------------------------------------------------------------------------
    async def start(self) -> Worker:
        """Opens the shard, and reads, settles and looks after it from now on."""
        log = self.world.log
        ends = {topic: len(log.topics[topic, 0]) for topic in SOURCES}
        starts = await self.shards.opened(0, dict(self.world.committed), dict.fromkeys(SOURCES, 0), ends)
        self._position = dict(starts)
        self.world.written.set()
        for step in (self.settler.step, self._read, self.upkeep.step, self.shelf.step, self._commit):
            self._tasks.append(asyncio.create_task(_forever(step)))
        return self

    def kill(self) -> None:
        """As kill -9: nothing more is written, the claim file stays as it is."""
        self.dispatcher.draining = True
        for task in [*self._tasks, *self.dispatcher._attempts]:
            task.cancel()
        for shard in self.shards.shards.values():
            shard.table.store.close(clean=False)

    async def stop(self) -> None:
        """As SIGTERM."""
        await self.dispatcher.drain(60_000)
        await self.settler.flushed()
        self.shards.commit_marks()
        await self.shards.closed(0)
        for task in self._tasks:
            task.cancel()

    @property
    def shard(self) -> DispatchShard:
        return self.shards.shards[0]

    # -- subscriptions -------------------------------------------------------------------------------------------------
    def put(self, subscription: Subscription) -> Subscription:
        """The subscription is as given from now on, in the log and in this worker's table."""
        self._change(wire_subscriptions.write(subscription))
        return subscription

    def change(self, id: str = "sub", **changes: Any) -> Subscription:
        now = self.subscriptions.get("t", id)
        assert now is not None
        return self.put(replace(now, **changes))

    def delete(self, id: str = "sub") -> None:
        self._change(write_deleted("t", id))

    def _change(self, record: Record) -> None:
        self.world.changes.append(record)
        self._apply(record)

    def _apply(self, record: Record) -> None:
        self.subscriptions.apply(0, self.subscriptions.offset(0), record.key, record.value, record.headers)

    # -- the roof ------------------------------------------------------------------------------------------------------
    async def _read(self) -> None:
        await self.world.written.wait()
        await asyncio.sleep(READ_EVERY_S)
        self.world.written.clear()
        for topic in SOURCES:
            at, shard = self._position[topic], self.shard
            records = self.world.log.topics[topic, 0][at : at + 2_000]
            if records and not shard.closed:
                self._position[topic] = at + len(records)
                self.world.written.set()
                batch = Batch(
                    shard=0,
                    topic=topic,
                    partition=0,
                    records=cast("Any", records),
                    next_offset=at + len(records),
                    settled=lambda batch, error: None,
                )
                try:
                    self.dispatcher.take_in(shard, batch)
                except StoreFailed as error:
                    self._store_failed(shard, error)

    async def _commit(self) -> None:
        await asyncio.sleep(0.25)
        self.shards.commit_marks()

    def _committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        self.world.committed.update({topic: offset for (topic, _), offset in offsets.items()})

    async def _read_health(self, shard: int) -> None:
        table = self.health_table
        for entry in self.world.log.topics[NAMES.health, 0]:
            table.apply(0, entry.offset, entry.key, entry.value, entry.headers)

    def _store_failed(self, shard: DispatchShard, error: StoreFailed) -> None:
        self.failed.append(shard.number)
        self.dispatcher.suspend(shard)
        shard.closed = True

    def _opened(self, shard: DispatchShard) -> None:
        self.shelf.opened(shard)

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> Any:
        return MemoryStore.open(self.world.disk, folder, **more)

    def folder(self, plane: str, number: int) -> Path:
        """`tables.datadir.DataDir.folder`."""
        return Path("/dispatch") / str(number)

    def _build(self, workers: int, breakers: BreakerPolicy, disabling: DisablePolicy | None) -> None:
        clock, log = self.clock, cast("Any", self.world.log)
        failed: Any = self._store_failed
        self.settler = Settler(
            producer=log,
            names=NAMES,
            shards=1,
            clock=clock,
            curve=DEFAULT_CURVE,
            metrics=self.metrics,
            store_failed=failed,
        )
        notices = Notices(topic=NAMES.operator, shards=1, clock=clock, note=self.settler.note)
        self.settler.on_death = notices.died
        self.health = SinkHealth(
            table=self.health_table,
            subscriptions=self.subscriptions,
            shards=1,
            clock=clock,
            breakers=breakers,
            disabling=disabling,
            log=HealthLog(NAMES.health, clock, self.settler.note),
            notices=notices,
        )
        self.heads = Heads(Scheduler(workers), store_failed=failed)
        self.unattempted = Unattempted(heads=self.heads, settler=self.settler, clock=clock, store_failed=failed)
        self.attempter = self._attempter()
        claims = ClaimFile(self.world.folder / "claims", workers)
        self.dispatcher = Dispatcher(
            heads=self.heads,
            health=self.health,
            unattempted=self.unattempted,
            claim_batch=16,
            idle_interval_ms=250,
            attempter=self.attempter,
            settler=self.settler,
            claims=claims,
            clock=clock,
            lease_valid=lambda now_ms: self.lease,
            metrics=self.metrics,
        )
        self.settler.on_settled = self.dispatcher.settled
        self.shards = DispatchShards(
            dispatcher=self.dispatcher,
            settler=self.settler,
            reader=log,
            names=NAMES,
            data=cast("Any", self),
            left=claims.left,
            memory=cast("Any", None),
            clock=clock,
            metrics=self.metrics,
            cluster_id=lambda: "cluster",
            reopen=lambda shard, reason: None,
            commit=self._committed,
            lasts=LastRule(DEFAULT_CURVE.attempts_max, MAX_AGE_MS),
            read_health=self._read_health,
            on_opened=self._opened,
            open_store=cast("Any", self._open_store),
        )
        self._look_after(failed)

    def _attempter(self) -> Attempter:
        return Attempter(
            subscriptions=self.subscriptions,
            read_to=lambda tenant: self.subscriptions.offset(0),
            unwanted=self.health.wanted,
            sender=self.world.sender,
            keyring=self.world.keyring,
            clock=self.clock,
            entropy=FakeEntropy(),
            curve=DEFAULT_CURVE,
            policy=EgressPolicy(allow_private=True),
            timeout_ms=TIMEOUT_MS,
            connect_timeout_ms=5_000,
            max_age_ms=MAX_AGE_MS,
            poisoned_from=5,
            user_agent="streaming-hub/test",
        )

    def _look_after(self, failed: Any) -> None:
        self.shelf = ShelfKeeper(
            shards=self.shards.shards,
            count=1,
            subscriptions=self.subscriptions,
            read_to=lambda tenant: self.subscriptions.offset(0),
            heads=self.heads,
            unattempted=self.unattempted,
            wake=self.dispatcher.wake,
            store_failed=failed,
        )
        lasts = LastAttempts(
            dispatcher=self.dispatcher,
            attempter=self.attempter,
            unattempted=self.unattempted,
            clock=self.clock,
            max_age_ms=MAX_AGE_MS,
            store_failed=failed,
        )
        parking = Parking(
            shards=self.shards.shards,
            unattempted=self.unattempted,
            parked_topic=NAMES.parked,
            store_failed=failed,
            behind=self._park_behind,
            slack=0,
        )
        self.upkeep = Upkeep(self.health, lasts, parking)


async def _forever(step: Callable[[], Awaitable[None]]) -> None:
    while True:
        await step()


Story = Callable[[World], Awaitable[None]]


def play(folder: Path, story: Story) -> None:
    """Runs a story in a world of its own."""

    async def told() -> None:
        await story(World(folder))

    clockwork.run(told)


async def until(there: Callable[[], bool], seconds: float, every_s: float = 0.05) -> None:
    """Waits on the clock that does not wait. AssertionError when it takes longer."""
    ends = asyncio.get_running_loop().time() + seconds
    while not there():
        assert asyncio.get_running_loop().time() < ends, f"not within {seconds} s"
        await asyncio.sleep(every_s)


def seqs(requests: Sequence[Any]) -> list[bytes]:
    """Which deliveries were sent, by their ids, in order."""
    return [_delivery(request.head) for request in requests]


def _delivery(head: bytes) -> bytes:
    start = head.lower().index(b"x-lerian-delivery-id: ") + 22
    return head[start : head.index(b"\r\n", start)]
