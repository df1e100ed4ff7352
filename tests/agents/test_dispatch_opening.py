"""Opening, handing over and closing dispatch shards: what is taken up again, what is left alone, and for how long."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from agents.attempt import Attempted, Go
from agents.dispatch import CLAIM_MARGIN_MS, Dispatcher
from agents.dispatch_opening import LOOK_BACK_MS, DispatchShards
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.settle import Settler
from agents.unattempted import Unattempted
from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.delivery import Delivered, Job, OutcomeKind, Result, ResultKind
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fairness import Scheduler
from hub_app.kafka.batch import Batch
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import jobs as wire_jobs
from tables.claims import Claim, ClaimFile
from tables.jobs import Row
from tests.fakes.log import Entry, FakeLog
from tests.fakes.store import Disk, MemoryStore
from tests.simulation import clockwork
from tests.simulation.clockwork import SimClock
from tests.support.dispatching import CARRIED, LASTS, NAMES, RETRY, TOPICS, calm_health, job, nothing_to_read, stored

TIMEOUT_MS = 4_000
DELIVERIES = NAMES.deliveries


class Reader:
    """`hub_app.kafka.reader.RangeReader` over the log, or an outage."""

    def __init__(self, log: FakeLog) -> None:
        self._log = log
        self.failure: Exception | None = None

    def read_range(self, topic: str, partition: int, start: int, stop: int) -> Any:
        if self.failure is not None:
            raise self.failure
        return self._log.read_range(topic, partition, start, stop)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


class Worker:
    """One process over a log and a disk that outlive it. Sinks answer 204 after `takes_s`."""

    def __init__(self, log: FakeLog, disk: Disk, folder: Path, clock: SimClock) -> None:
        self.log, self.disk, self.clock = log, disk, clock
        self.reader = Reader(log)
        self.takes_s = 0.01
        self.slow: set[int] = set()  # seqs whose sink does not answer for an hour
        self.attempted: list[tuple[int, int]] = []
        self.reopened: list[int] = []
        self.commits: list[dict[tuple[str, int], int]] = []
        self.stores: list[MemoryStore] = []
        claims, metrics = ClaimFile(folder / "claims", 8), Metrics()
        self.metrics = metrics
        self.settler = Settler(
            producer=cast("Any", log),
            names=NAMES,
            shards=1,
            clock=clock,
            curve=DEFAULT_CURVE,
            metrics=metrics,
            store_failed=self._failed,
        )
        heads = Heads(Scheduler(8), store_failed=self._failed)
        self.dispatcher = Dispatcher(
            heads=heads,
            health=calm_health(clock, self.settler),
            unattempted=Unattempted(heads=heads, settler=self.settler, clock=clock, store_failed=self._failed),
            claim_batch=16,
            idle_interval_ms=250,
            attempter=cast("Any", self),
            settler=self.settler,
            claims=claims,
            clock=clock,
            lease_valid=lambda now_ms: True,
            metrics=metrics,
        )
        self.settler.on_settled = self.dispatcher.settled
        self.shards = DispatchShards(
            dispatcher=self.dispatcher,
            settler=self.settler,
            reader=cast("Any", self.reader),
            names=NAMES,
            data=cast("Any", self),
            left=claims.left,
            memory=cast("Any", None),
            clock=clock,
            metrics=metrics,
            cluster_id=lambda: "cluster",
            reopen=lambda shard, reason: self.reopened.append(shard),
            commit=lambda moved: self.commits.append(dict(moved)),
            lasts=LASTS,
            read_health=nothing_to_read,
            on_opened=lambda shard: None,
            open_store=cast("Any", self._open_store),
        )
        self._work = asyncio.create_task(self._settle())

    # -- what the parts ask --------------------------------------------------------------------------------------------
    timeout_ms = TIMEOUT_MS

    def may(self, row: Row, now_ms: int) -> Go:
        return Go(cast("Any", None))

    async def make(self, job: Job, subscription: Any, headers: Any, body: bytes) -> Attempted:
        self.attempted.append((job.seq, job.attempt))
        started_ms = self.clock.now_ms()
        await asyncio.sleep(3_600 if job.seq in self.slow else self.takes_s)
        took_ms = self.clock.now_ms() - started_ms
        return Attempted(Result(ResultKind.DELIVERED, 204), Delivered(), b"", started_ms, took_ms)

    def folder(self, plane: str, number: int) -> Path:
        return Path(f"/{plane}/{number}")

    def _open_store(self, folder: Path, *, memory: Any, **more: Any) -> MemoryStore:
        store = MemoryStore.open(self.disk, folder, **more)
        self.stores.append(store)
        return store

    def _failed(self, shard: DispatchShard, error: StoreFailed) -> None:
        self.shards.store_failed(shard.number, error)

    async def _settle(self) -> None:
        while True:
            await self.settler.step()

    # -- what the plane does -------------------------------------------------------------------------------------------
    async def open(self, **committed: int) -> dict[str, int]:
        at = {DELIVERIES: committed.get("deliveries", 0), RETRY: committed.get("retry", 0), NAMES.parked: 0}
        ends = {topic: len(self.log.topics[topic, 0]) for topic in TOPICS}
        return dict(await self.shards.opened(0, at, dict.fromkeys(TOPICS, 0), ends))

    def feed(self, topic: str, start: int, stop: int | None = None) -> None:
        records = self.log.topics[topic, 0][start:stop]
        batch = Batch(
            shard=0,
            topic=topic,
            partition=0,
            records=cast("Any", records),
            next_offset=records[-1].offset + 1,
            settled=lambda batch, error: None,
        )
        self.dispatcher.take_in(self.shards.shards[0], batch)

    def die(self) -> None:
        """Killed: nothing is closed."""
        self.dispatcher.draining = True
        self._work.cancel()
        for tail in self.shards._tails.values():
            tail.cancel()
        for task in self.dispatcher._attempts:
            task.cancel()
        for store in self.stores:
            store.close(clean=False)

    @property
    def shard(self) -> Any:
        return self.shards.shards[0]


class World:
    def __init__(self, folder: Path) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.log, self.folder = FakeLog(self.clock.now_ms), folder

    def worker(self, disk: Disk | None = None, name: str = "a") -> Worker:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return Worker(self.log, disk or Disk(), folder, self.clock)

    def write(self, topic: str, *jobs: Job) -> None:
        for one in jobs:
            log = self.log.topics[topic, 0]
            headers = wire_jobs.write(one, CARRIED)
            log.append(Entry(topic, 0, len(log), b"key", b"{}", headers, self.clock.now_ms()))

    def outcome(self, kind: OutcomeKind, one: Job) -> None:
        log = self.log.topics[NAMES.attempts, 0]
        headers = wire_attempts.write(wire_attempts.Outcome(kind, one, self.clock.now_ms()))
        log.append(Entry(NAMES.attempts, 0, len(log), b"key", b"", headers, self.clock.now_ms()))

    def claim(self, one: Job, deadline_ms: int, reclaims: int = 0) -> None:
        log = self.log.topics[NAMES.attempts, 0]
        claims = [wire_attempts.Claim(one.delivery_id, one.attempt, one.moves, reclaims, deadline_ms)]
        for made in wire_attempts.write_claimed(claims, self.clock.now_ms()):
            log.append(Entry(NAMES.attempts, 0, len(log), made.key, made.value, made.headers, self.clock.now_ms()))


Story = Callable[[World], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    def run(story: Story) -> None:
        async def told() -> None:
            await story(World(tmp_path))

        clockwork.run(told)

    return run


# -- what is taken up again --------------------------------------------------------------------------------------------
def test_with_an_empty_disk_outcomes_are_read_from_before_the_oldest_waiting_record(
    play: Callable[[Story], None],
) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        world.outcome(OutcomeKind.DELIVERED, job(1))
        await asyncio.sleep(2 * LOOK_BACK_MS / 1_000)
        world.write(DELIVERIES, job(2), job(3), job(4))
        world.outcome(OutcomeKind.FAILED, job(2))
        world.outcome(OutcomeKind.DELIVERED, job(3))
        world.write(RETRY, job(2, attempt=2))
        worker = world.worker()
        assert await worker.open(deliveries=1) == {DELIVERIES: 1, RETRY: 0, NAMES.parked: 0}
        worker.feed(DELIVERIES, 1)
        worker.feed(RETRY, 0)
        await asyncio.sleep(1)
        assert sorted(worker.attempted) == [(2, 2), (4, 1)]
        assert stored(worker.shard) == {}
        assert worker.shard.low_marks() == {DELIVERIES: 4, RETRY: 1, NAMES.parked: 0}

    play(story)


def test_nothing_is_claimed_before_everything_that_was_there_is_read(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2))
        world.write(RETRY, job(1, attempt=2))
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0, 1)
        worker.feed(DELIVERIES, 1)
        await asyncio.sleep(2)
        assert worker.attempted == []
        worker.feed(RETRY, 0)
        await asyncio.sleep(1)
        assert sorted(worker.attempted) == [(1, 2), (2, 1)]

    play(story)


def test_rows_of_an_old_disk_that_ended_elsewhere_are_dropped(play: Callable[[Story], None]) -> None:
    """One by its outcome, one because somebody committed past it, whatever came of it."""

    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2, due_ms=world.clock.now_ms() + 60_000), job(3))
        old = world.worker()
        old.takes_s = 3_600
        await old.open()
        old.feed(DELIVERIES, 0)
        old.die()
        world.outcome(OutcomeKind.DELIVERED, job(3))
        worker = world.worker(old.disk, "b")
        await worker.open(deliveries=2)
        assert (stored(worker.shard), worker.shard.table.count) == ({}, 0)
        assert worker.shard.low_marks()[DELIVERIES] == 3

    play(story)


def test_a_kept_disk_reads_on_where_it_was(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1, due_ms=world.clock.now_ms() + 5_000), job(2))
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.5)
        await worker.shards.closed(0)
        assert await worker.open() == {DELIVERIES: 2, RETRY: 0, NAMES.parked: 0}
        assert worker.shard.low_marks()[DELIVERIES] == 0
        await asyncio.sleep(6)
        assert worker.attempted == [(2, 1), (1, 1)]
        assert worker.shard.low_marks()[DELIVERIES] == 2

    play(story)


def test_row_02_what_is_finished_beyond_one_that_runs_is_not_done_again_after_a_rebalance(
    play: Callable[[Story], None],
) -> None:
    """1 to 3 and 5 to 7 are finished, 4 runs: its record is what the group has committed. The new owner has nothing."""

    async def story(world: World) -> None:
        jobs = [job(n, place=("t", f"https://{n}.example/")) for n in range(1, 8)]
        world.write(DELIVERIES, *jobs)
        old = world.worker()
        old.slow = {4}
        await old.open()
        old.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        assert {seq for seq, _ in old.attempted} == set(range(1, 8))
        await old.shards.suspended(frozenset({0}))
        assert old.commits[-1][DELIVERIES, 0] == 3
        await old.shards.closed(0)
        new = world.worker(Disk(), "b")
        await new.open(deliveries=3)
        new.feed(DELIVERIES, 3)
        await asyncio.sleep(TIMEOUT_MS / 1_000)
        assert new.attempted == []
        await asyncio.sleep((CLAIM_MARGIN_MS + 1_000) / 1_000)
        assert new.attempted == [(4, 1)]
        assert new.shard.low_marks()[DELIVERIES] == 7

    play(story)


# -- what others have in hand ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("outcome", [OutcomeKind.DELIVERED, OutcomeKind.DEFERRED, None])
def test_a_claimed_job_is_left_alone_until_its_outcome_or_its_deadline(
    play: Callable[[Story], None], outcome: OutcomeKind | None
) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        deadline_ms = world.clock.now_ms() + TIMEOUT_MS
        world.claim(job(1), deadline_ms, reclaims=1)
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(2)
        assert worker.attempted == []
        if outcome is not None:
            world.outcome(outcome, job(1))
            await asyncio.sleep(0.7)
            assert worker.attempted == ([] if outcome is OutcomeKind.DELIVERED else [(1, 1)])
            return
        await asyncio.sleep((deadline_ms + CLAIM_MARGIN_MS - world.clock.now_ms()) / 1_000 - 0.1)
        assert worker.attempted == []
        worker.takes_s = 60
        await asyncio.sleep(1)
        assert worker.attempted == [(1, 1)]
        [row] = worker.shard.in_hand.values()
        assert row.job.reclaims == 2

    play(story)


def test_a_claim_is_judged_when_every_record_has_been_read(play: Callable[[Story], None]) -> None:
    """With an empty disk the claim is known before the job is: it must not pass for nobody's."""

    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        world.claim(job(1), world.clock.now_ms() - 60_000)
        worker = world.worker()
        await worker.open()
        await asyncio.sleep(5)
        worker.takes_s = 60
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        [row] = worker.shard.in_hand.values()
        assert row.job.reclaims == 1

    play(story)


