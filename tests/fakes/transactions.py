"""A broker for transactional producers, in memory: fencing by id, and failures where a test wants them."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from hub_app.kafka.transactions import NotWritten, Sent, Uncertain


class FakeBroker:
    """`producer(id)` is a fake `hub_app.kafka.transactions.TransactionalProducer`. `logs`: what readers of committed
    records see, (topic, partition) -> records; every transaction is followed by its marker, as in Kafka.

    `failures`: what the next transactions meet, one each: "before" (nothing is written), "lost answer" (written, but
    nobody is told), "hang before" and "hang after" (no answer at all).
    """

    def __init__(self) -> None:
        self.logs: dict[tuple[str, int], list[Sent | None]] = defaultdict(list)
        self.holders: dict[str, FakeTransactions] = {}
        self.failures: list[str] = []
        self.transactions: list[list[Sent]] = []
        self.unreachable = False
        self.started = 0
        self.opened: set[FakeTransactions] = set()

    def producer(self, transactional_id: str) -> FakeTransactions:
        return FakeTransactions(self, transactional_id)

    def committed(self, topic: str, partition: int) -> list[Sent]:
        return [sent for sent in self.logs[topic, partition] if sent is not None]


class FakeTransactions:
    def __init__(self, broker: FakeBroker, transactional_id: str) -> None:
        self._broker, self._id = broker, transactional_id

    async def start(self) -> None:
        self._broker.opened.add(self)
        while self._broker.unreachable:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0)
        self._broker.started += 1
        self._broker.holders[self._id] = self

    async def write(self, group: Sequence[Sent]) -> list[int]:
        await asyncio.sleep(0)
        failure = self._broker.failures.pop(0) if self._broker.failures else ""
        if failure == "hang before":
            await asyncio.Event().wait()
        if self._broker.holders[self._id] is not self:
            raise NotWritten("fenced")
        if failure == "before":
            raise NotWritten("the broker said no")
        offsets = []
        for sent in group:
            log = self._broker.logs[sent.topic, sent.partition]
            offsets.append(len(log))
            log.append(sent)
        for place in {(sent.topic, sent.partition) for sent in group}:
            self._broker.logs[place].append(None)
        self._broker.transactions.append(list(group))
        if failure == "hang after":
            await asyncio.Event().wait()
        if failure == "lost answer":
            raise Uncertain("the answer was lost")
        return offsets

    async def close(self) -> None:
        self._broker.opened.discard(self)
