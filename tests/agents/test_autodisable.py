"""Subscriptions whose sink only fails: warned, disabled by the owner of their tenant, enabled again by a person
(docs/delivery.md, "Auto-disable")."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

from agents.disabling import Disabler
from agents.owner import LookAgain
from agents.registrations import SubscriptionStore
from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.limits import DAY_MS, HOUR_MS
from hub_app.domain.operator import BURST_COUNT, OperatorKind
from hub_app.domain.subscription import FAILING, Verification, verified
from hub_app.wire import health as wire
from hub_app.wire.record import Record
from tests.fakes.sender import accepts, answers
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import NAMES, job, stored


class InboxOwner:
    """Whoever owns the tenant's inbox shard: it reads hub.health, and writes subscriptions."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.owned, self.trouble = worker, True, 0
        store = SubscriptionStore(self, worker.subscriptions, shards=1, clock=worker.clock, idempotency_ttl_ms=DAY_MS)
        self.disabler = Disabler(
            health=worker.health_table,
            subscriptions=worker.subscriptions,
            replace=store.replace,
            owned=lambda shard: self.owned,
            shards=1,
            producer=cast("Any", worker.world.log),
            topic=NAMES.operator,
            clock=worker.clock,
            metrics=worker.metrics,
        )
        worker.subscriptions.watchers += (self.disabler.subscription_changed,)
        self.task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self.worker._read_health(0)
            await self.disabler.step()

    async def write(self, shard: int, topic: str, record: Record) -> int | LookAgain:
        await asyncio.sleep(0.01)
        if self.trouble:
            self.trouble -= 1
            raise BrokerTrouble("away")
        self.worker._change(record)
        return self.worker.subscriptions.offset(0)


async def failing(world: World, **options: Any) -> tuple[Worker, InboxOwner]:
    worker = await Worker(world, disabling=DisablePolicy(), **options).start()
    worker.put(world.subscription())
    world.sender.sink = answers(503)
    await fail(world, 1)
    return worker, InboxOwner(worker)


async def fail(world: World, seq: int) -> None:
    """One more failed attempt."""
    sent = world.sent
    world.deliver(job(seq, received_at_ms=world.clock.now_ms()))
    await until(lambda: world.sent > sent, 400)
    await asyncio.sleep(0.2)


def kinds(world: World) -> list[OperatorKind]:
    return [event.kind for event in world.events() if not event.kind.startswith("breaker")]


