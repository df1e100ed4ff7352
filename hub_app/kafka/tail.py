"""A group-less reader of a compacted topic, from its beginning, for ever."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import mode

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock, Entropy

Apply = Callable[[int, int, bytes | None, bytes | None, Sequence[tuple[str, bytes]]], None]


class TopicTail(mode.Service):  # type: ignore[misc]
    """Reads every partition of `topic` (`read_committed`) and calls `apply(partition, offset, key, value, headers)` in
    offset order. `apply` must not raise for any record."""

    def __init__(
        self,
        config: KafkaConfig,
        topic: str,
        apply: Apply,
        *,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        reset: Callable[[int], None] | None = None,
    ) -> None:
        """`reset(partition)` is called when the log was re-created: forget that partition, it is read again."""
        raise NotImplementedError

    @property
    def positions(self) -> Mapping[int, int]:
        """partition -> next offset; everything below was applied."""
        raise NotImplementedError

    async def caught_up(self, partition: int, end_offset: int) -> None:
        """Returns once `positions[partition] >= end_offset`."""
        raise NotImplementedError

    async def read_to_end(self, partition: int) -> int:
        """Fetches the end (last stable offset) as of now, waits for it, returns it."""
        raise NotImplementedError

    async def all_read_to_end(self) -> None:
        """`read_to_end` of every partition."""
        raise NotImplementedError
