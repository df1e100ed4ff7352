"""Faults that the simulation found in the dispatch plane: put back, each must be found again within a few worlds.

Those that take a rarer course of events are played by hand instead: heads whose offered rows were withdrawn and not
replaced, a table that failed under a refill (tests/agents/test_heads.py), what a process had still in hand of a shard
that came back, claims judged before the records were read (tests/agents/test_dispatch_opening.py), a lesser outcome
that replaced a greater one, two records of one stored job in one batch (tests/agents/test_dispatch_shard.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation import dispatch_world
from tests.simulation.dispatch_worker import DispatchWorker

Plant = Callable[[DispatchWorker], None]


def offers_while_suspended(worker: DispatchWorker) -> None:
    """A refill offered rows of a shard that was still being read, or handed over."""
    heads: Any = worker.dispatcher.heads

    def refill(shard: Any, place: Any) -> None:
        waiting = heads._waiting[shard.number][place]
        if waiting.more and not shard.closed:
            for row in heads._look_behind(shard, place, waiting):
                heads._offer(shard, waiting, row)

    heads._refill = refill


def in_hand_after_the_refill(worker: DispatchWorker) -> None:
    """A row was in hand only after the refill of its destination, which found it in the table and offered it again."""
    heads: Any = worker.dispatcher.heads
    look_behind = heads._look_behind

    def look(shard: Any, place: Any, waiting: Any) -> Any:
        in_hand, shard.in_hand = shard.in_hand, {}
        try:
            return look_behind(shard, place, waiting)
        finally:
            shard.in_hand = in_hand

    heads._look_behind = look


def held_and_forgotten(worker: DispatchWorker) -> None:
    """Who held rows back stopped looking when the last claim was gone, before it had freed them."""
    tail: Any = worker.shards._attempts
    look = tail._look

    async def half_a_look(shard: Any) -> None:
        if shard.foreign:
            await tail.read(shard, shard.attempts_offset, await tail.end(shard))
        if shard.foreign:
            await look(shard)

    tail._look = half_a_look


def outcomes_of_an_earlier_opening(worker: DispatchWorker) -> None:
    """What attempts came to that an earlier opening had begun was taken for the new opening's own, and passed over."""
    settler: Any = worker.settler
    record = settler._record

    async def all_mine(tick: Any) -> None:
        before = {
            (s.shard.number, settler._names.attempts): worker.process.broker.end(settler._names.attempts, 0)
            for s in tick.settled
        }
        await record(tick)
        for number, topic in before:
            shard = worker.shards.shards.get(number)
            if shard is not None and shard.foreign:
                shard.mine.update(range(before[number, topic], worker.process.broker.end(topic, number)))

    settler._record = all_mine


def reads_no_outcomes_without_a_position(worker: DispatchWorker) -> None:
    """A folder that was opened before the log held anything had no position there, and began at the end."""
    shards: Any = worker.shards

    async def at_the_end(number: int, waiting: Any, stop: int) -> int:
        return stop

    shards._first_outcome = at_the_end


FAULTS: tuple[Plant, ...] = (
    offers_while_suspended,
    in_hand_after_the_refill,
    held_and_forgotten,
    outcomes_of_an_earlier_opening,
    reads_no_outcomes_without_a_position,
)
WORLDS = (4, 7, 23, 24, 48, 55, 63, 86, 87, 97, 129, 183, 214, 233, 234, 247, 656, 1_076)
"""Where faults were seen first, or are seen most rarely."""


@pytest.mark.parametrize("fault", FAULTS, ids=[fault.__name__ for fault in FAULTS])
def test_a_fault_that_was_found_would_be_found_again(fault: Plant) -> None:
    assert any(dispatch_world.run(seed, None, fault) for seed in range(120))


@pytest.mark.parametrize("seed", WORLDS)
def test_worlds_that_showed_faults_are_well(seed: int) -> None:
    assert dispatch_world.run(seed) is None
