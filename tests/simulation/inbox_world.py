"""The inbox in random worlds: the hub's own classes over a simulated Kafka, disks and producers, on one seed.

Facts come with repeats, collisions and records of no sense. Owners die before and after every write, lose their disks,
come back with old ones, are overtaken and go on emitting; the topic of facts is made anew. In the end every fact was
admitted once, has one seq, and each of its deliveries carries the ids that follow from it.

    python -m tests.simulation.inbox_world --seeds 2000 [--first 0]
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

from agents import registry
from agents.inbox import Inbox
from agents.inbox_opening import InboxShards
from hub_app.domain.errors import StoreFailed, StoreFull
from hub_app.domain.fact import Fact
from hub_app.domain.ids import SEP, delivery_id, seq_of, split_seq, tenant_key
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import HOUR_MS
from hub_app.domain.subscription import WebhookSink
from hub_app.kafka.batch import Batch
from hub_app.kafka.outbox import Flushed, Target
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names, partition_for
from hub_app.wire import jobs as wire_jobs
from hub_app.wire import quarantine as wire_quarantine
from tests.fakes.store import MemoryStore
from tests.simulation import clockwork
from tests.simulation.broker import Place, Rec
from tests.simulation.plane import SimPlane
from tests.simulation.process import Process, SimProducer, SimReader
from tests.simulation.world import Machine, World

NAMES = names("hub.")
POINTS = [f"{when} {what}" for when in ("before", "after") for what in ("emit", "remember", "commit")]
"""Where a worker may be made to die."""
TENANTS = ("t0", "t1", "t2")
WINDOW_MS = 168 * HOUR_MS


class Sub(NamedTuple):
    """A subscription, as far as the match step looks at it."""

    id: str
    destination: str
    sink: WebhookSink


def sub(tenant: str, number: int) -> Sub:
    url = f"https://{number}.example/"
    return Sub(f"sub_{tenant}_{number}", url, WebhookSink(url=url))


class _Matcher:
    def __init__(self, subs: list[Sub]) -> None:
        self._subs = subs

    def match(self, fact: Fact) -> list[Sub]:
        return self._subs


class _Subscriptions:
    """What a worker knows of subscriptions: everything, as long as it has contact; an old state when it is cut off."""

    def __init__(self, worker: InboxWorker, world: InboxWorld) -> None:
        self._worker, self._world = worker, world
        self._known: dict[str, list[Sub]] = {}

    def matcher(self, tenant: str) -> _Matcher:
        if self._worker.process.lease or tenant not in self._known:
            self._known = {tenant: list(subs) for tenant, subs in self._world.subs.items()}
        return _Matcher(self._known[tenant])

    def offset(self, partition: int) -> int:
        return 7


class _NoQueues:
    """`agents.queue_access.Queues` where nobody has a queue."""

    async def open(self, shard: Any) -> Any:
        return self

    def close(self, shard: int) -> None: ...
    async def rest(self, shards: frozenset[int]) -> None: ...
    def go_on(self, shards: frozenset[int]) -> None: ...
    def advanced(self) -> None: ...

    table = None


class _Owner:
    """`agents.owner.OwnerLog`: opening it takes a while."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def open(self, shard: int) -> None:
        await self._process.pause(0.02)

    async def close(self, shard: int) -> None: ...


