"""Epochs rise durably, also when every worker raises some at once."""

from __future__ import annotations

import asyncio

import pytest

from agents.epochs import Epochs
from agents.owner import OwnerLog, OwnerSetup
from hub_app.domain.errors import BrokerTrouble
from hub_app.wire import meta as wire
from hub_app.wire.record import Headers
from tables.meta import MetaTable
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.fakes.transactions import FakeBroker

TOPIC = "hub.meta"


class Worker:
    def __init__(self, broker: FakeBroker, seed: int = 0, draws: tuple[float, ...] = ()) -> None:
        self.broker, self.table = broker, MetaTable(TOPIC)
        self.log = OwnerLog(OwnerSetup("hub.meta.", broker.producer, lambda: True, self.catch_up, self._apply, 500))
        self.epochs = Epochs(
            self.log, self.table, clock=FakeClock(), entropy=FakeEntropy(seed, draws), pause_ms_first=1
        )

    async def catch_up(self, shard: int) -> None:
        await asyncio.sleep(0)
        for offset, sent in enumerate(self.broker.logs[TOPIC, shard]):
            if sent is not None:
                self.table.apply(shard, offset, sent.key, sent.value, list(sent.headers))

    def _apply(
        self, topic: str, partition: int, offset: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        self.table.apply_own(partition, offset, key, value, headers)


async def test_an_epoch_rises_by_one_and_nothing_stays_open() -> None:
    worker = Worker(FakeBroker())
    assert await worker.epochs.raise_epoch(3, "re-created") == 1
    assert await worker.epochs.raise_epoch(3, "re-created") == 2
    assert (worker.table.epoch(3), worker.table.epoch(4)) == (2, 0)
    assert not worker.broker.opened
    (first, _) = worker.broker.committed(TOPIC, 0)
    assert wire.read(first.key, first.value) == wire.Epoch(3, 1, "re-created", FakeClock().now_ms())


async def test_workers_that_raise_at_once_all_get_there() -> None:
    broker = FakeBroker()
    workers = [Worker(broker, seed) for seed in range(3)]
    epochs = await asyncio.gather(
        *(
            worker.epochs.raise_epoch(4 * n + shard, "re-created")
            for n, worker in enumerate(workers)
            for shard in range(4)
        )
    )
    assert epochs == [1] * 12
    for worker in workers:
        await worker.catch_up(0)
        assert [worker.table.epoch(shard) for shard in range(12)] == [1] * 12
    assert not broker.opened


@pytest.mark.parametrize("failure", ["before", "lost answer"])
async def test_a_write_that_failed_is_looked_for(failure: str) -> None:
    worker = Worker(FakeBroker())
    worker.broker.failures.append(failure)
    assert await worker.epochs.raise_epoch(3, "re-created") == 1
    assert len(worker.broker.committed(TOPIC, 0)) == 1
    assert worker.table.epoch(3) == 1


async def test_a_broker_that_always_refuses_is_trouble() -> None:
    worker = Worker(FakeBroker(), draws=(0.0,) * 20)
    worker.broker.failures += ["before"] * 20
    with pytest.raises(BrokerTrouble):
        await worker.epochs.raise_epoch(3, "re-created")
    assert worker.table.epoch(3) == 0
    assert not worker.broker.opened
