"""Creating, replacing and deleting subscriptions, API keys and operations, on the worker that owns the tenant's shard.

Each change is decided on the table and written by the single writer while nothing else changes that tenant, so of two
equal requests at once the second finds the first (docs/protocol.md, "Single writers"). Answers travel in the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

from agents.owner import LookAgain
from hub_app.domain.apikey import ApiKey
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.idempotency import Answer, Claim, Clash, find, key_digest, remember
from hub_app.domain.ids import tenant_key
from hub_app.domain.operation import RUNNING_PER_TENANT_MAX, Operation
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.ports import Clock
from hub_app.topics import partition_for
from hub_app.wire import keys as wire_keys
from hub_app.wire import operations as wire_operations
from hub_app.wire import subscriptions as wire_subscriptions
from hub_app.wire.owned import write_deleted
from hub_app.wire.record import Record
from tables.keys import KeysTable
from tables.operations import OperationsTable
from tables.subscriptions import SubscriptionsTable

SUBSCRIPTIONS_PER_TENANT_MAX = 1_000
KEYS_PER_TENANT_MAX = 1_000
_TRIES = 3


class Refusal(Enum):
    """Why nothing was written."""

    MISSING = "missing"
    EXISTS = "exists"
    STALE = "stale"
    TAKEN = "taken"
    TOO_MANY = "too_many"


class Written(NamedTuple):
    """The change is durable, and in this worker's table."""


class Idempotent(NamedTuple):
    """A request that may come again: what it is, and what to answer to its like."""

    claim: Claim
    answer: str


Result = Written | Answer | Clash | Refusal
"""`Answer`: this request was answered before, say so again. `Clash`: its key was used for another request."""


class Writes(Protocol):
    """`agents.owner.OwnerLog`."""

    async def write(self, shard: int, topic: str, record: Record) -> int | LookAgain: ...


Thing = TypeVar("Thing", Subscription, ApiKey, Operation)


@dataclass(frozen=True, slots=True)
class _Kind(Generic[Thing]):
    """What differs between them."""

    topic: str
    get: Callable[[str, str], Thing | None]
    answers: Callable[[str, str], tuple[Answer, ...]]
    count: Callable[[str], int]
    most: int
    write: Callable[[Thing, tuple[Answer, ...]], Record]
    taken: Callable[[Thing], bool] = lambda thing: False