class _Stream:
    """What a Faust agent iterates over."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Batch] = asyncio.Queue()
        self.channel = self

    def __aiter__(self) -> _Stream:
        return self

    async def __anext__(self) -> Batch:
        return await self.queue.get()


class _Producer(SimProducer):
    """Looks at what is emitted before it is sent."""

    def __init__(self, worker: InboxWorker) -> None:
        super().__init__(worker.process)
        self._worker = worker

    async def send(self, targets: Sequence[Target]) -> Flushed:
        self._worker.process.at("before emit")
        for target in targets:
            if target.topic == NAMES.deliveries:
                for _, _, headers in (record for part in target.parts for record in part.records):
                    self._worker.emits(headers)
        flushed = await super().send(targets)
        self._worker.process.at("after emit")
        return flushed


class SimInboxShards(InboxShards):
    opening: dict[int, int]

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        self.opening[shard] = committed[NAMES.facts]
        return await super().opened(shard, committed, begin, end)


class InboxWorker:
    def __init__(self, process: Process, machine: Machine, world: InboxWorld) -> None:
        self.process, self.machine, self._world = process, machine, world
        self.full = False
        self.stores: list[MemoryStore] = []
        self.opening: dict[int, int] = {}  # shard -> committed offset at its opening
        metrics, stream = Metrics(), _Stream()
        self.plane = SimPlane(
            process,
            "inbox",
            [NAMES.facts],
            on_disk=lambda number: self._folder(number) in machine.disk.folders,
            batch_max=world.batch_max,
            after_batch=True,
        )
        self.inbox = Inbox(
            producer=cast("Any", _Producer(self)),
            names=NAMES,
            shards=world.shards,
            subscriptions=cast("Any", _Subscriptions(self, world)),
            metrics=metrics,
            dedup_window_ms=WINDOW_MS,
            events_retention_ms=WINDOW_MS,
            lease=lambda: True,
            arrived=lambda shard, tenants: None,
        )
        self.shards = SimInboxShards(
            inbox=self.inbox,
            owner=cast("Any", _Owner(process)),
            queues=cast("Any", _NoQueues()),
            names=NAMES,
            data=cast("Any", self),
            memory=cast("Any", None),
            metrics=Metrics(),
            dedup_window_ms=WINDOW_MS,
            cluster_id=lambda: "cluster",
            epoch=lambda shard: world.epochs[shard],
            raise_epoch=self._raise_epoch,
            topic_ids=SimReader(process).topic_ids,
            left=lambda shard: None,
            reopen=self.plane.reopen,
            open_store=cast("Any", self._open_store),
        )
        self.shards.opening = self.opening
        self.plane.listener, self.plane.store_failed = self.shards, self.shards.store_failed
        self.plane.handle = stream.queue.put

        def store_failed(agent: str, shard: int, error: StoreFailed) -> None:
            self.shards.store_failed(shard, error)

        agent = registry._agent("inbox", self.inbox.handle, store_failed, metrics)
        process.spawn(cast("Any", agent(stream)))

    async def _raise_epoch(self, shard: int, reason: str) -> None:
        await self.process.pause(0.02)
        self._world.epochs[shard] += 1
        await self.process.pause(0.02)

    def emits(self, headers: Any) -> None:
        """Below what was committed when the shard was opened, state is rebuilt and nothing is emitted."""
        job = wire_jobs.read(headers)
        assert not isinstance(job, tuple) or hasattr(job, "seq"), job
        number = partition_for(tenant_key(cast("Any", job).tenant), self._world.shards)
        shard = self.inbox.shards.get(number)
        if shard is not None and shard.epoch == split_seq(cast("Any", job).seq)[0]:
            offset = split_seq(cast("Any", job).seq)[1]
            if offset < self.opening[number]:
                self._world.problem(f"{self.process.name}/{number} emits {offset}, below {self.opening[number]}")

    def kill(self) -> None:
        for store in self.stores:
            store.before_write = store.after_write = _nothing
            store.close(clean=False)

    # -- disks ---------------------------------------------------------------------------------------------------------
    def folder(self, plane: str, number: int) -> Path:
        """`tables.datadir.DataDir.folder`."""
        return self._folder(number)

    def _folder(self, number: int) -> Path:
        return self.machine.folder / "inbox" / str(number)

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> MemoryStore:
        self._may_write()
        store = MemoryStore.open(self.machine.disk, folder, **more)
        self.stores.append(store)
        store.before_write, store.after_write = self._before, lambda: self.process.at("after remember")
        return store

    def _may_write(self) -> None:
        if self.full:
            raise StoreFull("inbox", "No space left on device")

    def _before(self) -> None:
        self._may_write()
        self.process.at("before remember")


class Expected(NamedTuple):
    """What a stranger makes of the log of facts."""

    kind: str  # first, repeat, collision, unreadable
    wanted: frozenset[str]  # subscriptions that were there before it
    origin: int


class InboxWorld(World[InboxWorker]):
    points = POINTS

    def __init__(self, seed: int, folder: Path, plant: Callable[[InboxWorker], None] = lambda worker: None) -> None:
        super().__init__(seed, folder)
        self._plant = plant
        self.epochs: dict[int, int] = defaultdict(int)
        self.ids = self.random.choice((3, 20, 400))
        self.expected: dict[Place, list[Expected]] = defaultdict(list)  # by (epoch as text, shard)
        self._known: dict[tuple[str, int], dict[str, bytes]] = defaultdict(dict)
        self.delivered: dict[tuple[int, int], set[str]] = defaultdict(set)  # (shard, seq) -> subscriptions
        self.quarantined: set[tuple[int, str]] = set()
        self.seqs: dict[tuple[int, str], set[int]] = defaultdict(set)
        self._passed: dict[int, int] = defaultdict(int)
        self.lives: dict[int, int] = defaultdict(int)  # how often a shard's facts were made anew
        self.made = 0
        self.subs = {t: [sub(t, n) for n in range(count)] for t, count in zip(TENANTS, (0, 1, 3), strict=True)}

    def _begin(self) -> None:
        self.broker.on_append.append(self._appended)
        self.broker.on_commit.append(self._committed)

    def _new_worker(self, process: Process, machine: Machine) -> InboxWorker:
        worker = InboxWorker(process, machine, self)
        self._plant(worker)
        return worker

    # -- producers -----------------------------------------------------------------------------------------------------
    def _produce(self) -> None:
        if self.random.random() < 0.2:
            tenant = self.random.choice(TENANTS)
            self.subs[tenant].append(sub(tenant, len(self.subs[tenant])))
        for _ in range(self.random.choice((1, 3, 20))):
            tenant = self.random.choice(TENANTS)
            number = partition_for(tenant_key(tenant), self.shards)
            if number not in self._being_made_anew:
                self._fact(tenant, number, f"id-{self.random.randrange(self.ids)}", self.random.random())

    @property
    def _being_made_anew(self) -> set[int]:
        """Until its owner has noticed: a log that grows past the old end in between looks like the old one."""
        return {n for n in range(self.shards) if self.broker.committed.get((NAMES.facts, n), 0) > self._end(n)}

    def _end(self, number: int) -> int:
        return self.broker.end(NAMES.facts, number)

    def _fact(self, tenant: str, number: int, id: str, roll: float) -> None:
        self.made += 1
        payload = b"%d" % (self.made if roll < 0.1 else len(id))
        ce = {
            "ce-specversion": b"1.0",
            "ce-id": id.encode(),
            "ce-source": b"lender",
            "ce-type": b"studio.lerian.lender.loan.paid",
            "ce-resourcetype": b"loan",
            "ce-eventtype": b"paid",
            "ce-tenantid": tenant.encode(),
        }
        headers = [
            ("hub-tenant", tenant.encode()),
            ("hub-topic", b"lender"),
            ("hub-received-at", rfc3339_bytes(self.clock.now_ms())),
            ("hub-origin-partition", b"0"),
            ("hub-origin-offset", b"%d" % self.made),
            ("hub-schema", b"1"),
            *ce.items(),
        ]
        if roll > 0.97:
            headers = [header for header in headers if header[0] != "ce-type"]
        self._foresee(number, tenant, id, payload, readable=roll <= 0.97)
        self.broker.append(NAMES.facts, number, tenant_key(tenant), payload, headers)

    def _foresee(self, number: int, tenant: str, id: str, payload: bytes, *, readable: bool) -> None:
        place, identity = self._place(number), f"{tenant}{SEP}{id}"
        known = self._known[place]
        if not readable:
            kind = "unreadable"
        elif identity not in known:
            known[identity], kind = payload, "first"
        else:
            kind = "repeat" if known[identity] == payload else "collision"
        self.expected[place].append(Expected(kind, frozenset(sub.id for sub in self.subs[tenant]), self.made))

    def _place(self, number: int) -> Place:
        return f"life {self.lives[number]}", number

    # -- what the broker tells -----------------------------------------------------------------------------------------
    def _appended(self, record: Rec) -> None:
        if record.topic == NAMES.deliveries:
            job = wire_jobs.read(record.headers)
            assert not hasattr(job, "reason"), job
            job = cast("Any", job)
            number = partition_for(tenant_key(job.tenant), self.shards)
            if job.delivery_id != delivery_id(job.tenant, job.seq, job.subscription):
                self.problem(f"a delivery of seq {job.seq} has an id of its own")
            self.delivered[number, job.seq].add(job.subscription)
            self._is_first(number, job.seq)
        elif record.topic == NAMES.quarantine:
            read = wire_quarantine.read(record.headers, record.key, record.value)
            assert isinstance(read, wire_quarantine.Original), read
            self.quarantined.add((read.offset, read.reason))

    def _is_first(self, number: int, seq: int) -> None:
        """Only the first record of an identity makes deliveries, and its place in the log is the seq."""
        epoch, offset = split_seq(seq)
        if epoch != self.epochs[number] or number in self._being_made_anew:
            return  # of the log before, by one who does not know yet
        expected = self.expected[self._place(number)]
        if offset >= len(expected) or expected[offset].kind != "first":
            what = expected[offset].kind if offset < len(expected) else "nothing"
            self.problem(f"shard {number}: offset {offset} of epoch {epoch} is {what}, and delivered")

    def _committed(self, place: Place, offset: int) -> None:
        """What is committed was emitted before: nobody will look at it again."""
        topic, number = place
        if topic != NAMES.facts or number in self._being_made_anew:
            self._passed[number] = min(self._passed[number], offset)
            return
        epoch, expected = self.epochs[number], self.expected[self._place(number)]
        for at in range(self._passed[number], min(offset, len(expected))):
            kind, wanted, origin = expected[at]
            if kind == "first" and not self.delivered[number, seq_of(epoch, at)] >= wanted:
                self.problem(f"shard {number} is committed to {offset}, past {at} of epoch {epoch}, not emitted")
            reason = {"collision": "id_collision", "unreadable": "unreadable"}.get(kind)
            if reason and (origin, reason) not in self.quarantined:
                self.problem(f"shard {number} is committed to {offset}, past {at}, whose {kind} stands nowhere")
        self._passed[number] = max(self._passed[number], offset)

    # -- what happens --------------------------------------------------------------------------------------------------
    async def _something_else(self, worker: InboxWorker) -> None:
        number = self.random.randrange(self.shards)
        owner, end = self._owner(number), self._end(number)
        # An owner that has not read past the new end finds out by its next opening alone: nothing to be seen here.
        if owner is not None and self._open(number) and owner.plane.position(number, NAMES.facts) == end > 0:
            self.lives[number] += 1
            self.broker.make_anew(NAMES.facts, number)

    # -- checks --------------------------------------------------------------------------------------------------------
    def _look(self) -> None:
        """Nothing more to see than what the broker tells."""

    def _at_rest(self) -> bool:
        places = [(NAMES.facts, number) for number in range(self.shards)]
        read = all(self.broker.committed.get(place, 0) == self.broker.end(*place) for place in places)
        return read and all(self._is_read(number) for number in range(self.shards))

    def _is_read(self, number: int) -> bool:
        owner = self._owner(number)
        return (
            owner is not None and self._open(number) and owner.plane.position(number, NAMES.facts) == self._end(number)
        )

    def _open(self, number: int) -> bool:
        owner = self._owner(number)
        return owner is not None and number in owner.plane.open_shards

    def _last_look(self) -> None:
        if not self._at_rest():
            self.problem(f"{self.broker.committed} is committed, of {[self._end(n) for n in range(self.shards)]}")
        for number in range(self.shards):
            owner = self._owner(number)
            if owner is None or number not in owner.inbox.shards:
                self.problem(f"nobody owns shard {number}")
                continue
            self._kept(number, owner)

    def _kept(self, number: int, owner: InboxWorker) -> None:
        """Every fact of the log as it is can be pulled, once."""
        epoch, expected = self.epochs[number], self.expected[self._place(number)]
        table = owner.inbox.shards[number].table
        seqs = [seq_of(epoch, at) for at in range(len(expected))]
        for at, (fact, told) in enumerate(zip(table.facts(seqs), expected, strict=True)):
            if (fact is not None) != (told.kind == "first"):
                self.problem(f"shard {number}: offset {at} is {told.kind}, and {'' if fact else 'not '}in the table")


def run(seed: int, plant: Callable[[InboxWorker], None] = lambda worker: None) -> str | None:
    """One world from its seed; what is wrong in it, or None."""
    with tempfile.TemporaryDirectory() as folder:
        world = InboxWorld(seed, Path(folder), plant)
        clockwork.run(world.story)
    return world.problems[0] if world.problems else None


def _nothing() -> None:
    """A dead process has no more hooks."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--all", action="store_true", help="go on after a failure")
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    failures = 0
    for seed in range(asked.first, asked.first + asked.seeds):
        if problem := run(seed):
            print(f"seed {seed}: {problem}", flush=True)
            failures += 1
            if not asked.all:
                return 1
    print(f"{asked.seeds} seeds, {failures} failed")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