def test_an_outcome_and_the_next_claim_read_in_one_go(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        world.write(RETRY, job(1, attempt=2))
        world.claim(job(1), world.clock.now_ms() + 1_000)
        world.outcome(OutcomeKind.FAILED, job(1))
        world.claim(job(1, attempt=2), world.clock.now_ms() + TIMEOUT_MS)
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        worker.feed(RETRY, 0)
        await asyncio.sleep(3.5)
        assert worker.attempted == []
        assert worker.shard.foreign == {job(1).delivery_id: Claim(2, 0, worker.shard.foreign[job(1).delivery_id][2])}

    play(story)


def test_a_copy_of_a_job_does_not_free_it_from_whoever_has_it_in_hand(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        world.claim(job(1), world.clock.now_ms() + TIMEOUT_MS)
        world.write(NAMES.parked, job(1, moves=1))
        world.outcome(OutcomeKind.PARKED, job(1))
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        worker.feed(NAMES.parked, 0)
        await asyncio.sleep(TIMEOUT_MS / 1_000)
        assert worker.attempted == []
        world.outcome(OutcomeKind.DELIVERED, job(1))
        await asyncio.sleep(10)
        assert (worker.attempted, stored(worker.shard)) == ([], {})

    play(story)


def test_what_another_owner_put_off_waits_as_long_and_is_of_no_suspicion(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1, reclaims=4))
        world.claim(job(1), world.clock.now_ms() + TIMEOUT_MS, reclaims=4)
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        until_ms = world.clock.now_ms() + 20_000
        world.outcome(OutcomeKind.DEFERRED, job(1, due_ms=until_ms))
        await asyncio.sleep(19)
        assert worker.attempted == []
        (row,) = stored(worker.shard).values()
        assert (row.due_ms, row.job.reclaims, row.deferred_ms) == (until_ms, 0, until_ms - 20_000)
        await asyncio.sleep(2)
        assert worker.attempted == [(1, 1)]

    play(story)


def test_what_a_killed_process_had_in_hand_is_known_to_the_next_on_its_disk(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        dead = world.worker()
        dead.takes_s = 3_600
        await dead.open()
        world.write(DELIVERIES, job(1))
        dead.log.gate.clear()  # its claims never reach the log
        dead.feed(DELIVERIES, 0)
        await asyncio.sleep(0.1)
        assert dead.attempted == [(1, 1)]
        dead.die()
        world.log.gate.set()
        worker = world.worker(dead.disk)
        await worker.open()
        await asyncio.sleep(TIMEOUT_MS / 1_000)
        assert worker.attempted == []
        worker.takes_s = 60
        await asyncio.sleep(CLAIM_MARGIN_MS / 1_000 + 1)
        assert worker.attempted == [(1, 1)]
        assert next(iter(worker.shard.in_hand.values())).job.reclaims == 1

    play(story)


def test_a_shard_that_comes_back_leaves_what_this_process_has_in_hand_alone(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        worker = world.worker()
        worker.takes_s = 3
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.1)
        await worker.shards.closed(0)
        await worker.open()
        await asyncio.sleep(10)
        assert worker.attempted == [(1, 1)]
        assert (stored(worker.shard), worker.shard.foreign) == ({}, {})
        assert worker.shard.low_marks()[DELIVERIES] == 1

    play(story)


# -- careful -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("what", "careful"),
    [
        ("fresh, nothing waits", False),
        ("fresh, work waits", True),
        ("clean", False),
        ("killed", True),
        ("claims", True),
    ],
)
def test_where_somebody_may_have_died_claims_come_first(
    play: Callable[[Story], None], what: str, *, careful: bool
) -> None:
    async def story(world: World) -> None:
        disk = Disk()
        if what in ("fresh, work waits", "claims"):
            world.write(DELIVERIES, job(1))
        if what in ("clean", "killed", "claims"):
            before = world.worker(disk)
            await before.open()
            await before.shards.closed(0)
            if what == "killed":
                await before.open()
            before.die()
        if what == "claims":
            world.claim(job(1), world.clock.now_ms() + TIMEOUT_MS)
        worker = world.worker(disk, "b")
        await worker.open()
        world.write(DELIVERIES, job(9))
        world.log.gate.clear()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.2)
        assert ((9, 1) not in worker.attempted) is careful

    play(story)


