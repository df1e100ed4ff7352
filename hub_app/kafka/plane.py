"""A member of a plane's consumer group: shards come, are opened, deliver batches, and go."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Literal, Protocol

import mode

from hub_app.kafka.batch import Batch
from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.lease import Lease
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock, Entropy

Deliver = Callable[[Batch], Awaitable[None]]


class ShardListener(Protocol):
    """Who opens and closes shards. All calls of one plane are made one after another, except `opened`, which runs as a
    task per shard and may take long; it is cancelled when the shard goes away meanwhile (then `closed` follows)."""

    async def suspended(self, shards: frozenset[int]) -> None:
        """A rebalance began: stop claiming, flush. Must be quick (the plane stops waiting after a few seconds)."""

    async def resumed(self, shards: frozenset[int]) -> None:
        """These came straight back: go on, nothing was lost."""

    async def closed(self, shard: int) -> None:
        """The shard belongs to someone else now (or is about to be opened anew): close its folder."""

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        """The log ends below the committed offset (re-created). The committed offset has been lowered to `end`.
        Called before `opened`."""

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Opens the shard; returns where to start reading each topic. All maps are by topic. Raising is retried with
        growing, capped delay and shown in readiness. A start below `begin` stops the shard with a reason."""


class ShardPlane(mode.Service):  # type: ignore[misc]
    """One group member over `topics` (plus every existing topic that `also` accepts), N partitions each."""

    lease: Lease

    def __init__(
        self,
        config: KafkaConfig,
        *,
        name: str,
        group: str,
        topics: Sequence[str],
        shards: int,
        url: str,
        listener: ShardListener,
        deliver: Deliver,
        commit: Literal["after_batch", "manual"],
        shards_on_disk: Callable[[], Sequence[int]],
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        also: Callable[[str], bool] | None = None,
        instance_id: str | None = None,
        batch_records_max: int = 1_000,
        batch_bytes_max: int = 1 << 20,
        buffer_bytes_max: int = 24 << 20,
    ) -> None:
        raise NotImplementedError

    @property
    def owners(self) -> Mapping[int, str]:
        """shard -> URL for the whole group, as of the last assignment."""
        raise NotImplementedError

    @property
    def open_shards(self) -> frozenset[int]:
        """Shards opened and delivering (or ready to) here."""
        raise NotImplementedError

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """For `commit="manual"`: low-water marks by (topic, partition). Returns at once; commits are coalesced and
        monotone; those of shards that left are dropped."""
        raise NotImplementedError

    async def committed_up_to(self) -> None:
        """Waits until everything given to `commit`/`done` so far was committed or dropped."""
        raise NotImplementedError

    def pause(self, shard: int, reason: str) -> None:
        """Back-pressure: no further batches of this shard until every reason given was resumed."""
        raise NotImplementedError

    def resume(self, shard: int, reason: str) -> None:
        """Takes one reason away."""
        raise NotImplementedError

    def extend(self, topics: Sequence[str]) -> None:
        """Adds topics to the subscription (a rebalance follows)."""
        raise NotImplementedError

    def reopen(self, shard: int, reason: str) -> None:
        """Closes and opens the shard again without a rebalance (damaged folder, disk full, fenced owner)."""
        raise NotImplementedError
