"""The single writer: fencing, groups, and what callers are told when something goes wrong."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agents.owner import LookAgain, OwnerLog, OwnerSetup
from hub_app.domain.errors import BrokerTrouble, Fenced, OutcomeUnknown, RecordTooLarge
from hub_app.domain.limits import RECORD_BYTES_MAX
from hub_app.wire.record import Headers, Record
from tests.fakes.transactions import FakeBroker

TOPIC = "hub.subscriptions"


def record(number: int) -> Record:
    return Record(b"t\x1f%d" % number, b"%d" % number, [("hub-schema", b"1")])


class Worker:
    """One worker's owner log, with what it applied (offset, value) and how often it caught up."""

    def __init__(self, broker: FakeBroker, deadline_ms: int = 500) -> None:
        self.lease = True
        self.applied: list[tuple[int, bytes | None]] = []
        self.caught_up: list[int] = []
        self.log = OwnerLog(
            OwnerSetup("hub.", broker.producer, lambda: self.lease, self._catch_up, self._apply, deadline_ms)
        )

    async def _catch_up(self, shard: int) -> None:
        await asyncio.sleep(0)
        self.caught_up.append(shard)

    def _apply(
        self, topic: str, partition: int, offset: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        assert (topic, partition, headers) == (TOPIC, 3, [("hub-schema", b"1")])
        self.applied.append((offset, value))


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
async def worker(broker: FakeBroker) -> AsyncIterator[Worker]:
    worker = Worker(broker)
    yield worker
    await worker.log.stop()
    assert not broker.opened


async def test_opening_fences_reads_to_the_end_and_then_serves(broker: FakeBroker, worker: Worker) -> None:
    assert not worker.log.is_open(3)
    await worker.log.open(3)
    assert worker.log.is_open(3)
    assert list(broker.holders) == ["hub.owner.3"]
    assert worker.caught_up == [3]
    assert await worker.log.write(3, TOPIC, record(1)) == 0
    assert worker.applied == [(0, b"1")]
    await worker.log.open(3)
    assert broker.started == 1  # it was open


async def test_without_a_lease_nothing_is_fenced(broker: FakeBroker, worker: Worker) -> None:
    worker.lease = False
    with pytest.raises(Fenced):
        await worker.log.open(3)
    assert not broker.holders
    with pytest.raises(Fenced):
        await worker.log.write(3, TOPIC, record(1))


async def test_a_lease_that_ends_while_opening_opens_nothing(broker: FakeBroker, worker: Worker) -> None:
    opening = asyncio.ensure_future(worker.log.open(3))
    await asyncio.sleep(0)
    worker.lease = False
    with pytest.raises(Fenced):
        await opening
    assert not worker.log.is_open(3)
    assert not worker.caught_up


async def test_a_broker_that_does_not_answer_is_trouble_in_time(broker: FakeBroker) -> None:
    broker.unreachable = True
    worker = Worker(broker, deadline_ms=20)
    with pytest.raises(BrokerTrouble):
        await worker.log.open(3)
    assert not broker.opened


async def test_writes_that_come_together_share_a_transaction_and_keep_their_order(
    broker: FakeBroker, worker: Worker
) -> None:
    await worker.log.open(3)
    offsets = await asyncio.gather(*(worker.log.write(3, TOPIC, record(number)) for number in range(600)))
    assert [sent.value for sent in broker.committed(TOPIC, 3)] == [b"%d" % number for number in range(600)]
    assert [len(group) for group in broker.transactions] == [256, 256, 88]
    assert offsets == sorted(offsets)
    assert worker.applied == [(offset, b"%d" % number) for number, offset in enumerate(offsets)]


async def test_everything_is_applied_before_anybody_is_answered(worker: Worker) -> None:
    await worker.log.open(3)

    async def seen(number: int) -> int:
        await worker.log.write(3, TOPIC, record(number))
        return len(worker.applied)

    assert await asyncio.gather(*(seen(number) for number in range(5))) == [5] * 5


async def test_fenced_under_a_valid_lease_it_owns_again_and_the_writer_looks_again(
    broker: FakeBroker, worker: Worker
) -> None:
    await worker.log.open(3)
    zombie = Worker(broker)
    await zombie.log.open(3)
    assert isinstance(await worker.log.write(3, TOPIC, record(1)), LookAgain)
    assert worker.caught_up == [3, 3]  # read to the end again, before the answer
    assert broker.committed(TOPIC, 3) == []
    assert await worker.log.write(3, TOPIC, record(2)) == 0
    zombie.lease = False
    with pytest.raises(Fenced):
        await zombie.log.write(3, TOPIC, record(3))
    assert not zombie.log.is_open(3)
    assert [sent.value for sent in broker.committed(TOPIC, 3)] == [b"2"]
    await zombie.log.stop()


async def test_a_lost_lease_stops_writing_before_the_fence_does(broker: FakeBroker, worker: Worker) -> None:
    await worker.log.open(3)
    worker.lease = False
    with pytest.raises(Fenced):
        await worker.log.write(3, TOPIC, record(1))
    assert not broker.transactions
    worker.lease = True
    await worker.log.open(3)
    assert await worker.log.write(3, TOPIC, record(1)) == 0


@pytest.mark.parametrize(("failure", "written"), [("before", 0), ("lost answer", 1)])
async def test_after_a_failed_transaction_the_state_is_read_to_its_end_and_the_writer_looks_again(
    broker: FakeBroker, worker: Worker, failure: str, written: int
) -> None:
    await worker.log.open(3)
    broker.failures.append(failure)
    assert isinstance(await worker.log.write(3, TOPIC, record(1)), LookAgain)
    assert len(broker.committed(TOPIC, 3)) == written
    assert worker.applied == []  # whether it is there is for the tail to say
    assert worker.caught_up == [3, 3]


@pytest.mark.parametrize("failure", ["hang before", "hang after"])
async def test_a_transaction_without_an_answer_is_unknown_in_time_and_the_next_goes_on(
    broker: FakeBroker, failure: str
) -> None:
    worker = Worker(broker, deadline_ms=30)
    await worker.log.open(3)
    broker.failures.append(failure)
    outcome: object
    try:
        outcome = await worker.log.write(3, TOPIC, record(1))
    except OutcomeUnknown as unknown:
        outcome = unknown
    assert isinstance(outcome, OutcomeUnknown | LookAgain)
    assert isinstance(await worker.log.write(3, TOPIC, record(2)), int)
    await worker.log.stop()


async def written_at_last(worker: Worker, one: Record) -> bool:
    """Owning again takes longer than a deadline of this test."""
    try:
        return isinstance(await worker.log.write(3, TOPIC, one), int)
    except OutcomeUnknown:
        raise
    except BrokerTrouble:
        return False


async def test_a_write_that_never_began_is_trouble_not_unknown(broker: FakeBroker) -> None:
    worker = Worker(broker, deadline_ms=50)
    await worker.log.open(3)
    broker.failures.append("before")
    broker.unreachable = True
    first = asyncio.ensure_future(worker.log.write(3, TOPIC, record(1)))
    await asyncio.sleep(0.005)
    second = asyncio.ensure_future(worker.log.write(3, TOPIC, record(2)))
    with pytest.raises(OutcomeUnknown):
        await first
    with pytest.raises(BrokerTrouble) as caught:
        await second
    assert not isinstance(caught.value, OutcomeUnknown)
    broker.unreachable = False
    while not await written_at_last(worker, record(3)):
        pass
    assert [sent.value for sent in broker.committed(TOPIC, 3)] == [b"3"]  # what was given up is never written
    await worker.log.stop()


async def test_closing_refuses_what_still_waits(broker: FakeBroker, worker: Worker) -> None:
    await worker.log.open(3)
    broker.failures.append("hang before")
    taken = asyncio.ensure_future(worker.log.write(3, TOPIC, record(1)))
    await asyncio.sleep(0.01)
    waiting = asyncio.ensure_future(worker.log.write(3, TOPIC, record(2)))
    await asyncio.sleep(0)
    await worker.log.close(3)
    await worker.log.close(3)
    with pytest.raises(OutcomeUnknown):
        await taken
    with pytest.raises(Fenced):
        await waiting
    with pytest.raises(Fenced):
        await worker.log.write(3, TOPIC, record(3))


async def test_a_record_that_no_topic_takes_costs_nobody_else(broker: FakeBroker, worker: Worker) -> None:
    await worker.log.open(3)
    with pytest.raises(RecordTooLarge):
        await worker.log.write(3, TOPIC, Record(b"k", bytes(RECORD_BYTES_MAX), []))
    assert await worker.log.write(3, TOPIC, record(1)) == 0
