"""Dispatch: who is claimed, when, and what becomes of jobs that nobody can attempt. On a clock that does not wait."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest

from agents.attempt import HOLD_MS, UNKNOWN_MS, Attempter
from agents.dispatch import UNSETTLED_MAX, Dispatcher
from agents.dispatch_shard import DispatchShard
from agents.settle import Settler
from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.egress import EgressPolicy
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import HOUR_MS, SUSPENDED_MS_MAX
from hub_app.domain.subscription import Subscription, Verification, WebhookSink
from hub_app.kafka.batch import Batch
from hub_app.ports import Answer, Failure, Request
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import dead_letters as wire_dead
from tables.claims import ClaimFile
from tests.fakes.entropy import FakeEntropy
from tests.fakes.keyring import FakeKeyring
from tests.fakes.log import FakeLog
from tests.fakes.sender import FakeSender, accepts, answers
from tests.simulation import clockwork
from tests.simulation.clockwork import START_MS, SimClock
from tests.support.dispatching import NAMES, PLACE, Feed, job, open_shard, stored

TIMEOUT_MS = 10_000


def subscription(keyring: FakeKeyring, **changes: Any) -> Subscription:
    plain: dict[str, Any] = {
        "id": "sub",
        "tenant": "t",
        "name": "n",
        "event_types": ("*",),
        "origin": (),
        "filters": (),
        "sink": WebhookSink(url=PLACE[1]),
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
        "secret": keyring.seal(
            b"whsec_" + b"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", context="t\x1fsub\x1fsecret"
        ),
    }
    return Subscription(**{**plain, **changes})


class Subscriptions:
    """The subscriptions table, as far as an attempt asks it."""

    def __init__(self) -> None:
        self.rows: dict[str, Subscription] = {}
        self.offset = 10

    def get(self, tenant: str, id: str) -> Subscription | None:
        return self.rows.get(id)


class Bench:
    def __init__(self, folder: Path, workers: int = 8) -> None:
        self.clock = SimClock(asyncio.get_running_loop())
        self.log = FakeLog(self.clock.now_ms)
        self.sender = FakeSender(accepts)
        self.keyring = FakeKeyring("k1")
        self.subscriptions = Subscriptions()
        self.subscriptions.rows["sub"] = subscription(self.keyring)
        self.lease = True
        self.failed: list[int] = []
        self.claims_path = folder / "claims"
        metrics = Metrics()
        self.settler = Settler(
            producer=cast("Any", self.log),
            names=NAMES,
            shards=1,
            clock=self.clock,
            curve=DEFAULT_CURVE,
            metrics=metrics,
            store_failed=self._store_failed,
        )
        self.dispatcher = Dispatcher(
            workers=workers,
            claim_batch=16,
            idle_interval_ms=250,
            attempter=Attempter(
                subscriptions=cast("Any", self.subscriptions),
                passed=lambda tenant, offset: self.subscriptions.offset > offset,
                sender=self.sender,
                keyring=self.keyring,
                clock=self.clock,
                entropy=FakeEntropy(),
                curve=DEFAULT_CURVE,
                policy=EgressPolicy(allow_private=True),
                timeout_ms=TIMEOUT_MS,
                connect_timeout_ms=5_000,
                max_age_ms=24 * HOUR_MS,
                user_agent="streaming-hub/test",
            ),
            settler=self.settler,
            claims=ClaimFile(self.claims_path, workers),
            clock=self.clock,
            lease_valid=lambda now_ms: self.lease,
            metrics=metrics,
            store_failed=self._store_failed,
        )
        self.settler.on_settled = self.dispatcher.settled
        self.shard = open_shard()
        self.dispatcher.heads.open(self.shard, [])
        self.dispatcher.resume_when_ready(self.shard)
        self.feed = Feed(self.shard)
        self.loop = asyncio.create_task(self._settle())

    def _store_failed(self, shard: DispatchShard, _error: StoreFailed) -> None:
        self.failed.append(shard.number)
        shard.closed = True
        self.dispatcher.heads.suspend(shard)

    async def _settle(self) -> None:
        while True:
            await self.settler.step()

    def deliver(self, *jobs: Any) -> None:
        records = self.feed.records(NAMES.deliveries, *jobs)
        batch = Batch(
            shard=0,
            topic=NAMES.deliveries,
            partition=0,
            records=cast("Any", records),
            next_offset=records[-1].offset + 1,
            settled=lambda batch, error: None,
        )
        self.dispatcher.take_in(self.shard, batch)

    @property
    def sent(self) -> int:
        return len(self.sender.requests)

    def outcomes(self) -> list[str]:
        entries = [wire_attempts.read(entry.headers, entry.value) for entry in self.log.records(NAMES.attempts)]
        return [entry.kind.value for entry in entries if isinstance(entry, wire_attempts.Outcome)]

    def reasons(self) -> list[str]:
        letters = [wire_dead.read(entry.headers, entry.value) for entry in self.log.records(NAMES.dlq)]
        return [letter.reason for letter in letters if isinstance(letter, wire_dead.DeadLetter)]


Story = Callable[[Bench], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Story], None]:
    """Runs a story on a bench of its own."""

    def run(story: Story, **options: Any) -> None:
        async def told() -> None:
            await story(Bench(tmp_path, **options))

        clockwork.run(told)

    return run


@contextmanager
def takes(low_s: float, high_s: float) -> Iterator[None]:
    began = asyncio.get_running_loop().time()
    yield
    assert low_s <= asyncio.get_running_loop().time() - began <= high_s


# -- the ordinary way --------------------------------------------------------------------------------------------------
def test_a_due_job_is_attempted_at_once(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        with takes(0.0, 0.1):
            bench.deliver(job(1), job(2))
            while stored(bench.shard):
                await asyncio.sleep(0.005)
        assert (bench.sent, bench.outcomes()) == (2, ["delivered", "delivered"])
        assert bench.shard.low_marks()[NAMES.deliveries] == 2

    play(story)


def test_a_job_waits_for_its_time(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.deliver(job(1, due_ms=bench.clock.now_ms() + 2_000))
        await asyncio.sleep(1.99)
        assert bench.sent == 0
        await asyncio.sleep(0.02)
        assert bench.sent == 1

    play(story)


def test_no_destination_has_more_than_half_of_the_workers(play: Callable[..., None]) -> None:
    async def story(bench: Bench) -> None:
        most = 0
        running = 0

        async def slow(_request: Request) -> Answer | Failure:
            nonlocal most, running
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.05)
            running -= 1
            return Answer(204, None, b"", False)

        bench.sender.sink = slow
        bench.deliver(*(job(seq) for seq in range(60)))
        await asyncio.sleep(10)
        assert (bench.sent, most, stored(bench.shard)) == (60, 4, {})

    play(story, workers=8)


def test_nothing_is_claimed_without_a_lease(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.lease = False
        bench.deliver(job(1))
        await asyncio.sleep(5)
        assert bench.sent == 0
        bench.lease = True
        await asyncio.sleep(0.3)
        assert bench.sent == 1

    play(story)


def test_nothing_is_claimed_while_too_many_outcomes_wait_for_kafka(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.log.gate.clear()
        bench.deliver(*(job(seq) for seq in range(UNSETTLED_MAX + 200)))
        await asyncio.sleep(60)
        assert UNSETTLED_MAX <= bench.sent <= UNSETTLED_MAX + bench.dispatcher.workers
        bench.log.gate.set()
        await asyncio.sleep(60)
        assert (bench.sent, stored(bench.shard)) == (UNSETTLED_MAX + 200, {})

    play(story)


def test_claims_are_on_the_disk_while_attempts_run(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        gate = asyncio.Event()

        async def waits(_request: Request) -> Answer | Failure:
            await gate.wait()
            return Answer(204, None, b"", False)

        bench.sender.sink = waits
        bench.deliver(job(1, attempt=3, reclaims=1))
        await asyncio.sleep(0.1)
        copy = bench.claims_path.with_name("copy")
        copy.write_bytes(bench.claims_path.read_bytes())
        [claim] = ClaimFile(copy, 8).left[0].values()
        assert (claim.attempt, claim.reclaims) == (3, 1)
        assert claim.deadline_ms - bench.clock.now_ms() <= TIMEOUT_MS
        gate.set()
        await asyncio.sleep(0.1)
        copy.write_bytes(bench.claims_path.read_bytes())
        assert ClaimFile(copy, 8).left == {}

    play(story)


def test_a_drain_waits_for_attempts_in_hand_and_claims_nothing_more(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        async def slow(_request: Request) -> Answer | Failure:
            await asyncio.sleep(3)
            return Answer(204, None, b"", False)

        bench.sender.sink = slow
        bench.deliver(*(job(seq) for seq in range(10)))
        await asyncio.sleep(0.1)
        in_hand = bench.dispatcher.in_flight
        assert in_hand > 0
        with takes(2.8, 3.2):
            await bench.dispatcher.drain(10_000)
        assert (bench.sent, bench.dispatcher.in_flight) == (in_hand, 0)

    play(story)


# -- jobs without somebody to deliver to -------------------------------------------------------------------------------
def test_the_subscription_was_deleted(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        del bench.subscriptions.rows["sub"]
        bench.deliver(job(1, subscriptions_offset=9))
        await asyncio.sleep(0.2)
        assert (bench.sent, bench.reasons(), bench.outcomes()) == (0, ["subscription_deleted"], ["dead"])
        assert (stored(bench.shard), bench.shard.low_marks()[NAMES.deliveries]) == ({}, 1)

    play(story)


def test_the_table_has_not_reached_the_subscription(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        there = bench.subscriptions.rows.pop("sub")
        bench.deliver(job(1, subscriptions_offset=10))
        await asyncio.sleep(3 * UNKNOWN_MS / 1_000)
        assert (bench.sent, bench.reasons(), bench.outcomes()) == (0, [], [])
        bench.subscriptions.rows["sub"], bench.subscriptions.offset = there, 11
        await asyncio.sleep(UNKNOWN_MS / 1_000 + 0.3)
        assert (bench.sent, bench.outcomes()) == (1, ["delivered"])

    play(story)


@pytest.mark.parametrize("changes", [{"enabled": False}, {"verification_state": Verification.PENDING}])
def test_the_subscription_receives_nothing_for_now(play: Callable[[Story], None], changes: dict[str, Any]) -> None:
    async def story(bench: Bench) -> None:
        now_ms = bench.clock.now_ms()
        receives = bench.subscriptions.rows["sub"]
        bench.subscriptions.rows["sub"] = subscription(bench.keyring, inactive_since_ms=now_ms, **changes)
        bench.deliver(job(1))
        await asyncio.sleep(3 * HOLD_MS / 1_000)
        assert (bench.sent, bench.reasons(), bench.outcomes()) == (0, [], [])
        bench.subscriptions.rows["sub"] = receives
        await asyncio.sleep(HOLD_MS / 1_000 + 0.3)
        assert bench.outcomes() == ["delivered"]

    play(story)


@pytest.mark.parametrize(("late_ms", "reasons"), [(-2 * HOLD_MS, []), (HOLD_MS, ["disabled"])])
def test_the_subscription_received_nothing_for_too_long(
    play: Callable[[Story], None], late_ms: int, reasons: list[str]
) -> None:
    async def story(bench: Bench) -> None:
        since_ms = bench.clock.now_ms() - SUSPENDED_MS_MAX - late_ms
        bench.subscriptions.rows["sub"] = subscription(bench.keyring, enabled=False, inactive_since_ms=since_ms)
        bench.deliver(job(1))
        await asyncio.sleep(0.2)
        assert (bench.sent, bench.reasons()) == (0, reasons)

    play(story)


# -- careful -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("outage_s", "outcomes"), [(0.5, ["delivered"]), (5.0, ["deferred"])])
def test_a_claim_that_was_recorded_late_is_not_attempted(
    play: Callable[[Story], None], outage_s: float, outcomes: list[str]
) -> None:
    """Whoever has the shard by then may have counted it as interrupted."""

    async def story(bench: Bench) -> None:
        bench.settler.be_careful()
        bench.log.gate.clear()
        bench.deliver(job(1))
        await asyncio.sleep(outage_s)
        assert bench.sent == 0
        bench.log.gate.set()
        await asyncio.sleep(0.5)
        assert bench.outcomes() == outcomes
        await asyncio.sleep(31)
        assert (bench.sent, bench.outcomes()[-1], stored(bench.shard)) == (1, "delivered", {})
        assert bench.dispatcher.heads.scheduler.in_flight == 0

    play(story)


# -- our own faults ----------------------------------------------------------------------------------------------------
def test_a_secret_that_cannot_be_opened_is_not_charged(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        good = bench.subscriptions.rows["sub"]
        bench.subscriptions.rows["sub"] = subscription(bench.keyring, secret="fake.none")
        bench.deliver(job(1))
        await asyncio.sleep(1)
        assert (bench.sent, bench.outcomes()) == (0, ["deferred"])
        bench.subscriptions.rows["sub"] = good
        await asyncio.sleep(31)
        assert (bench.sent, bench.outcomes()) == (1, ["deferred", "delivered"])
        assert wire_attempts_of(bench)[-1].job.attempt == 1

    play(story)


def wire_attempts_of(bench: Bench) -> list[wire_attempts.Outcome]:
    entries = [wire_attempts.read(entry.headers, entry.value) for entry in bench.log.records(NAMES.attempts)]
    return [entry for entry in entries if isinstance(entry, wire_attempts.Outcome)]


def test_a_sender_that_raises_is_our_fault(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        async def breaks(_request: Request) -> Answer | Failure:
            raise RuntimeError("never")

        bench.sender.sink = breaks
        bench.deliver(job(1), job(2))
        await asyncio.sleep(1)
        assert bench.outcomes() == ["deferred", "deferred"]
        bench.sender.sink = accepts
        await asyncio.sleep(31)
        assert bench.outcomes().count("delivered") == 2

    play(story)


def test_a_table_that_fails_ends_no_other_shards_work(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        other = open_shard(number=1)
        bench.dispatcher.heads.open(other, [])
        bench.dispatcher.resume_when_ready(other)
        bench.deliver(*(job(seq) for seq in range(200)))
        bench.shard.table.store.close(clean=False)
        for row in Feed(other).take(NAMES.deliveries, job(900), job(901)).fresh:
            bench.dispatcher.heads.accept(other, row)
        await asyncio.sleep(30)
        assert bench.failed == [0]
        assert (stored(other), other.in_hand) == ({}, {})

    play(story)


def test_a_failure_is_carried_to_its_tier(play: Callable[[Story], None]) -> None:
    async def story(bench: Bench) -> None:
        bench.sender.sink = answers(503)
        bench.deliver(job(1), job(2, attempt=8))
        await asyncio.sleep(1)
        assert sorted(bench.outcomes()) == ["dead", "failed"]
        assert (bench.reasons(), len(bench.log.records(NAMES.retry("10s")))) == (["exhausted"], 1)
        assert stored(bench.shard) == {}

    play(story)
