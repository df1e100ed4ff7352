"""The single writer of a shard's compacted topics: subscriptions, keys, operations (design/protocol, "Single writers").

One transactional producer per shard, whose id `<prefix>owner.<p>` fences the owner before it at the moment it starts.
Writes that come together go into one transaction. After anything unexpected the producer is replaced, and the state is
read to its end again before the next write: so what was uncertain is known again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from hub_app.wire.record import Headers, Record

log = logging.getLogger(__name__)

GROUP_MAX = 256
"""Writes in one transaction."""
WAITING_MAX = 4_096
"""Writes that wait for a transaction, per shard; more are refused."""
RETRY_MS_FIRST, RETRY_MS_MAX = 50, 2_000


class Transactions(Protocol):
    """A transactional producer, as `hub_app.kafka.client.make_producer` makes it. `start` fences its predecessors."""

    async def start(self) -> None: ...
    async def stop(self) -> None: ...
    async def begin_transaction(self) -> None: ...
    async def commit_transaction(self) -> None: ...
    async def abort_transaction(self) -> None: ...
    async def send(
        self, topic: str, *, value: bytes | None, key: bytes, partition: int, headers: Headers
    ) -> Awaitable[Any]: ...


Apply = Callable[[str, int, int, bytes, bytes | None, Headers], None]
"""(topic, partition, offset, key, value, headers): what was just written, for the global table of that topic."""


class _Shard: ...


class _Write(NamedTuple):
    topic: str
    record: Record
    written: asyncio.Future[int]


class OwnerLog:
    """Writes to partition p of the owned topics, for each shard p that is open here."""

    def __init__(
        self,
        *,
        prefix: str,
        producers: Callable[[str], Transactions],
        lease: Callable[[], bool],
        catch_up: Callable[[int], Awaitable[None]],
        apply: Apply,
        deadline_ms: int = 10_000,
    ) -> None:
        """`producers(transactional id)` makes an unstarted one. `lease()`: may this worker act as owner now.
        `catch_up(shard)` returns when the global tables have read that partition of every owned topic to its end.
        `deadline_ms` bounds each write, and each start of a producer."""
        self._prefix, self._producers, self._lease = prefix, producers, lease
        self._catch_up, self._apply, self._deadline_s = catch_up, apply, deadline_ms / 1000
        self._shards: dict[int, _Shard] = {}

    def is_open(self, shard: int) -> bool:
        return shard in self._shards

    async def open(self, shard: int) -> None:
        """Fence the owner before, read the state to its end, then serve. Idempotent.

        Raises Fenced without a valid lease, BrokerTrouble when Kafka does not answer in time; nothing is open then.
        """
        raise NotImplementedError

    async def write(self, shard: int, topic: str, record: Record) -> int:
        """Write one record to partition `shard` of `topic`; its offset, once it is committed and applied.

        Raises Fenced (not the owner: nothing was written), BrokerTrouble (nothing was written, try again),
        OutcomeUnknown (it may have been written), RecordTooLarge.
        """
        raise NotImplementedError

    async def close(self, shard: int) -> None:
        """End serving; writes that still wait get Fenced. Idempotent."""
        raise NotImplementedError

    async def stop(self) -> None:
        """Close every shard."""
        raise NotImplementedError