# -- handing over ------------------------------------------------------------------------------------------------------
def test_a_rebalance_stops_claims_and_has_the_claims_written(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        worker = world.worker()
        worker.takes_s = 60
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.01)
        await worker.shards.suspended(frozenset({0}))
        assert len(world.log.records(NAMES.attempts)) == 1
        world.write(DELIVERIES, job(2, place=("t", "https://b.example/")))
        worker.feed(DELIVERIES, 1)
        await asyncio.sleep(2)
        assert worker.attempted == [(1, 1)]
        await worker.shards.resumed(frozenset({0}))
        await asyncio.sleep(0.5)
        assert worker.attempted == [(1, 1), (2, 1)]

    play(story)


def test_a_shard_that_becomes_ready_during_a_rebalance_waits_for_its_end(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        worker = world.worker()
        await worker.open()
        await worker.shards.suspended(frozenset({0}))
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(2)
        assert worker.attempted == []
        await worker.shards.resumed(frozenset({0}))
        await asyncio.sleep(0.5)
        assert worker.attempted == [(1, 1)]

    play(story)


def test_only_marks_that_moved_are_committed(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2, due_ms=world.clock.now_ms() + 60_000))
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        worker.shards.commit_marks()
        worker.shards.commit_marks()
        assert worker.commits == [{(DELIVERIES, 0): 1, (RETRY, 0): 0, (NAMES.parked, 0): 0}]

    play(story)


