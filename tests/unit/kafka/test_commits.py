"""Group commits against a consumer that answers as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError, KafkaError

from hub_app.kafka.commits import Committer
from hub_app.kafka.standing import Standing

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Clock:
    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        return 0


class Consumer:
    def __init__(self) -> None:
        self.assigned = {A, B}
        self.commits: list[dict[TopicPartition, int]] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def assignment(self) -> set[TopicPartition]:
        return self.assigned

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        offsets = dict(offsets)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop(0)
        self.commits.append(offsets)


class Desk:
    """A committer at work."""

    def __init__(self) -> None:
        self.standing = Standing(Clock())
        self.committer = Committer("plane", standing=self.standing)
        self.consumer = Consumer()
        self.task = asyncio.create_task(self.committer.run(self.consumer))  # type: ignore[arg-type]


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    made.committer.assigned({A, B})
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


async def test_what_is_done_while_one_is_under_way_goes_in_the_next(desk: Desk) -> None:
    desk.consumer.gate.clear()
    desk.committer.add(A, 1)
    while not desk.committer.sending_since:
        await asyncio.sleep(0)
    for offset in (2, 3, 4):
        desk.committer.add(A, offset)
    desk.committer.add(B, 7)
    assert not await desk.committer.flush(0.01)
    desk.consumer.gate.set()
    assert await desk.committer.flush(5)
    assert desk.consumer.commits == [{A: 1}, {A: 4, B: 7}]


async def test_low_water_marks_never_go_back(desk: Desk) -> None:
    desk.committer.opened(A, 5)
    for offset in (4, 5, 9, 8):
        desk.committer.raise_to(A, offset)
    assert await desk.committer.flush(5)
    desk.committer.raise_to(A, 9)
    assert desk.consumer.commits == [{A: 9}]
    desk.committer.opened(A, 2)
    desk.committer.raise_to(A, 3)
    assert await desk.committer.flush(5)
    assert desk.consumer.commits[-1] == {A: 3}


async def test_a_lost_membership_keeps_what_stays_and_drops_what_leaves(desk: Desk) -> None:
    desk.consumer.failures = [CommitFailedError()]
    desk.committer.add(A, 1)
    desk.committer.add(B, 2)
    assert not await desk.committer.flush(5), "nobody need wait for what cannot be committed now"
    assert desk.consumer.commits == []
    desk.consumer.assigned = {A}
    desk.committer.assigned({A})
    assert await desk.committer.flush(5)
    assert desk.consumer.commits == [{A: 1}]


async def test_between_two_assignments_a_flush_does_not_wait(desk: Desk) -> None:
    desk.consumer.assigned = set()
    desk.committer.add(A, 1)
    assert not await desk.committer.flush(5)
    desk.consumer.assigned = {A}
    desk.committer.assigned({A})
    assert await desk.committer.flush(5)
    assert desk.consumer.commits == [{A: 1}]


async def test_other_errors_are_shown_and_tried_again(desk: Desk) -> None:
    desk.consumer.failures = [KafkaError("no authority")]
    desk.committer.add(A, 1)
    while not desk.standing.reasons():
        await asyncio.sleep(0.001)
    assert "no authority" in desk.standing.reasons()["plane/commit"].text
    assert await desk.committer.flush(5)
    assert desk.standing.reasons() == {}


async def test_a_newer_offset_wins_over_one_put_back(desk: Desk) -> None:
    desk.consumer.failures = [KafkaError("once")]
    desk.consumer.gate.clear()
    desk.committer.add(A, 1)
    while not desk.committer.sending_since:
        await asyncio.sleep(0)
    desk.committer.add(A, 2)
    desk.consumer.gate.set()
    assert await desk.committer.flush(5)
    assert desk.consumer.commits == [{A: 2}]


async def test_closed_partitions_are_forgotten(desk: Desk) -> None:
    desk.committer.left()
    desk.committer.add(A, 1)
    desk.committer.forget([A])
    desk.committer.assigned({A, B})
    assert await desk.committer.flush(5)
    assert desk.consumer.commits == []


async def test_a_cancelled_session_gives_its_commit_to_the_next(desk: Desk) -> None:
    desk.consumer.gate.clear()
    desk.committer.add(A, 1)
    while not desk.committer.sending_since:
        await asyncio.sleep(0)
    desk.task.cancel()
    await asyncio.gather(desk.task, return_exceptions=True)
    desk.committer.left()
    again: Any = Consumer()
    task = asyncio.create_task(desk.committer.run(again))
    desk.committer.assigned({A})
    assert await desk.committer.flush(5)
    assert again.commits == [{A: 1}]
    task.cancel()