def test_warned_twice_then_disabled_and_never_unverified(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, _ = await failing(world)
        for hours, told in ((59, 0), (61, 1), (95, 1), (97, 2), (119, 2)):
            world.leap(hours * HOUR_MS - (world.clock.now_ms() - first_failure(world)))
            await fail(world, 10 + hours)
            assert (kinds(world).count(OperatorKind.WARNED), worker.health.wanted) == (told, set()), hours
        world.leap(120 * HOUR_MS - (world.clock.now_ms() - first_failure(world)) - 20_000)
        await asyncio.sleep(9)
        assert worker.health.wanted == set()
        await asyncio.sleep(40)  # by the clock alone, without another failure
        now = worker.subscriptions.get("t", "sub")
        assert now is not None
        assert (now.enabled, now.disabled_reason, now.verification_state) == (False, FAILING, Verification.ACTIVE)
        assert kinds(world) == [OperatorKind.WARNED, OperatorKind.WARNED, OperatorKind.DISABLED]
        sent = world.sent
        world.deliver(job(500, received_at_ms=world.clock.now_ms()))
        await asyncio.sleep(20 * 60)
        assert world.sent == sent

    play(tmp_path, story)


def first_failure(world: World) -> int:
    """When the first attempt failed."""
    return next(outcome.at_ms for outcome in world.told() if outcome.kind == "failed")


def test_row_23_enabled_again_it_starts_with_nothing_held_against_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, _ = await failing(world)
        world.leap(121 * HOUR_MS)
        await fail(world, 2)
        await until(lambda: not cast("Any", worker.subscriptions.get("t", "sub")).enabled, 10)
        await asyncio.sleep(2)
        waiting = len(stored(worker.shard))
        before = worker.subscriptions.get("t", "sub")
        assert before is not None
        worker.put(verified(before, now_ms=world.clock.now_ms(), enable=True))
        await fail(world, 3)
        assert worker.health.wanted == set()
        world.leap(60_000)
        await asyncio.sleep(2)
        world.sender.sink = accepts
        world.leap(11 * HOUR_MS)
        await until(lambda: not stored(worker.shard), 60)
        assert waiting > 0
        now = worker.subscriptions.get("t", "sub")
        assert now is not None and now.enabled
        assert kinds(world)[-1] is OperatorKind.RECOVERED
        await asyncio.sleep(1)
        health = world.log.records(NAMES.health)
        last = {entry.key: entry.value for entry in health}
        assert set(last.values()) == {None}

    play(tmp_path, story)


def test_a_success_clears_the_streak_and_says_so_after_a_warning(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, _ = await failing(world)
        world.leap(70 * HOUR_MS)
        await fail(world, 2)
        assert kinds(world) == [OperatorKind.WARNED]
        world.sender.sink = accepts
        world.deliver(job(3, received_at_ms=world.clock.now_ms()))
        await until(lambda: len(kinds(world)) == 2, 60)
        assert kinds(world)[1] is OperatorKind.RECOVERED
        world.sender.sink = answers(503)
        world.leap(100 * HOUR_MS)
        await fail(world, 4)
        assert worker.health.wanted == set()

    play(tmp_path, story)


def test_a_streak_survives_a_kill(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, owner = await failing(world)
        world.leap(61_000)
        await asyncio.sleep(2)  # written within a minute
        worker.kill()
        owner.task.cancel()
        world.disk.folders.clear()
        world.leap(121 * HOUR_MS)
        again = await Worker(world, disabling=DisablePolicy()).start()
        InboxOwner(again)
        await until(lambda: not cast("Any", again.subscriptions.get("t", "sub")).enabled, 60)

    play(tmp_path, story)


def test_the_owner_tries_until_the_change_is_written_and_tells_again_with_the_same_id(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, owner = await failing(world)
        owner.trouble = 2
        world.leap(121 * HOUR_MS)
        await fail(world, 2)
        await until(lambda: not cast("Any", worker.subscriptions.get("t", "sub")).enabled, 20)
        told = [event for event in world.events() if event.kind is OperatorKind.DISABLED]
        assert (len(told), len({event.id for event in told})) == (3, 1)

    play(tmp_path, story)


def test_only_the_owner_of_the_tenant_disables_and_only_for_what_came_after_enabling(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker, owner = await failing(world)
        owner.owned = False
        world.leap(121 * HOUR_MS)
        await fail(world, 2)
        await asyncio.sleep(5)
        assert worker.health.wanted == {"sub"}
        assert cast("Any", worker.subscriptions.get("t", "sub")).enabled
        worker.change(enabled_at_ms=world.clock.now_ms())
        wanted = next(row for row in worker.health_table.wanted.values())
        owner.owned = True
        worker.health_table.apply(0, 10_000, *wire.write(wanted))  # it comes late
        await asyncio.sleep(5)
        assert cast("Any", worker.subscriptions.get("t", "sub")).enabled

    play(tmp_path, story)


def test_switched_off_nobody_is_disabled(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world).start()
        worker.put(world.subscription())
        world.sender.sink = answers(503)
        await fail(world, 1)
        world.leap(200 * HOUR_MS)
        await fail(world, 2)
        await asyncio.sleep(30)
        assert (worker.health.wanted, kinds(world)) == (set(), [])

    play(tmp_path, story)


def test_a_burst_of_dead_letters_is_told_once(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world).start()
        world.deliver(*(job(seq) for seq in range(3 * BURST_COUNT)))
        await until(lambda: len(world.reasons()) == 3 * BURST_COUNT, 10)
        await asyncio.sleep(0.5)
        assert kinds(world) == [OperatorKind.BURST]
        assert stored(worker.shard) == {}

    play(tmp_path, story)
