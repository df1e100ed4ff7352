"""The lease: may this worker still act as owner of its shards?"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaError
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from hub_app.kafka.client import SESSION_TIMEOUT_MS
from hub_app.ports import Clock

NO_ERROR = 0
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER = 25
REBALANCE_IN_PROGRESS = 27
FENCED_INSTANCE = 82
CONTACT = frozenset({NO_ERROR, REBALANCE_IN_PROGRESS})
DISOWNED = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, FENCED_INSTANCE})


class MemberFenced(KafkaError):  # type: ignore[misc]
    """Another process joined under this member's static id; this one may not join again."""


class Lease:
    """True while the last successful contact with the group (heartbeat, commit or sync), counted from the *sending* of
    that request on the monotonic clock, is younger than the session time-out.

    The broker starts its session timer when it handles the request, later than we sent it, so that we always stop
    before it can give our shards away. A heartbeat answered with "rebalance in progress" renews the session there too
    (Kafka keeps such a member). Being told that the member or its generation is unknown ends the lease at once."""

    def __init__(self, clock: Clock, *, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self._clock = clock
        self._session_timeout_ms = session_timeout_ms
        self._contact_ms: int | None = None
        self.contacts = 0

    def valid(self, now_ms: int) -> bool:
        """`now_ms` is `clock.monotonic_ms()`."""
        return self._contact_ms is not None and now_ms - self._contact_ms < self._session_timeout_ms

    def remaining_ms(self, now_ms: int) -> int:
        """How long it would still hold without further contact; 0 when it ran out."""
        if self._contact_ms is None:
            return 0
        return max(0, self._contact_ms + self._session_timeout_ms - now_ms)

    def contact(self, sent_ms: int) -> None:
        """A request sent at `sent_ms` (monotonic) was answered well."""
        self.contacts += 1
        if self._contact_ms is None or sent_ms > self._contact_ms:
            self._contact_ms = sent_ms

    def end(self) -> None:
        """The member left, or was told that it is none."""
        self._contact_ms = None

    def attach(self, consumer: AIOKafkaConsumer, *, may_join: Callable[[], Awaitable[bool]] | None = None) -> None:
        """Watches every request of a started, not yet subscribed consumer to its group coordinator.

        aiokafka has one place through which heartbeats, commits, joins and syncs go to the coordinator
        (`GroupCoordinator._send_req`); wrapping that one on the instance leaves all its behaviour alone. `may_join` is
        asked before a join that follows an unknown-member answer under a valid lease: that happens when somebody else
        took this static id. False refuses the join (MemberFenced)."""
        coordinator = consumer._coordinator
        send = coordinator._send_req
        displaced = asyncio.Event()

        async def watched(request: Any) -> Any:
            if isinstance(request, JoinGroupRequest) and displaced.is_set() and may_join is not None:
                if not await may_join():
                    raise MemberFenced("another process joined the group under this member's instance id")
                displaced.clear()
            sent_ms = self._clock.monotonic_ms()
            response = await send(request)
            if self._judge(request, response, sent_ms):
                displaced.set()
            return response

        coordinator._send_req = watched

    def _judge(self, request: Any, response: Any, sent_ms: int) -> bool:
        """Renews or ends the lease; True when the member was disowned although its session cannot have run out."""
        if isinstance(request, HeartbeatRequest | SyncGroupRequest):
            codes = [response.error_code]
        elif isinstance(request, OffsetCommitRequest):
            codes = [code for _, partitions in response.topics for _, code in partitions]
        else:
            if isinstance(request, LeaveGroupRequest):
                self.end()
            return False
        if DISOWNED.intersection(codes):
            early = UNKNOWN_MEMBER in codes or FENCED_INSTANCE in codes
            early = early and self.valid(self._clock.monotonic_ms())
            self.end()
            return early
        # A commit answered "rebalance in progress" was not taken and renews nothing.
        good = CONTACT if isinstance(request, HeartbeatRequest) else {NO_ERROR}
        if any(code in good for code in codes):
            self.contact(sent_ms)
        return False
