"""Buffers, gates and answers of a member's partitions, without a broker: a consumer that remembers what it was told."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from hub_app.kafka.batch import Batch
from hub_app.kafka.flow import RECORD_OVERHEAD_BYTES, chunks_of
from hub_app.kafka.limits import Limits
from hub_app.kafka.partitions import STUCK_AFTER_MS, Partitions
from hub_app.kafka.standing import Standing

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Record(NamedTuple):
    offset: int
    serialized_value_size: int = 100


class Clock:
    now = 0

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Dice:
    def draw(self) -> float:
        return 0.0

    def token(self, size: int) -> bytes:
        return bytes(size)


class Consumer:
    def __init__(self, *tps: TopicPartition) -> None:
        self.positions = dict.fromkeys(tps, 0)
        self.paused: set[TopicPartition] = set()
        self.seeks: list[tuple[TopicPartition, int]] = []

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def pause(self, tp: TopicPartition) -> None:
        self.paused.add(tp)

    def resume(self, tp: TopicPartition) -> None:
        self.paused.discard(tp)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.positions[tp] = offset
        self.seeks.append((tp, offset))

    async def position(self, tp: TopicPartition) -> int:
        return self.positions[tp]

    def highwater(self, tp: TopicPartition) -> int:
        return 100


class Bench:
    """Partitions with a consumer, an agent that keeps what it gets, and what was done."""

    def __init__(self, **limits: Any) -> None:
        self.clock = Clock()
        self.standing = Standing(self.clock)
        self.batches: list[Batch] = []
        self.done: list[tuple[TopicPartition, int]] = []
        self.consumer = Consumer(A, B)
        self.partitions = Partitions(
            "plane",
            deliver=self._deliver,
            done=lambda tp, offset: self.done.append((tp, offset)),
            standing=self.standing,
            clock=self.clock,
            entropy=Dice(),
            limits=Limits(retry_first_ms=2, **limits),
        )
        self.partitions.consumer = self.consumer  # type: ignore[assignment]
        self.partitions.go_on()
        for tp in (A, B):
            self.partitions.add(tp, tp.partition, 0)

    async def _deliver(self, batch: Batch) -> None:
        self.batches.append(batch)

    async def arrive(self, tp: TopicPartition, offsets: Sequence[int]) -> None:
        self.consumer.positions[tp] = offsets[-1] + 1
        await self.partitions.take({tp: [Record(o) for o in offsets]})  # type: ignore[list-item]

    async def until(self, condition: Any) -> None:
        async with asyncio.timeout(5):
            while not condition():
                await asyncio.sleep(0.001)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_one_batch_of_a_partition_at_a_time(bench: Bench) -> None:
    courier = asyncio.create_task(bench.partitions.courier())
    await bench.arrive(A, [0, 1])
    await bench.arrive(A, [2, 3])
    await bench.arrive(B, [7])
    assert [(b.partition, b.next_offset) for b in bench.batches] == [(0, 2), (1, 8)]
    bench.batches[0].done()
    bench.batches[0].done()
    bench.batches[0].failed(OSError())
    await bench.until(lambda: len(bench.batches) == 3)
    assert bench.batches[2].next_offset == 4
    assert bench.done == [(A, 2)]
    courier.cancel()


async def test_a_failed_batch_drops_what_waits_behind_it_and_rewinds(bench: Bench) -> None:
    await bench.arrive(A, [0, 1])
    await bench.arrive(A, [2, 3])
    held = bench.partitions.held_bytes
    bench.batches[0].failed(OSError("disk full"))
    assert A in bench.consumer.paused
    assert bench.partitions.held_bytes == 0 < held
    assert "disk full" in bench.standing.reasons()["plane/t/0"].text
    await bench.until(lambda: A not in bench.consumer.paused)
    assert bench.consumer.seeks == [(A, 0)]
    await bench.arrive(A, [0, 1])
    bench.batches[-1].done()
    assert bench.standing.reasons() == {}
    assert bench.done == [(A, 2)]


async def test_a_full_partition_is_not_asked_for_until_half_of_it_is_gone() -> None:
    bench = Bench(partition_buffer_bytes_max=4 * (RECORD_OVERHEAD_BYTES + 100), batch_records_max=1)
    courier = asyncio.create_task(bench.partitions.courier())
    assert bench.partitions.wanted() is None
    await bench.arrive(A, range(5))
    # One went to the agent, four wait.
    assert bench.partitions.wanted() == [B]
    await bench.arrive(B, range(5))
    assert bench.partitions.wanted() == []
    for answered in range(1, 4):
        next(b for b in bench.batches if b.live and b.partition == 0).done()
        await bench.until(lambda n=answered: sum(b.partition == 0 for b in bench.batches) == n + 1)
        assert bench.partitions.wanted() == ([A] if answered == 3 else [])
    courier.cancel()


async def test_room_is_a_bound_over_all_partitions() -> None:
    bench = Bench(buffer_bytes_max=3 * (RECORD_OVERHEAD_BYTES + 100))
    await bench.arrive(A, [0, 1])
    assert bench.partitions.room.is_set()
    await bench.arrive(B, [0])
    assert not bench.partitions.room.is_set()
    bench.batches[1].done()
    assert bench.partitions.room.is_set()


async def test_a_held_shard_keeps_no_memory_and_reads_on_where_it_was(bench: Bench) -> None:
    await bench.arrive(A, [0, 1])
    await bench.arrive(A, [2, 3])
    flow = bench.partitions.flows[A]
    bench.partitions.hold_back(flow, "shard:memory")
    bench.partitions.hold_back(flow, "shard:disk")
    assert not flow.buffer
    assert A in bench.consumer.paused
    bench.batches[0].done()
    assert len(bench.batches) == 1
    bench.partitions.ungate(flow, "shard:memory")
    assert A in bench.consumer.paused
    bench.partitions.ungate(flow, "shard:disk")
    bench.partitions.ungate(flow, "shard:disk")
    assert A not in bench.consumer.paused
    assert bench.consumer.seeks == [(A, 2)]


async def test_answers_after_the_partition_left_change_nothing(bench: Bench) -> None:
    await bench.arrive(A, [0])
    bench.partitions.retire([A, TopicPartition("unknown", 0)])
    assert not bench.batches[0].live
    bench.batches[0].done()
    assert bench.done == []
    assert (bench.partitions.held_bytes, bench.partitions.in_flight) == (0, 0)
    assert await bench.partitions.idle(1)
    assert bench.partitions.wanted_more.is_set()


async def test_suspended_partitions_buffer_but_deliver_nothing(bench: Bench) -> None:
    courier = asyncio.create_task(bench.partitions.courier())
    bench.partitions.suspended = True
    await bench.arrive(A, [0])
    assert bench.batches == []
    bench.partitions.go_on()
    await bench.until(lambda: bench.batches)
    courier.cancel()


async def test_after_an_assignment_the_session_is_told_place_and_pauses(bench: Bench) -> None:
    await bench.arrive(A, [0, 1])
    bench.partitions.gate(bench.partitions.flows[B], "shard:disk")
    bench.consumer = Consumer(A, B)
    bench.partitions.consumer = bench.consumer  # type: ignore[assignment]
    for tp in (A, B):
        bench.partitions.reposition(tp)
    assert bench.consumer.seeks == [(A, 2), (B, 0)]
    assert bench.consumer.paused == {B}


async def test_a_batch_nobody_answers_is_shown_until_it_is(bench: Bench) -> None:
    await bench.arrive(A, [0])
    bench.clock.now = STUCK_AFTER_MS + 1_000
    bench.partitions.look_after()
    assert "with its agent for 31 s" in bench.standing.reasons()["plane/t/0"].text
    bench.batches[0].done()
    assert bench.standing.reasons() == {}


async def test_a_position_behind_control_records_is_settled_when_the_partition_rests(bench: Bench) -> None:
    await bench.arrive(A, [0])
    bench.consumer.positions[A] = 2
    await bench.partitions.pass_control_records()
    assert bench.done == []
    bench.batches[0].done()
    await bench.partitions.pass_control_records()
    assert bench.done == [(A, 1), (A, 2)]
    assert bench.partitions.lags() == {A: 98, B: 100}


@given(
    count=st.integers(1, 300),
    gaps=st.integers(0, 3),
    records_max=st.integers(1, 120),
    bytes_max=st.integers(1, 200_000),
)
def test_chunks_cover_everything_in_order_and_within_bounds(
    count: int, gaps: int, records_max: int, bytes_max: int
) -> None:
    records = [Record(10 + i * (gaps + 1)) for i in range(count)]
    end = records[-1].offset + 3
    chunks = list(chunks_of(records, end, records_max=records_max, bytes_max=bytes_max))  # type: ignore[arg-type]
    assert [r for c in chunks for r in c.records] == records
    assert chunks[-1].next_offset == end
    assert all(len(c.records) <= records_max for c in chunks)
    for chunk, following in itertools.pairwise(chunks):
        assert chunk.records[-1].offset < chunk.next_offset == following.records[0].offset
    each = RECORD_OVERHEAD_BYTES + 100
    assert all(c.size_bytes <= bytes_max + each for c in chunks)
