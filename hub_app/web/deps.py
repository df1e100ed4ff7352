"""What the API needs, as one value that the composition fills. Nothing here is found by import or by name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from agents.archive import Archive
from agents.dead_letters import DeadLetters
from agents.dispatch_shard import DispatchShard
from agents.operator_log import OperatorEvents
from agents.queue_steps import Delivered, TokenError
from agents.registrations import KeyStore, OperationStore, SubscriptionStore
from agents.sinks import Sink
from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.cloudevents import Accept
from hub_app.domain.fact import Fact
from hub_app.domain.health import Place
from hub_app.domain.publishing import Published, Unfit
from hub_app.domain.queue import Operation
from hub_app.domain.queue_tokens import Token
from hub_app.domain.subscription import Subscription
from hub_app.ports import Clock, Entropy, Keyring, Sender
from hub_app.settings import Settings
from hub_app.telemetry import Log, Metrics
from hub_app.web.arrivals import Arrivals
from tables.inbox import SEQ_MAX
from tables.keys import KeysTable
from tables.operations import OperationsTable
from tables.subscriptions import SubscriptionsTable


class KeysTail(Protocol):
    """How far this worker has read the keys."""

    @property
    def caught_up(self) -> bool:
        """The topic has been read to its end once, and its reader is not known to be behind."""

    async def refresh(self, timeout_ms: int) -> bool:
        """Reads to where the topic's end is now; False when that could not be done in time."""


class Page(Protocol):
    @property
    def facts(self) -> list[Fact]: ...
    @property
    def next_seq(self) -> int: ...
    @property
    def more(self) -> bool: ...


class InboxReader(Protocol):
    """One open inbox shard (`tables.inbox.InboxTable`). Calls are short and do not wait."""

    def events_after(
        self,
        tenant: str,
        after: int,
        *,
        limit: int,
        bytes_max: int,
        until: int = SEQ_MAX,
        wants: Callable[[str, str], bool] | None = None,
    ) -> Page: ...

    def fact(self, tenant: str, seq: int) -> Fact | None: ...

    def oldest(self, tenant: str) -> int | None: ...

    def newest(self, tenant: str) -> int | None: ...

    def horizon(self, tenant: str) -> int: ...


class Owners(Protocol):
    """Who serves which inbox shard."""

    def is_here(self, shard: int) -> bool:
        """Open in this worker, under a valid lease."""

    def inbox(self, shard: int) -> InboxReader | None:
        """The tables of a shard that is here; None when it has just gone."""

    async def url_of(self, shard: int) -> str | None:
        """Where its owner is reached, as far as known; None when nobody owns it. May be this worker's own URL, while
        the shard opens."""


class SinkOwners(Protocol):
    """Who serves which dispatch shard."""

    def shard(self, number: int) -> DispatchShard | None:
        """Open here, under a valid lease."""

    async def url_of(self, shard: int) -> str | None: ...


class Reason(Protocol):
    @property
    def since_ms(self) -> int: ...
    @property
    def text(self) -> str: ...
    @property
    def blocks(self) -> bool:
        """Not ready because of it; else it is only shown."""


class QueueAccess(Protocol):
    """The queues of the shards that are here (`agents.queue_access.Queues`)."""

    async def receive(
        self, shard: int, subscription: Subscription, *, most: int, wait_ms: int, connected: Callable[[], bool]
    ) -> list[Delivered]: ...

    async def settle(
        self,
        shard: int,
        subscription: Subscription,
        operation: Operation,
        tokens: Sequence[Token | None],
        *,
        delay_ms: int = 0,
    ) -> list[TokenError | None]: ...


class PublishAccess(Protocol):
    """`agents.publishing.Publisher`."""

    async def publish(self, tenant: str, topic: str, events: Sequence[Published]) -> Unfit | None: ...


Readiness = Callable[[], Mapping[str, Reason]]
"""What stands still, by name; ready when none of it blocks."""


class Reply(NamedTuple):
    """An answer of another worker."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoReply(NamedTuple):
    """`sent`: the other worker may have seen the request."""

    sent: bool
    detail: str


class Peers(Protocol):
    """Carries a request to another worker (`web.peers`)."""

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> Reply | NoReply: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class WebDeps:
    settings: Settings
    version: str
    admin_key: str = field(repr=False)  # empty: no bootstrap admin
    clock: Clock
    entropy: Entropy
    keyring: Keyring
    sender: Sender
    keys: KeysTable
    keys_tail: KeysTail
    key_store: KeyStore
    subscriptions: SubscriptionsTable
    subscription_store: SubscriptionStore
    operations: OperationsTable
    operation_store: OperationStore
    operation_begun: Callable[[], None]
    dead_letters: DeadLetters
    queues: QueueAccess
    publisher: PublishAccess
    archive: Archive
    operator_events: OperatorEvents
    readmit: Callable[[Accept, bytes, tuple[int, int]], Awaitable[None]]  # repaired, and now a fact
    owners: Owners
    sinks: SinkOwners
    held_against: Callable[[Place], Sink | None]  # now, of sinks whose shard is here (`agents.health.SinkHealth.sink`)
    disabling: DisablePolicy | None  # None: nobody is disabled for their failures
    peers: Peers
    readiness: Readiness
    stopping: Callable[[], bool]  # true from the first sign of the end: not ready, polls end
    metrics: Metrics
    log: Log
    arrivals: Arrivals
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
