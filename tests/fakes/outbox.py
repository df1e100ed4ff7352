"""Outputs without a broker."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from hub_app.wire.record import Headers, Record


class Log(Protocol):
    def append(self, topic: str, partition: int, record: Record) -> int: ...


class Flushed(NamedTuple):
    refused: tuple[object, ...] = ()


class FakeOutbox:
    """`hub_app.kafka.outbox.Outbox` over a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[tuple[str, int, Record]] = []

    def add(self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        self._waiting.append((topic, partition, Record(key, value, headers)))

    def __len__(self) -> int:
        return len(self._waiting)

    async def flush(self) -> Flushed:
        waiting, self._waiting = self._waiting, []
        for topic, partition, record in waiting:
            self._log.append(topic, partition, record)
        return Flushed()
