"""The lease: may this worker still act as owner of its shards?"""

from __future__ import annotations

from hub_app.ports import Clock


class Lease:
    """True while the last successful contact with the group (heartbeat, commit or sync), counted from the *sending* of
    that request on the monotonic clock, is younger than the session time-out."""

    def __init__(self, clock: Clock, *, session_timeout_ms: int = 10_000) -> None:
        raise NotImplementedError

    def valid(self, now_ms: int) -> bool:
        """`now_ms` is `clock.monotonic_ms()`."""
        raise NotImplementedError

    def remaining_ms(self, now_ms: int) -> int:
        """How long it would still hold without further contact; 0 when it ran out."""
        raise NotImplementedError
