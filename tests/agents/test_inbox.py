"""Inbox: admission at its edges, what is emitted and what is not, and the order of its writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from agents.inbox import LEASE_LOOK_S, OUTPUT_BYTES_MAX
from agents.outputs import OutputRefused
from hub_app.domain.delivery import Job
from hub_app.domain.errors import Fenced, StoreFailed
from hub_app.domain.ids import delivery_id, seq_of
from hub_app.domain.limits import MIB
from hub_app.kafka.outbox import Target
from hub_app.wire import jobs as wire_jobs
from hub_app.wire import quarantine as wire_quarantine
from tests.fakes.store import Disk
from tests.support.inboxing import NAMES, NOW_MS, WINDOW_MS, Sub, World, fact_record


@pytest.fixture
async def world() -> World:
    made = World()
    made.subscriptions.rows["t"] = [Sub("sub_1"), Sub("sub_2", "https://b.example/")]
    await made.open()
    return made


def deliveries(world: World) -> list[tuple[int, str]]:
    """(seq, subscription), in the order of their partitions."""
    found = []
    for entry in world.log.records(NAMES.deliveries):
        job = wire_jobs.read(entry.headers)
        assert isinstance(job, Job)
        assert job.delivery_id == delivery_id(job.tenant, job.seq, job.subscription)
        found.append((job.seq, job.subscription))
    return sorted(found)


def quarantined(world: World) -> list[tuple[str, int]]:
    found = []
    for entry in world.log.records(NAMES.quarantine):
        read = wire_quarantine.read(entry.headers, entry.key, entry.value)
        assert isinstance(read, wire_quarantine.Original)
        found.append((read.reason, read.offset))
    return found


def pulled(world: World, *seqs: int) -> list[bool]:
    return [fact is not None for fact in world.inbox.shards[0].table.facts(list(seqs))]


# -- admission ---------------------------------------------------------------------------------------------------------
async def test_a_fact_becomes_one_delivery_for_each_subscription(world: World) -> None:
    await world.take(fact_record(4))
    assert deliveries(world) == [(4, "sub_1"), (4, "sub_2")]
    [entry, _] = world.log.records(NAMES.deliveries)
    job = wire_jobs.read(entry.headers)
    assert isinstance(job, Job)
    assert (job.attempt, job.moves, job.subscriptions_offset, job.received_at_ms) == (1, 0, 11, NOW_MS)
    assert (entry.value, world.answers, world.arrived) == (b"{}", [(0, None)], [{"t"}])
    assert world.inbox.shards[0].table.store.offset(NAMES.facts) == 5


async def test_nobody_wants_it_and_it_can_be_pulled_all_the_same(world: World) -> None:
    await world.take(fact_record(0, tenant="other"))
    assert (deliveries(world), pulled(world, 0), world.log.flushes) == ([], [True], [])


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "in two"])
async def test_row_13_the_same_fact_again_is_written_nowhere(world: World, *, together: bool) -> None:
    records = [fact_record(0), fact_record(1), fact_record(2, id="other"), fact_record(3)]
    if together:
        await world.take(*records)
    else:
        for record in records:
            await world.take(record)
    assert deliveries(world) == [(0, "sub_1"), (0, "sub_2"), (2, "sub_1"), (2, "sub_2")]
    assert pulled(world, 0, 1, 2, 3) == [True, False, True, False]
    assert quarantined(world) == []
    assert world.metrics.duplicates.only().value == 2


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "in two"])
@pytest.mark.parametrize("other", [{"value": b"[]"}, {"type": "studio.lerian.lender.loan.refused"}])
async def test_the_same_id_with_something_else_stands_in_quarantine(
    world: World, other: dict[str, Any], *, together: bool
) -> None:
    records = [fact_record(0), fact_record(1, **other), fact_record(2)]
    for batch in [records] if together else [[record] for record in records]:
        await world.take(*batch)
    assert deliveries(world) == [(0, "sub_1"), (0, "sub_2")]
    assert quarantined(world) == [("id_collision", 1)]
    assert pulled(world, 0, 1, 2) == [True, False, False]


async def test_identity_is_tenant_topic_source_and_id(world: World) -> None:
    world.subscriptions.rows["u"] = [Sub("sub_u")]
    await world.take(fact_record(0), fact_record(1, tenant="u"))
    assert deliveries(world) == [(0, "sub_1"), (0, "sub_2"), (1, "sub_u")]


async def test_outside_the_window_it_is_new(world: World) -> None:
    await world.take(fact_record(0))
    await world.take(fact_record(1, at_ms=NOW_MS + WINDOW_MS - 1))
    await world.take(fact_record(2, at_ms=NOW_MS + WINDOW_MS))
    assert {seq for seq, _ in deliveries(world)} == {0, 2}


async def test_a_record_of_no_sense_stops_nothing(world: World) -> None:
    broken = fact_record(1)
    broken = broken._replace(headers=tuple(header for header in broken.headers if header[0] != "ce-id"))
    await world.take(fact_record(0), broken, fact_record(2, id="other"))
    assert quarantined(world) == [("unreadable", 1)]
    assert {seq for seq, _ in deliveries(world)} == {0, 2}


# -- re-reads and rebuilds ---------------------------------------------------------------------------------------------
async def test_a_reread_emits_the_same_again(world: World) -> None:
    records = [fact_record(0), fact_record(1), fact_record(2, value=b"[]")]
    await world.take(*records)
    await world.take(*records)
    assert deliveries(world) == sorted([(0, "sub_1"), (0, "sub_2")] * 2)
    assert quarantined(world) == [("id_collision", 2)] * 2
    assert world.metrics.admitted.only().value == 1


async def test_a_rebuild_emits_nothing_below_what_is_committed() -> None:
    world = World()
    world.subscriptions.rows["t"] = [Sub("sub_1")]
    assert await world.open(committed=3) == 0
    broken = fact_record(2)._replace(headers=())
    await world.take(fact_record(0), fact_record(1, value=b"[]"), broken, fact_record(3), fact_record(4, id="other"))
    assert deliveries(world) == [(4, "sub_1")]
    assert quarantined(world) == []
    assert pulled(world, 0, 4) == [True, True]
    assert world.metrics.admitted.only().value == 1


async def test_a_folder_ahead_of_the_group_emits_again_what_is_not_committed() -> None:
    """It may have seen it as a worker that had lost the shard, with an old table of subscriptions."""
    world = World()
    world.subscriptions.rows["t"] = [Sub("sub_1")]
    await world.open()
    await world.take(fact_record(0), fact_record(1, id="other"))
    await world.shards.closed(0)
    world.subscriptions.rows["t"].append(Sub("sub_2"))
    assert await world.open(committed=1) == 1
    await world.take(fact_record(1, id="other"))
    assert deliveries(world) == [(0, "sub_1"), (1, "sub_1"), (1, "sub_1"), (1, "sub_2")]


async def test_a_folder_behind_the_group_catches_up_without_a_word() -> None:
    world = World()
    world.subscriptions.rows["t"] = [Sub("sub_1")]
    await world.open()
    await world.take(fact_record(0))
    await world.shards.closed(0)
    assert await world.open(committed=5) == 1
    await world.take(fact_record(1), fact_record(2, id="other"), fact_record(5, id="third"))
    assert deliveries(world) == [(0, "sub_1"), (5, "sub_1")]


# -- other logs --------------------------------------------------------------------------------------------------------
async def test_a_folder_beyond_the_end_is_of_another_log() -> None:
    world = World()
    await world.open()
    await world.take(fact_record(7))
    await world.shards.closed(0)
    assert await world.open(committed=0, end=3) == 0
    assert (world.epochs[0], [reason for _, reason in world.disk.aside]) == (1, ["log-recreated"])
    await world.take(fact_record(0))
    assert pulled(world, seq_of(1, 0), 7) == [True, False]


async def test_a_folder_of_a_log_that_was_made_anew_and_has_grown() -> None:
    """Row 9 of the faults others had: nothing but the topic's id tells the two logs apart."""
    world = World()
    await world.open()
    await world.take(fact_record(7))
    await world.shards.closed(0)
    world.log.ids[NAMES.facts] = b"another"
    assert await world.open(committed=8, end=20) == 0
    assert (world.epochs[0], [reason for _, reason in world.disk.aside]) == (1, ["log-recreated"])
    await world.shards.closed(0)
    await world.open(committed=8, end=20)
    assert world.epochs[0] == 1


