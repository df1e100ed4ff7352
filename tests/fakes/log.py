"""Kafka in a list, for agents that write through outboxes and read ranges: `HubProducer` and `RangeReader` in one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.producer.message_accumulator import BatchBuilder

from hub_app.kafka.outbox import Flushed, Headers, Outbox, Refused, Target

REFUSAL = "MessageSizeTooLargeError: [Error 10]"


class Entry(NamedTuple):
    """A record as a consumer gives it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


class FakeLog:
    """`flushes`: the topics of each flush; `parts`: of how many batches each was. Nothing is written while `gate` is
    shut; `ids` are those of topics that were made anew; `failure` is raised instead; `after` is called when something
    was written."""

    message_bytes_max = 5 << 19

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.topics: dict[tuple[str, int], list[Entry]] = defaultdict(list)
        self.ids: dict[str, bytes] = {}
        self.flushes: list[list[str]] = []
        self.parts: list[int] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.after: Callable[[Sequence[Target]], None] = lambda targets: None
        self.limits: dict[str, int] = {}
        """Bytes of a value that a topic takes at most, if somebody has set a limit."""
        self._now_ms = now_ms

    def records(self, topic: str) -> list[Entry]:
        return [entry for (name, _), log in sorted(self.topics.items()) if name == topic for entry in log]

    # -- producing -----------------------------------------------------------------------------------------------------
    def outbox(self) -> Outbox:
        return Outbox(self)

    def whole_outbox(self) -> Outbox:
        return Outbox(self, lambda: BatchBuilder(self.message_bytes_max, 0))

    def create_batch(self) -> Any:
        return BatchBuilder(1 << 19, 0)

    async def send(self, targets: Sequence[Target]) -> Flushed:
        await self.gate.wait()
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        offsets: dict[tuple[str, int], list[int | None]] = {}
        refused: list[Refused] = []
        for target in targets:
            log = self.topics[target.topic, target.partition]
            mine = offsets.setdefault((target.topic, target.partition), [])
            for part in target.parts:
                for key, value, headers in part.records:
                    if len(value or b"") > self.limits.get(target.topic, self.message_bytes_max):
                        refused.append(Refused(target.topic, target.partition, key, value, headers, REFUSAL))
                        mine.append(None)
                        continue
                    mine.append(len(log))
                    place = (target.topic, target.partition, len(log))
                    log.append(Entry(*place, key, value, headers, self._now_ms()))
        self.flushes.append([target.topic for target in targets])
        self.parts.append(sum(len(target.parts) for target in targets))
        self.after(targets)
        return Flushed(sum(map(len, offsets.values())) - len(refused), refused, offsets)

    async def send_until(self, targets: Sequence[Target], deadline_ms: int) -> Flushed:
        return await self.send(targets)

    # -- reading -------------------------------------------------------------------------------------------------------
    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]:
        return {partition: len(self.topics[topic, partition]) for partition in partitions}

    async def topic_ids(self, topics: Sequence[str]) -> Mapping[str, bytes]:
        return {topic: self.ids.get(topic, topic.encode()) for topic in topics}

    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None:
        return next((entry.offset for entry in self.topics[topic, partition] if entry.timestamp >= time_ms), None)

    async def read_range(self, topic: str, partition: int, start: int, stop: int) -> AsyncIterator[Sequence[Entry]]:
        for entry in self.topics[topic, partition][start:stop]:
            yield [entry]
