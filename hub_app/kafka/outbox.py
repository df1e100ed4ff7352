"""The outputs of one batch or tick, grouped by target partition as they come."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

Headers = Sequence[tuple[str, bytes]]
Record = tuple[bytes | None, bytes | None, Headers]


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


class Part:
    """One Kafka record batch being filled, with the records it was made from (for the day it is refused)."""

    __slots__ = ("builder", "records")

    def __init__(self, builder: Any, record: Record) -> None:
        self.builder = builder
        self.records: list[Record] = [record]


class Target:
    """One topic partition and its batches in order; `append` is the last batch's."""

    __slots__ = ("append", "keep", "partition", "parts", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.parts: list[Part] = []
        self.append: Any = None
        self.keep: Any = None


class Channel(Protocol):
    """What an outbox needs from the producer."""

    message_bytes_max: int

    def create_batch(self) -> Any: ...

    async def send(self, targets: Sequence[Target]) -> Flushed: ...

    async def send_until(self, targets: Sequence[Target], deadline_ms: int) -> Flushed: ...


class Outbox:
    """Not shared between tasks. After a successful `flush` it is empty and reusable."""

    __slots__ = ("_channel", "_count", "_create_batch", "_targets")

    def __init__(self, channel: Channel, create_batch: Callable[[], Any] | None = None) -> None:
        """`create_batch`: where batches come from, if not from the channel."""
        self._channel = channel
        self._create_batch = create_batch or channel.create_batch
        self._targets: dict[tuple[str, int], Target] = {}
        self._count = 0

    def add(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> TooLarge | None:
        """Takes one record. `headers` is best given as a list. Returns TooLarge (and takes nothing) past the limit.

        Only the first record of a batch can be larger than a batch, so only that one's size is looked at."""
        if type(headers) is not list:
            headers = list(headers)
        target = self._targets.get((topic, partition))
        if target is not None and target.append(timestamp=None, key=key, value=value, headers=headers) is not None:
            target.keep((key, value, headers))
            self._count += 1
            return None
        return self._begin(topic, partition, key, value, headers)

    def _begin(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> TooLarge | None:
        builder = self._create_batch()
        size = builder.append(timestamp=None, key=key, value=value, headers=headers).size
        # The batch header counts against the broker's limit too.
        limit = self._channel.message_bytes_max - 128
        if size > limit:
            return TooLarge(size, limit)
        target = self._targets.get((topic, partition))
        if target is None:
            target = self._targets[(topic, partition)] = Target(topic, partition)
        part = Part(builder, (key, value, headers))
        target.parts.append(part)
        target.append = builder.append
        target.keep = part.records.append
        self._count += 1
        return None

    def __len__(self) -> int:
        """Records waiting for `flush`."""
        return self._count

    async def flush(self, deadline_ms: int | None = None) -> Flushed:
        """Sends everything and returns when every record is acknowledged (or refused by itself). Waits without limit
        in an outage unless `deadline_ms` (a duration) is given: then DeadlinePassed, and the outbox is empty. Other
        errors (authorization, ...) are raised; the outbox keeps its records then and may be flushed again."""
        if not self._count:
            return Flushed(0, (), {})
        targets = tuple(self._targets.values())
        try:
            if deadline_ms is None:
                flushed = await self._channel.send(targets)
            else:
                flushed = await self._channel.send_until(targets, deadline_ms)
        except DeadlinePassed:
            self.clear()
            raise
        except Exception:
            self._rebuild(targets)
            raise
        self.clear()
        return flushed

    def clear(self) -> None:
        """Forgets what was added."""
        self._targets = {}
        self._count = 0

    def _rebuild(self, targets: Sequence[Target]) -> None:
        """A batch that was handed to a producer cannot be handed to another one: make them again."""
        self.clear()
        for target in targets:
            for part in target.parts:
                for key, value, headers in part.records:
                    self.add(target.topic, target.partition, key, value, headers)