async def test_a_folder_that_lacks_facts_is_rebuilt() -> None:
    world = World()
    await world.open()
    await world.take(fact_record(7))
    await world.shards.closed(0)
    assert await world.open(committed=9, begin=9) == 9
    assert (world.epochs[0], [reason for _, reason in world.disk.aside]) == (0, ["behind-the-log"])
    assert world.inbox.shards[0].table.horizon("t") == 8


async def test_the_epoch_rises_before_the_folder_that_shows_why_is_set_aside() -> None:
    world = World()
    await world.open()
    await world.take(fact_record(7))
    await world.shards.closed(0)
    world.epoch_failure = ConnectionError("away")
    with pytest.raises(ConnectionError):
        await world.open(end=3)
    assert (world.disk.aside, world.inbox.shards) == ([], {})
    world.epoch_failure = None
    assert await world.open(end=3) == 0
    assert world.epochs[0] == 1


async def test_an_opening_that_fails_lets_its_folder_go(world: World) -> None:
    await world.shards.closed(0)
    world.owner.failure = ConnectionError("away")
    with pytest.raises(ConnectionError):
        await world.open()
    world.owner.failure = None
    assert await world.open() == 0


# -- the order of writes -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize("written", [False, True])
async def test_what_is_not_acknowledged_is_neither_remembered_nor_committed(world: World, *, written: bool) -> None:
    failure = ConnectionError("away")

    def after(_targets: Sequence[Target]) -> None:
        raise failure

    if written:
        world.log.after = after
    else:
        world.log.failure = failure
    batch = world.batch(fact_record(0))
    with pytest.raises(ConnectionError):
        await world.handle(batch)
    assert (world.answers, pulled(world, 0), world.inbox.shards[0].table.store.offset(NAMES.facts)) == (
        [],
        [False],
        None,
    )
    world.log.failure, world.log.after = None, lambda targets: None
    await world.handle(world.batch(fact_record(0)))
    assert set(deliveries(world)) == {(0, "sub_1"), (0, "sub_2")}
    assert world.answers == [(0, None)]


