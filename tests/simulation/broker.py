"""Kafka as the simulation sees it: partitions that keep records, committed offsets, and who owns which shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Place = tuple[str, int]
"""(topic, partition)"""


class Rec(NamedTuple):
    """`aiokafka.ConsumerRecord`, as far as the hub reads it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


class Refusal(Exception):
    """What an outage answers."""


class Broker:
    """`now_ms` is the broker's clock: records carry the time of their append."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._logs: dict[Place, list[Rec]] = {}
        self.committed: dict[Place, int] = {}
        self.owners: dict[int, object] = {}
        self.on_append: list[Callable[[Rec], None]] = []
        self.on_commit: list[Callable[[Place, int], None]] = []

    def log(self, topic: str, partition: int) -> list[Rec]:
        return self._logs.setdefault((topic, partition), [])

    def places(self) -> list[Place]:
        return list(self._logs)

    def end(self, topic: str, partition: int) -> int:
        return len(self.log(topic, partition))

    def append(
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes]],
    ) -> int:
        log = self.log(topic, partition)
        record = Rec(topic, partition, len(log), self._now_ms(), key, value, tuple(headers))
        log.append(record)
        for told in self.on_append:
            told(record)
        return record.offset

    def commit(self, owner: object, topic: str, partition: int, offset: int) -> None:
        """Nothing happens when somebody else owns the shard by now: the group has gone on."""
        if self.owners.get(partition) is owner:
            self.committed[topic, partition] = offset
            for told in self.on_commit:
                told((topic, partition), offset)

    def make_anew(self, topic: str, partition: int) -> None:
        """The topic was deleted and created again."""
        self._logs[topic, partition] = []
