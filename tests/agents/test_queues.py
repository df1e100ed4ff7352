"""Receiving and settling: order, locks, time, what is durable before what is answered, and who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.queue_steps import TokenError
from hub_app.adapters.clock import SystemClock
from hub_app.domain.errors import BrokerTrouble, Fenced
from hub_app.domain.limits import DAY_MS, HOUR_MS
from hub_app.domain.queue import Operation
from hub_app.domain.subscription import Subscription
from tests.fakes.clock import FakeClock
from tests.fakes.queues import NAMES, QueueWorld, ids, tokens

BAD, LOST = TokenError.BAD, TokenError.LOST
ACK, RELEASE, REJECT, RENEW = Operation.ACKNOWLEDGE, Operation.RELEASE, Operation.REJECT, Operation.RENEW


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def world(tmp_path: Path, clock: FakeClock) -> AsyncIterator[QueueWorld]:
    made = QueueWorld(tmp_path, clock)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def queue(world: QueueWorld) -> Subscription:
    return world.queue()


async def test_events_come_in_order_once_and_are_gone_when_acknowledged(
    world: QueueWorld, queue: Subscription, clock: FakeClock
) -> None:
    await world.give("a", "b", "c")
    first, rest = await world.receive(queue, 2), await world.receive(queue)
    assert (ids(first), ids(rest), ids(await world.receive(queue))) == (["a", "b"], ["c"], [])
    assert [event.row.deliveries for event in first] == [1, 1]
    assert await world.settle(queue, ACK, tokens(first)) == [None, None]
    assert await world.settle(queue, ACK, [*tokens(first), *tokens(rest)]) == [LOST, LOST, None]
    clock.advance(61_000)
    assert await world.receive(queue) == []


async def test_each_queue_has_its_own_copy(world: QueueWorld, queue: Subscription) -> None:
    other, foreign = world.queue(name="other"), world.queue(topic="invoices")
    await world.give("a")
    [mine], [theirs] = await world.receive(queue), await world.receive(other)
    assert await world.receive(foreign) == []
    assert await world.settle(other, ACK, [mine.token]) == [LOST]
    assert await world.settle(queue, ACK, [theirs.token]) == [LOST]
    assert await world.settle(queue, ACK, [mine.token]) == [None]
    assert await world.settle(other, ACK, [theirs.token]) == [None]


async def test_an_expired_event_comes_again_at_its_own_place_and_its_old_token_is_void(
    world: QueueWorld, queue: Subscription, clock: FakeClock
) -> None:
    await world.give("a", "b", "c")
    [first] = await world.receive(queue, 1)
    clock.advance(60_000)
    assert await world.settle(queue, ACK, [first.token]) == [LOST]
    again = await world.receive(queue)
    assert ids(again) == ["a", "b", "c"]
    assert [event.row.deliveries for event in again] == [2, 1, 1]
    assert again[0].token != first.token
    for operation in (ACK, RELEASE, REJECT, RENEW):
        assert await world.settle(queue, operation, [first.token]) == [LOST]
    assert await world.settle(queue, ACK, tokens(again)) == [None, None, None]


async def test_a_released_event_comes_again_at_its_own_place_after_its_delay(
    world: QueueWorld, queue: Subscription, clock: FakeClock
) -> None:
    await world.give("a", "b")
    [first] = await world.receive(queue, 1)
    assert await world.settle(queue, RELEASE, [first.token]) == [None]
    [again] = await world.receive(queue, 1)
    assert (again.fact.id, again.row.deliveries) == ("a", 2)
    assert await world.settle(queue, RELEASE, [again.token], delay_ms=10_000) == [None]
    assert await world.settle(queue, RELEASE, [again.token], delay_ms=10_000) == [LOST]
    clock.advance(9_999)
    [second] = await world.receive(queue)
    assert second.fact.id == "b"
    clock.advance(1)
    assert ids(await world.receive(queue)) == ["a"]


async def test_a_renewed_lock_holds_and_not_for_ever(world: QueueWorld, queue: Subscription, clock: FakeClock) -> None:
    await world.give("a")
    [event] = await world.receive(queue)
    for _ in range(HOUR_MS // 50_000):
        clock.advance(50_000)
        assert await world.settle(queue, RENEW, [event.token]) == [None]
        assert await world.receive(queue) == []
    clock.advance(1)
    clock.advance(HOUR_MS % 50_000)
    assert await world.settle(queue, RENEW, [event.token]) == [LOST]
    assert await world.settle(queue, ACK, [event.token]) == [None]


@pytest.mark.parametrize("how", ["expire", "release"])
async def test_too_many_deliveries_end_among_the_dead(
    world: QueueWorld, queue: Subscription, clock: FakeClock, how: str
) -> None:
    await world.give("a", "b")
    for number in (1, 2, 3):
        [event] = await world.receive(queue, 1)
        assert (event.fact.id, event.row.deliveries) == ("a", number)
        if how == "release":
            assert await world.settle(queue, RELEASE, [event.token]) == [None]
        clock.advance(60_000)
    assert ids(await world.receive(queue)) == ["b"]
    assert world.dead() == [("MaxDeliveryAttemptsExceeded", "a", b'"xxxxxxxxxx"')]


async def test_a_rejected_event_is_dead_before_the_rejection_is_written(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    [event] = await world.receive(queue)
    world.log.flushes.clear()
    assert await world.settle(queue, REJECT, [event.token]) == [None]
    assert world.log.flushes == [[NAMES.dlq], [NAMES.queue]]
    assert world.dead() == [("Rejected", "a", b'"xxxxxxxxxx"')]
    headers = dict(world.log.records(NAMES.dlq)[0].headers)
    assert headers["hub-destination"] == b"queue:orders/worker"
    assert headers["hub-subscription"] == queue.id.encode()
    assert await world.settle(queue, REJECT, [event.token]) == [LOST]


async def test_old_events_die_whether_somebody_comes_or_not(
    world: QueueWorld, queue: Subscription, clock: FakeClock
) -> None:
    await world.give("a")
    [held] = await world.receive(queue)
    await world.give("b")
    clock.advance(DAY_MS)
    await world.give("c")
    assert await world.settle(queue, RENEW, [held.token]) == [LOST]
    assert ids(await world.receive(queue)) == ["c"]
    assert sorted(world.dead()) == [(reason, id, b'"xxxxxxxxxx"') for reason, id in _OLD]


_OLD = [("TimeToLiveExceeded", "a"), ("TimeToLiveExceeded", "b")]


async def test_errors_stand_in_the_order_of_the_tokens(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a", "b")
    a, b = tokens(await world.receive(queue))
    assert await world.settle(queue, ACK, [b, "nonsense", a, a, 7, b]) == [None, BAD, None, LOST, BAD, LOST]
    assert await world.settle(queue, ACK, []) == []


async def test_a_big_answer_is_cut_and_never_empty(world: QueueWorld, queue: Subscription) -> None:
    await world.give(*"abcdef", size=1_000_000)
    assert ids(await world.receive(queue, 100)) == ["a", "b", "c", "d"]
    assert ids(await world.receive(queue, 100)) == ["e", "f"]


async def test_many_events_in_one_answer(world: QueueWorld, queue: Subscription) -> None:
    names = [f"e{i:03}" for i in range(250)]
    await world.give(*names)
    got = [*await world.receive(queue, 100), *await world.receive(queue, 100), *await world.receive(queue, 100)]
    assert ids(got) == names
    assert await world.settle(queue, ACK, tokens(got)) == [None] * 250
    assert await world.receive(queue) == []


# -- waiting -----------------------------------------------------------------------------------------------------------
async def test_who_waits_gets_the_next_event_the_longest_waiting_first(world: QueueWorld, queue: Subscription) -> None:
    first = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0)
    second = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0)
    await world.give("a")
    assert ids(await first) == ["a"]
    assert not second.done()
    await world.give("b")
    assert ids(await second) == ["b"]


async def test_a_release_wakes_who_waits(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    [event] = await world.receive(queue)
    waiting = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0.01)
    await world.settle(queue, RELEASE, [event.token])
    assert ids(await waiting) == ["a"]


async def test_time_wakes_who_waits(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, SystemClock())
    await world.start()
    queue = world.queue(lock_ms=60)
    await world.give("a")
    [event] = await world.receive(queue)
    assert ids(await world.receive(queue, wait_ms=5_000)) == ["a"]
    [event] = await world.receive(queue, wait_ms=5_000)
    await world.settle(queue, RELEASE, [event.token], delay_ms=60)
    await world.stop()


async def test_nobody_comes_and_time_buries(tmp_path: Path) -> None:
    world = QueueWorld(tmp_path, SystemClock())
    await world.start()
    world.queue(ttl_ms=50)
    await world.give(*[f"e{i}" for i in range(250)])
    async with asyncio.timeout(5):
        while len(world.dead()) < 250:
            await asyncio.sleep(0.01)
    await world.stop()


async def test_a_client_that_left_burns_no_delivery(world: QueueWorld, queue: Subscription) -> None:
    gone = False
    ghost = asyncio.create_task(world.queues.receive(0, queue, most=1, wait_ms=5_000, connected=lambda: not gone))
    await asyncio.sleep(0.01)
    waiting = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0.01)
    gone = True
    await world.give("a")
    [event] = await waiting
    assert event.row.deliveries == 1
    assert await ghost == []


async def test_a_cancelled_receive_takes_nothing(world: QueueWorld, queue: Subscription) -> None:
    waiting = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0.01)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await world.give("a")
    [event] = await world.receive(queue)
    assert event.row.deliveries == 1


async def test_a_deleted_queue_answers_who_waits_and_forgets(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    [event] = await world.receive(queue)
    waiting = asyncio.create_task(world.receive(queue, wait_ms=5_000))
    await asyncio.sleep(0.01)
    world.delete(queue)
    await world.settle(queue, RELEASE, [event.token])
    assert await waiting == []
    assert world.inbox.shards[0].queues.table.subscriptions() == []
    assert world.inbox.shards[0].queues.table.rows(queue.id, [event.row.seq]) == [None]


# -- durability --------------------------------------------------------------------------------------------------------
async def test_nothing_is_answered_before_the_log_has_it(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    world.log.gate.clear()
    receiving = asyncio.create_task(world.receive(queue))
    await asyncio.sleep(0.05)
    assert not receiving.done()  # also past its time: events are being locked for it
    world.log.gate.set()
    [event] = await receiving
    world.log.gate.clear()
    settling = asyncio.create_task(world.settle(queue, ACK, [event.token]))
    await asyncio.sleep(0.05)
    assert not settling.done()
    world.log.gate.set()
    assert await settling == [None]


async def test_a_shard_that_moves_while_the_log_answers_tells_nobody_of_a_lock(
    world: QueueWorld, queue: Subscription
) -> None:
    await world.give("a", "b")
    [event] = await world.receive(queue, 1)
    world.log.gate.clear()
    receiving = asyncio.create_task(world.receive(queue))
    settling = asyncio.create_task(world.settle(queue, ACK, [event.token]))
    await asyncio.sleep(0.01)
    world.lease = False
    world.log.gate.set()
    assert await receiving == []
    with pytest.raises(Fenced):
        await settling
    with pytest.raises(Fenced):
        await world.receive(queue)


async def test_a_log_that_refuses_opens_the_shard_again(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    [event] = await world.receive(queue)
    world.log.failure = RuntimeError("not authorised")
    with pytest.raises(BrokerTrouble):
        await world.settle(queue, ACK, [event.token])
    assert world.reopened == 1


async def test_a_rebalance_ends_what_was_begun_and_lets_it_go_on(world: QueueWorld, queue: Subscription) -> None:
    await world.give("a")
    world.log.gate.clear()
    receiving = asyncio.create_task(world.receive(queue))
    await asyncio.sleep(0.01)
    suspending = asyncio.create_task(world.shards.suspended(frozenset((0,))))
    await asyncio.sleep(0.01)
    assert not suspending.done()
    world.log.gate.set()
    await suspending
    [event] = await receiving
    settling = asyncio.create_task(world.settle(queue, ACK, [event.token]))
    await asyncio.sleep(0.01)
    assert not settling.done()
    await world.shards.resumed(frozenset((0,)))
    assert await settling == [None]


async def test_a_shard_that_leaves_answers_everybody(world: QueueWorld, queue: Subscription) -> None:
    waiting = asyncio.create_task(world.receive(queue, wait_ms=60_000))
    await asyncio.sleep(0.01)
    await world.shards.suspended(frozenset((0,)))
    settling = asyncio.create_task(world.settle(queue, ACK, []))
    await asyncio.sleep(0.01)
    await world.shards.closed(0)
    assert await waiting == []
    with pytest.raises(Fenced):
        await settling


# -- coming back -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("folder", ["data", "empty"])
async def test_everything_is_as_it_was_after_a_death(tmp_path: Path, clock: FakeClock, folder: str) -> None:
    """With the disk, and without."""
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue = world.queue()
    await world.give(*"abcdef")
    events = await world.receive(queue, 5)
    a, b, c, d, e = tokens(events)
    await world.settle(queue, ACK, [a])
    await world.settle(queue, RELEASE, [b])
    await world.settle(queue, REJECT, [c])
    clock.advance(30_000)
    await world.settle(queue, RENEW, [d])
    world.die()
    await world.start(folder)
    if folder == "empty":
        assert await world.receive(queue) == []  # the facts are still to be read
        await world.pump()
    clock.advance(30_000)
    assert await world.settle(queue, ACK, [a, b, c]) == [LOST, LOST, LOST]
    again = await world.receive(queue)
    assert [(event.fact.id, event.row.deliveries) for event in again] == [("b", 2), ("e", 2), ("f", 1)]
    assert await world.settle(queue, ACK, [d, e]) == [None, LOST]
    assert [reason for reason, _, _ in world.dead()] == ["Rejected"]
    await world.stop()


async def test_what_was_given_and_not_committed_is_given_once(tmp_path: Path, clock: FakeClock) -> None:
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue = world.queue()
    world.publish("a", "b")
    await world.pump(commit=False)
    [a] = await world.receive(queue, 1)
    await world.settle(queue, ACK, [a.token])
    world.die()
    await world.start()
    await world.pump()
    assert ids(await world.receive(queue)) == ["b"]
    world.die()
    world.committed = 0
    await world.start("empty")
    await world.pump()
    clock.advance(60_000)
    assert ids(await world.receive(queue)) == ["b"]
    await world.stop()


async def test_a_death_between_the_log_and_the_rows(tmp_path: Path, clock: FakeClock) -> None:
    """The log has the acknowledgement, the rows do not."""
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue = world.queue()
    await world.give("a", "b")
    [a] = await world.receive(queue, 1)

    world.log.after = lambda targets: world.die()
    with pytest.raises((Fenced, asyncio.CancelledError)):
        await world.settle(queue, ACK, [a.token])
    world.log.after = lambda targets: None
    await world.start()
    clock.advance(60_000)
    assert ids(await world.receive(queue)) == ["b"]
    await world.stop()


async def test_a_dead_event_is_given_again_once_an_operation(tmp_path: Path, clock: FakeClock) -> None:
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue = world.queue()
    await world.give("a", "b")
    a, b = await world.receive(queue)
    await world.settle(queue, REJECT, [a.token])
    for _ in range(2):
        await world.queues.give_again(0, queue, [a.row.seq, b.row.seq], "op_1")
    [again] = await world.receive(queue)
    assert (again.fact.id, again.row.deliveries, again.row.series) == ("a", 1, "op_1")
    assert await world.settle(queue, ACK, [a.token]) == [LOST]  # of its life before
    assert await world.settle(queue, ACK, [again.token]) == [None]
    for folder in ("data", "empty"):
        world.die()
        world.committed = 0
        await world.start(folder)
        await world.pump()
        assert await world.receive(queue) == []
        assert await world.queues.give_again(0, queue, [a.row.seq], "op_1") == []
    await world.stop()


async def test_rows_of_a_queue_deleted_meanwhile_are_dropped(tmp_path: Path, clock: FakeClock) -> None:
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue, kept = world.queue(), world.queue(name="kept")
    await world.give("a")
    world.die()
    world.delete(queue)
    await world.start()
    assert world.inbox.shards[0].queues.table.subscriptions() == [kept.id]
    assert ids(await world.receive(kept)) == ["a"]
    await world.stop()


async def test_another_log_begins_anew(tmp_path: Path, clock: FakeClock) -> None:
    world = QueueWorld(tmp_path, clock)
    await world.start()
    queue = world.queue()
    await world.give("a", "b")
    await world.receive(queue, 1)
    world.die()
    world.log.topics[NAMES.queue, 0].clear()
    await world.start()
    assert await world.receive(queue) == []
    await world.give("c")
    assert ids(await world.receive(queue)) == ["c"]
    await world.stop()
