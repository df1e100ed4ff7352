"""Breakers at work: what opens one, what may run meanwhile, what closes it, and what survives (docs/delivery.md,
"Circuit breaker")."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.limits import HOUR_MS, MINUTE_MS, SECOND_MS
from hub_app.domain.operator import OperatorKind
from hub_app.ports import Answer, Failure, Request
from tests.fakes.sender import accepts, answers
from tests.support.dispatch_bench import Worker, World, play, until
from tests.support.dispatching import NAMES, PLACE, job, stored

OTHER = ("t", "https://b.example/")


def fresh(world: World, *seqs: int, place: tuple[str, str] = PLACE, subscription: str = "sub", **more: int) -> None:
    now_ms = world.clock.now_ms()
    world.deliver(*(job(s, place=place, subscription=subscription, **{"received_at_ms": now_ms, **more}) for s in seqs))


async def opened(world: World, **options: int) -> Worker:
    """A worker whose breaker to PLACE has just opened, after five failures in a row, one after the other."""
    worker = await Worker(world, workers=2, **options).start()  # type: ignore[arg-type]
    worker.put(world.subscription())
    world.sender.sink = answers(503)
    fresh(world, *range(5))
    await until(lambda: world.sent == 5, 10)
    await asyncio.sleep(0.1)
    return worker


def test_the_fifth_failure_in_a_row_opens_it_and_nothing_is_attempted(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        before = world.traffic()
        fresh(world, *range(10, 400))
        await asyncio.sleep(29)
        assert world.sent == 5
        after = world.traffic()
        after.subtract(before)
        assert {topic: n for topic, n in after.items() if n} == {NAMES.deliveries: 390}  # what came in, and no more
        await asyncio.sleep(2)
        assert world.sent == 6  # one probe
        assert len(stored(worker.shard)) == 395
        assert [event.kind for event in world.events()] == [OperatorKind.BREAKER_OPENED]

    play(tmp_path, story)


def test_four_failures_and_a_success_leave_it_closed(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, workers=2).start()
        worker.put(world.subscription())

        async def fifth_is_good(_request: Request) -> Answer | Failure:
            return Answer(200 if world.sent % 5 == 0 else 500, None, b"", False)

        world.sender.sink = fifth_is_good
        fresh(world, *range(50))
        await until(lambda: world.sent >= 50, 20)
        assert worker.health.not_closed() == 0
        assert world.log.records(NAMES.health) == []  # what comes and goes is not written
        assert world.events() == []

    play(tmp_path, story)


def test_it_stays_open_twice_as_long_at_each_failed_probe_up_to_five_minutes(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await opened(world)
        at: list[float] = []

        async def note(_request: Request) -> Answer | Failure:
            at.append(asyncio.get_running_loop().time())
            return Answer(500, None, b"", False)

        world.sender.sink = note
        began = asyncio.get_running_loop().time()
        fresh(world, *range(100, 200))
        await asyncio.sleep(30 * 60)
        pauses = [round(b - a) for a, b in zip([began, *at], at, strict=False)]
        assert pauses[:6] == [30, 60, 120, 240, 300, 300]

    play(tmp_path, story)


def test_a_probe_that_hangs_is_alone(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await opened(world)
        running = most = 0

        async def hangs(_request: Request) -> Answer | Failure:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(10)
            running -= 1
            return Failure("timeout", "", False)

        world.sender.sink = hangs
        fresh(world, *range(100, 200))
        await asyncio.sleep(10 * 60)
        assert most == 1

    play(tmp_path, story)


def test_a_success_closes_it_and_the_rest_goes_in_due_order_within_the_window(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, workers=64).start()
        worker.put(world.subscription())
        world.sender.sink = answers(503)
        fresh(world, *range(5))
        await until(lambda: worker.health.not_closed() == 1, 10)
        await asyncio.sleep(0.1)
        first = world.sent
        for seq in range(100, 400):
            fresh(world, seq)
            await asyncio.sleep(0.01)
        running = most = 0
        order: list[int] = []
        seq_of = {job(seq).delivery_id.hex().encode(): seq for seq in range(100, 400)}

        async def slow(request: Request) -> Answer | Failure:
            nonlocal running, most
            running += 1
            most = max(most, running)
            id = request.head.split(b"X-Lerian-Delivery-Id: ")[1][:32]
            order.append(seq_of.get(id, 0))
            await asyncio.sleep(0.05)
            running -= 1
            return Answer(200, None, b"", False)

        world.sender.sink = slow
        await until(lambda: len(stored(worker.shard)) == 0, 120)
        waiting = [seq for seq in order if seq]
        assert sorted(waiting) == list(range(100, 400))
        assert max(abs(place - at) for at, place in enumerate(w - 100 for w in waiting)) <= 32  # as wide as the window
        assert most <= 32
        assert order[0:2] != order[1:3]
        assert world.sent > first
        kinds = [event.kind for event in world.events()]
        assert kinds == [OperatorKind.BREAKER_OPENED, OperatorKind.BREAKER_CLOSED]

    play(tmp_path, story)


def test_others_of_the_tenant_go_on(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        worker.put(world.subscription(id="other", destination=OTHER[1]))
        world.sender.sink = accepts
        fresh(world, 100, 101)
        fresh(world, 200, 201, place=OTHER, subscription="other")
        await asyncio.sleep(1)
        assert world.outcomes().count("delivered") == 2

    play(tmp_path, story)


def test_last_attempts_run_while_it_is_open_one_at_a_time(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await opened(world, breakers=BreakerPolicy(5, 10 * 60 * SECOND_MS, 10 * 60 * SECOND_MS))  # type: ignore[arg-type]
        running = most = 0

        async def hangs(_request: Request) -> Answer | Failure:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(2)
            running -= 1
            return Answer(500, None, b"", False)

        world.sender.sink = hangs
        now_ms = world.clock.now_ms()
        fresh(world, 1_000, 1_001)  # not their last
        world.deliver(*(job(s, attempt=8, due_ms=now_ms, received_at_ms=now_ms - HOUR_MS) for s in (10, 11)))
        world.deliver(*(job(s, received_at_ms=now_ms - 25 * HOUR_MS) for s in (20, 21)))
        world.deliver(job(30, attempt=3, due_ms=now_ms, received_at_ms=now_ms - 24 * HOUR_MS))
        await asyncio.sleep(60)
        assert (world.sent, most) == (5 + 5, 1)
        assert sorted(world.reasons()) == ["exhausted"] * 2 + ["expired"] * 3

    play(tmp_path, story)


def test_who_waits_for_a_last_attempt_keeps_the_place_when_it_closes_and_opens_again(tmp_path: Path) -> None:
    """Found by the simulation: a second one that asked for the place was left in memory, where nobody took it up."""

    async def story(world: World) -> None:
        worker = await Worker(world, workers=2).start()
        worker.put(world.subscription())
        worker.lease = False  # nothing is claimed: who has the place waits
        a_day_ago = world.clock.now_ms() - 24 * HOUR_MS

        async def attempts(*results: bool) -> None:
            for ok in results:
                worker.health.attempted(worker.shard, job(99), ok=ok)
            await asyncio.sleep(2)

        fresh(world, 1, received_at_ms=a_day_ago)
        await attempts(*[False] * 5)
        await attempts(True)
        fresh(world, 2, received_at_ms=a_day_ago - HOUR_MS)  # older, so it is looked at first
        await attempts(*[False] * 5)
        worker.lease = True
        await until(lambda: world.sent == 2, 60)
        assert not [task for task in worker._tasks if task.done()]

    play(tmp_path, story)


def test_a_last_attempt_that_succeeds_closes_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        world.sender.sink = accepts
        now_ms = world.clock.now_ms()
        fresh(world, 100, 101, 102)
        world.deliver(job(10, attempt=8, due_ms=now_ms, received_at_ms=now_ms - HOUR_MS))
        await until(lambda: worker.health.not_closed() == 0, 3)
        await asyncio.sleep(0.5)
        assert world.outcomes().count("delivered") >= 4

    play(tmp_path, story)


def test_what_waits_unattempted_until_48_hours_dies_expired(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        await opened(world, breakers=BreakerPolicy(5, 10 * 60 * SECOND_MS, 10 * 60 * SECOND_MS))  # type: ignore[arg-type]
        sent, now_ms = world.sent, world.clock.now_ms()
        world.deliver(*(job(s, received_at_ms=now_ms - 48 * HOUR_MS) for s in range(100, 700)))
        world.deliver(job(999, received_at_ms=now_ms - 48 * HOUR_MS + 10 * MINUTE_MS))
        await asyncio.sleep(8)
        assert (world.sent - sent, world.reasons().count("expired")) == (1, 601)  # 999 had its last attempt

    play(tmp_path, story)


def test_it_survives_a_kill(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        worker.kill()
        world.disk.folders.clear()
        sent = world.sent
        fresh(world, *range(100, 110))
        again = await Worker(world, workers=2).start()
        await asyncio.sleep(25)
        assert (world.sent, again.health.not_closed()) == (sent, 1)
        world.sender.sink = accepts
        await until(lambda: not stored(again.shard), 60)
        assert [event.kind for event in world.events()] == [OperatorKind.BREAKER_OPENED, OperatorKind.BREAKER_CLOSED]

    play(tmp_path, story)


def test_failures_in_a_row_survive_a_stop(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await Worker(world, workers=2).start()
        worker.put(world.subscription())
        world.sender.sink = answers(503)
        fresh(world, *range(4))
        await until(lambda: world.sent == 4, 10)
        await worker.stop()
        again = await Worker(world, workers=2).start()
        fresh(world, 9)
        await until(lambda: again.health.not_closed() == 1, 10)
        assert world.sent == 5

    play(tmp_path, story)


def test_row_26_a_clock_that_steps_back_does_not_hold_it_open(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        world.clock.off_ms -= HOUR_MS
        world.sender.sink = accepts
        fresh(world, 100)
        await until(lambda: worker.health.not_closed() == 0, 15)

    play(tmp_path, story)


def test_row_26_a_probe_that_fails_after_a_clock_stepped_back_leaves_it_open(tmp_path: Path) -> None:
    """Found by the simulation: attempts went on one after the other for the rest of its time."""

    async def story(world: World) -> None:
        await opened(world)

        async def slow(_request: Request) -> Answer | Failure:
            await asyncio.sleep(2)
            return Answer(503, None, b"", False)

        world.sender.sink = slow
        fresh(world, 10, 11, 12)
        world.leap(HOUR_MS)
        await until(lambda: world.sent == 6, 5)
        await asyncio.sleep(1.5)
        world.leap(-HOUR_MS)
        await asyncio.sleep(10)
        assert world.sent == 6

    play(tmp_path, story)


def test_verifying_again_closes_it(tmp_path: Path) -> None:
    async def story(world: World) -> None:
        worker = await opened(world)
        world.sender.sink = accepts
        fresh(world, 100)
        worker.change(enabled_at_ms=world.clock.now_ms())
        await asyncio.sleep(0.5)
        assert world.outcomes().count("delivered") == 1
        assert world.events()[-1].kind is OperatorKind.BREAKER_CLOSED

    play(tmp_path, story)
