"""What an inbox shard's owner keeps a view of, beside its facts: dead letters. Followed without a group; the place in
each log lies with the rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from agents.dead_letters import DeadLetters
from hub_app.domain.limits import MINUTE_MS
from hub_app.ports import Clock

EXPIRE_EVERY_MS: Final = MINUTE_MS


class Views:
    """For `hub_app.kafka.follower.Follower`. `here()`: the inbox shards that this worker serves now."""

    def __init__(self, dead_letters: DeadLetters, *, here: Callable[[], Sequence[int]], clock: Clock) -> None:
        self._dead, self._here, self._clock = dead_letters, here, clock
        self._expire_at_ms = 0

    def wanted(self) -> Mapping[tuple[str, int], int]:
        """The next offset of each log."""
        here = self._here()
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._expire_at_ms:
            self._expire_at_ms = now_ms + EXPIRE_EVERY_MS
            for shard in here:
                self._dead.expire(shard)
        return self._dead.places(here)

    def deliver(self, topic: str, shard: int, records: Sequence[Any], next_offset: int) -> None:
        self._dead.take_in(shard, records, next_offset)

    def recreated(self, topic: str, shard: int) -> None:
        self._dead.begin_again(shard)