async def test_what_is_not_remembered_is_not_committed(world: World) -> None:
    def refuse() -> None:
        raise StoreFailed("inbox/0", "No space left on device")

    world.stores[-1].before_write = refuse
    await world.take(fact_record(0))
    [(shard, error)] = world.answers
    assert (shard, type(error)) == (0, StoreFailed)
    assert world.arrived == []


async def test_a_table_that_fails_fails_its_shard_alone() -> None:
    world = World()
    for shard in (0, 1):
        await world.open(shard)
    world.stores[0].close(clean=False)
    await world.handle(world.batch(fact_record(0)), world.batch(fact_record(0, shard=1), shard=1))
    assert [(shard, type(error)) for shard, error in world.answers] == [(0, StoreFailed), (1, type(None))]
    world.shards.store_failed(0, StoreFailed("inbox/0", "closed"))
    assert world.reopened == [0]


async def test_a_shard_that_leaves_while_the_log_answers_is_left_out(world: World) -> None:
    await world.open(1)
    world.log.gate.clear()
    leaving, staying = world.batch(fact_record(0)), world.batch(fact_record(0, shard=1), shard=1)
    step = asyncio.create_task(world.handle(leaving, staying))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.live = False
    await world.shards.closed(0)
    world.log.gate.set()
    await step
    assert world.answers == [(1, None)]


# -- the lease ---------------------------------------------------------------------------------------------------------
async def test_a_worker_that_slept_writes_nothing_of_what_it_had_read(world: World) -> None:
    """The shard is another's by the time it wakes: neither deliveries nor rows nor offsets."""
    world.lease = False
    batch = world.batch(fact_record(0))
    step = asyncio.create_task(world.handle(batch))
    await asyncio.sleep(3 * LEASE_LOOK_S)
    assert not step.done()
    batch.live = False  # the group says that it moved
    await world.shards.closed(0)
    with pytest.raises(Fenced):
        await step
    assert (deliveries(world), world.answers, world.log.flushes) == ([], [], [])
    assert await world.open() == 0


async def test_what_was_read_before_the_lease_ran_out_is_read_again_when_it_holds(world: World) -> None:
    """It may have been another's in between: whether it was, the group says a moment later."""
    world.lease = False
    step = asyncio.create_task(world.handle(world.batch(fact_record(0))))
    await asyncio.sleep(0)
    world.lease = True
    with pytest.raises(Fenced):
        await step
    assert (deliveries(world), world.answers) == ([], [])
    await world.take(fact_record(0))
    assert (deliveries(world), world.answers) == ([(0, "sub_1"), (0, "sub_2")], [(0, None)])


# -- bounds ------------------------------------------------------------------------------------------------------------
async def test_a_large_fact_for_many_is_flushed_in_parts() -> None:
    world = World()
    world.subscriptions.rows["t"] = [Sub(f"sub_{n}") for n in range(40)]
    await world.open()
    weights: list[int] = []

    def after(targets: Sequence[Target]) -> None:
        weights.append(sum(len(value or b"") for t in targets for p in t.parts for _, value, _ in p.records))

    world.log.after = after
    await world.take(fact_record(0, value=bytes(MIB)))
    assert len(deliveries(world)) == 40
    assert max(weights) <= OUTPUT_BYTES_MAX + 2 * MIB
    assert len(weights) == 5


async def test_shards_of_a_step_share_the_bound() -> None:
    world = World(Disk())
    world.subscriptions.rows["t"] = [Sub(f"sub_{n}") for n in range(6)]
    for shard in (0, 1):
        await world.open(shard)
    weights: list[int] = []
    world.log.after = lambda targets: weights.append(sum(len(p.records) for t in targets for p in t.parts))
    records = [fact_record(0, value=bytes(MIB), shard=shard) for shard in (0, 1)]
    await world.handle(world.batch(records[0]), world.batch(records[1], shard=1))
    assert max(weights) <= 9
    assert sum(weights) == 12


async def test_a_delivery_that_no_topic_takes_fails_its_step(world: World) -> None:
    """The bounds of facts rule it out; should one be wrong, nothing vanishes."""
    with pytest.raises(OutputRefused):
        await world.take(fact_record(0, value=bytes(4 * MIB)))
    assert (world.answers, pulled(world, 0)) == ([], [False])