# -- other logs, and tables that fail ----------------------------------------------------------------------------------
@pytest.mark.parametrize("told", ["by the group", "by the folder", "by the topic's id"])
def test_a_log_that_was_made_anew(play: Callable[[Story], None], told: str) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, *(job(seq) for seq in range(5)))
        worker = world.worker()
        await worker.open()
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        await worker.shards.closed(0)
        world.log.topics[DELIVERIES, 0].clear()
        world.write(DELIVERIES, *(job(seq) for seq in range(10, 12 if told == "by the folder" else 22)))
        if told == "by the group":
            await worker.shards.truncated(0, DELIVERIES, 30, 12)
        elif told == "by the topic's id":
            world.log.ids[DELIVERIES] = b"another"
        await worker.open()
        assert [reason for _, reason in worker.disk.aside] == ["log-recreated"]
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(1)
        assert {seq for seq, _ in worker.attempted} >= {10, 11}

    play(story)


def test_an_attempts_log_that_was_made_anew_is_read_from_where_it_begins(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1), job(2, due_ms=world.clock.now_ms() + 3_000))
        worker = world.worker()
        await worker.open()
        for _ in range(5):
            world.outcome(OutcomeKind.DEFERRED, job(7))
        worker.feed(DELIVERIES, 0)
        await asyncio.sleep(0.5)
        await worker.shards.closed(0)
        await worker.open(deliveries=1)
        await worker.shards.closed(0)
        world.log.topics[NAMES.attempts, 0].clear()
        world.outcome(OutcomeKind.DELIVERED, job(2))
        await worker.open(deliveries=1)
        await asyncio.sleep(5)
        assert worker.attempted == [(1, 1)]

    play(story)


def test_a_table_that_fails_is_opened_again_once(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        worker = world.worker()
        await worker.open()
        for _ in range(3):
            worker.shards.store_failed(0, StoreFailed("dispatch/0", "No space left on device"))
        assert (worker.reopened, worker.disk.aside) == ([0], [])
        await worker.shards.closed(0)
        await worker.open()
        worker.shards.store_failed(0, StoreFailed("dispatch/0", "Corruption", damaged=True))
        assert [reason for _, reason in worker.disk.aside] == ["damaged"]
        await worker.shards.closed(0)
        await worker.open()

    play(story)


def test_an_opening_that_fails_lets_its_folder_go(play: Callable[[Story], None]) -> None:
    async def story(world: World) -> None:
        world.write(DELIVERIES, job(1))
        worker = world.worker()
        worker.reader.failure = ConnectionError("away")
        with pytest.raises(ConnectionError):
            await worker.open()
        await worker.shards.closed(0)
        worker.reader.failure = None
        await worker.open()

    play(story)
