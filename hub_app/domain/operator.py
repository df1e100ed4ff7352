"""What people are told about their subscriptions and sinks: operator events."""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Final, NamedTuple

from hub_app.domain.limits import HOUR_MS, MINUTE_MS

BURST_COUNT: Final = 20
BURST_WINDOW_MS: Final = 5 * MINUTE_MS
BURST_QUIET_MS: Final = HOUR_MS
BURST_KEYS_MAX: Final = 10_000


class OperatorKind(StrEnum):
    DISABLED = "subscription.disabled"
    WARNED = "subscription.warned"
    RECOVERED = "subscription.recovered"
    BREAKER_OPENED = "breaker.opened"
    BREAKER_CLOSED = "breaker.closed"
    BURST = "dead_letters.burst"


class OperatorEvent(NamedTuple):
    """`mark` tells apart events of one kind about one thing; the same again has the same id, so that a repeat after a
    crash is known as one. `destination` or `subscription` is empty where the event is not about one. `detail` is for
    people."""

    tenant: str
    kind: OperatorKind
    at_ms: int
    destination: str
    subscription: str
    mark: str
    detail: str

    @property
    def id(self) -> str:
        text = f"{self.tenant}\x1f{self.kind}\x1f{self.destination}\x1f{self.subscription}\x1f{self.mark}"
        return "op_" + blake2b(text.encode(), digest_size=16).hexdigest()


class Bursts:
    """Dead letters of one subscription that come close together: told once, and then not for an hour. In memory alone;
    a restart may tell again."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], tuple[int, int]] = {}

    def note(self, tenant: str, subscription: str, now_ms: int) -> bool:
        """One more died. Whether this makes a burst that is to be told."""
        key = (tenant, subscription)
        since_ms, count = self._since.get(key, (now_ms, 0))
        if count >= BURST_COUNT:
            if 0 <= now_ms - since_ms < BURST_QUIET_MS:
                return False
            since_ms, count = now_ms, 0
        elif not 0 <= now_ms - since_ms <= BURST_WINDOW_MS:
            since_ms, count = now_ms, 0
        if key not in self._since and len(self._since) >= BURST_KEYS_MAX:
            del self._since[next(iter(self._since))]
        self._since[key] = (since_ms, count + 1)
        return count + 1 == BURST_COUNT