class _Registrations(Generic[Thing]):
    def __init__(self, writes: Writes, kind: _Kind[Thing], *, shards: int, clock: Clock, ttl_ms: int) -> None:
        self._kind: _Kind[Thing] = kind
        self._writes, self._shards = writes, shards
        self._clock, self._ttl_ms = clock, ttl_ms
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def create(self, thing: Thing, idempotent: Idempotent | None = None) -> Result:
        """EXISTS when the id is taken, TAKEN when its address is, TOO_MANY when the tenant has its fill. Raises what
        `OwnerLog.write` raises."""
        kind = self._kind

        def decide(tried: bool) -> Record | Result:
            present = kind.get(thing.tenant, thing.id)
            if tried and present == thing:
                return Written()
            if known := self._known(thing.tenant, thing.id, idempotent):
                return known
            if present is not None:
                return Refusal.EXISTS
            if kind.taken(thing):
                return Refusal.TAKEN
            if kind.count(thing.tenant) >= kind.most:
                return Refusal.TOO_MANY
            return kind.write(thing, self._answers(thing.tenant, thing.id, idempotent))

        return await self._change(thing.tenant, decide)

    async def replace(self, before: Thing, thing: Thing, idempotent: Idempotent | None = None) -> Result:
        """`thing` in the place of `before` (same tenant and id). STALE when the table holds something else by now,
        MISSING when it holds nothing. Raises what `OwnerLog.write` raises."""
        kind = self._kind

        def decide(tried: bool) -> Record | Result:
            present = kind.get(thing.tenant, thing.id)
            if tried and present == thing:
                return Written()
            if known := self._known(thing.tenant, thing.id, idempotent):
                return known
            if present is None:
                return Refusal.MISSING
            if present != before:
                return Refusal.STALE
            return kind.write(thing, self._answers(thing.tenant, thing.id, idempotent))

        return await self._change(thing.tenant, decide)

    async def delete(
        self, tenant: str, id: str, *, before: Thing | None = None, idempotent: Idempotent | None = None
    ) -> Result:
        """MISSING when there is none; STALE when `before` is given and the table holds something else by now. Raises
        what `OwnerLog.write` raises."""
        kind = self._kind

        def decide(tried: bool) -> Record | Result:
            present = kind.get(tenant, id)
            if tried and present is None:
                return Written()
            if known := self._known(tenant, id, idempotent):
                return known
            if present is None:
                return Refusal.MISSING
            if before is not None and present != before:
                return Refusal.STALE
            return write_deleted(tenant, id, self._answers(tenant, id, idempotent))

        return await self._change(tenant, decide)

    async def _change(self, tenant: str, decide: Callable[[bool], Record | Result]) -> Result:
        """One change of a tenant at a time: between the decision and its record nothing else is decided."""
        lock = self._locks.setdefault(tenant, asyncio.Lock())
        shard = partition_for(tenant_key(tenant), self._shards)
        async with lock:
            outcome: int | LookAgain = LookAgain("")
            for tried in range(_TRIES):
                decision = decide(tried > 0)
                if not isinstance(decision, Record):
                    return decision
                outcome = await self._writes.write(shard, self._kind.topic, decision)
                if not isinstance(outcome, LookAgain):
                    return Written()
            raise BrokerTrouble(f"not written after {_TRIES} tries: {outcome}")

    def _known(self, tenant: str, id: str, idempotent: Idempotent | None) -> Answer | Clash | None:
        if idempotent is None:
            return None
        answers = self._kind.answers(tenant, id)
        return find(answers, tenant, idempotent.claim, now_ms=self._clock.now_ms(), ttl_ms=self._ttl_ms)

    def _answers(self, tenant: str, id: str, idempotent: Idempotent | None) -> tuple[Answer, ...]:
        """The answers to go into the record: those there are, and the new one."""
        answers = self._kind.answers(tenant, id)
        if idempotent is None:
            return answers
        claim, text = idempotent
        new = Answer(key_digest(tenant, claim.key), claim.digest, self._clock.now_ms(), text)
        return remember(answers, new, ttl_ms=self._ttl_ms)


class SubscriptionStore(_Registrations[Subscription]):
    """Changes of subscriptions."""

    def __init__(
        self, writes: Writes, table: SubscriptionsTable, *, shards: int, clock: Clock, idempotency_ttl_ms: int
    ) -> None:
        kind: _Kind[Subscription] = _Kind(
            table.topic,
            table.get,
            table.answers,
            table.count,
            SUBSCRIPTIONS_PER_TENANT_MAX,
            wire_subscriptions.write,
            lambda made: (
                isinstance(made.sink, QueueSink) and (made.sink.topic, made.sink.name) in table.queues(made.tenant)
            ),
        )
        super().__init__(writes, kind, shards=shards, clock=clock, ttl_ms=idempotency_ttl_ms)


class KeyStore(_Registrations[ApiKey]):
    """Changes of API keys."""

    def __init__(self, writes: Writes, table: KeysTable, *, shards: int, clock: Clock, idempotency_ttl_ms: int) -> None:
        kind: _Kind[ApiKey] = _Kind(
            table.topic,
            table.row,
            table.answers,
            table.count,
            KEYS_PER_TENANT_MAX,
            wire_keys.write,
        )
        super().__init__(writes, kind, shards=shards, clock=clock, ttl_ms=idempotency_ttl_ms)


class OperationStore(_Registrations[Operation]):
    """Changes of bulk operations; TOO_MANY counts those that run."""

    def __init__(
        self, writes: Writes, table: OperationsTable, *, shards: int, clock: Clock, idempotency_ttl_ms: int
    ) -> None:
        kind: _Kind[Operation] = _Kind(
            table.topic,
            table.get,
            table.answers,
            table.count,
            RUNNING_PER_TENANT_MAX,
            wire_operations.write,
        )
        super().__init__(writes, kind, shards=shards, clock=clock, ttl_ms=idempotency_ttl_ms)
