"""Producing without loss: one idempotent producer, outputs grouped by target partition, every future awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import mode

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.standing import Standing

Headers = Sequence[tuple[str, bytes]]


class TooLarge(NamedTuple):
    """A record that was not taken: its size would be refused by the broker."""

    size_bytes: int
    limit_bytes: int


class Refused(NamedTuple):
    """A record that the broker refused by itself; every other record of the flush is written."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    reason: str


class Flushed(NamedTuple):
    """`offsets[(topic, partition)]` holds the offset of each record in the order of `add` (None for a refused one, or
    when the broker no longer knew it); `refused` is almost always empty."""

    records: int
    refused: Sequence[Refused]
    offsets: Mapping[tuple[str, int], Sequence[int | None]]


class DeadlinePassed(Exception):
    """The flush was not acknowledged in time. Its records may still be written: unknown, not failed."""


class Outbox:
    """The outputs of one batch or tick. Not shared between tasks. After `flush` it is empty and reusable."""

    def add(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> TooLarge | None:
        """Takes one record. `headers` is best given as a list. Returns TooLarge (and takes nothing) past the limit."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Records waiting for `flush`."""
        raise NotImplementedError

    async def flush(self, deadline_ms: int | None = None) -> Flushed:
        """Sends everything and returns when every record is acknowledged (or refused by itself). Waits without limit
        in an outage unless `deadline_ms` (a duration) is given: then DeadlinePassed. Other errors
        (authorization, ...) are raised; the outbox keeps its records then and may be flushed again."""
        raise NotImplementedError

    def clear(self) -> None:
        """Forgets what was added."""
        raise NotImplementedError


class HubProducer(mode.Service):  # type: ignore[misc]
    """Owns the process's idempotent producer and replaces it when the broker refused a batch."""

    def __init__(
        self, config: KafkaConfig, *, standing: Standing, message_bytes_max: int = 5 << 19, name: str = "producer"
    ) -> None:
        raise NotImplementedError

    def outbox(self) -> Outbox:
        """A new, empty outbox."""
        raise NotImplementedError

    @property
    def stalled_since_ms(self) -> int | None:
        """Wall-clock start of the oldest flush unanswered for more than five seconds."""
        raise NotImplementedError
