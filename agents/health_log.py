"""Writing `hub.health`: transitions at once, what only grows at most once a minute, nothing for what comes and goes.

Records go with the outcomes of the next tick (`agents.settle`), so what they say is never ahead of the attempts log by
more than that tick, and a shard that is closed here writes no more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from agents.dispatch_shard import DispatchShard
from agents.outcomes import Note
from hub_app.domain.health import Health, StreakHealth
from hub_app.domain.limits import MINUTE_MS
from hub_app.ports import Clock
from hub_app.wire import health as wire

WRITE_EVERY_MS = MINUTE_MS

Key = tuple[str, str, str | None]
"""(tenant, destination, subscription); None: of the destination itself."""


class _Kept:
    """`waits`: what is to be written when its minute is over. `written`: the topic holds a value."""

    __slots__ = ("next_ms", "shard", "waits", "written")

    def __init__(self, shard: DispatchShard, next_ms: int, *, written: bool) -> None:
        self.shard, self.next_ms, self.written = shard, next_ms, written
        self.waits: Health | None = None


class HealthLog:
    def __init__(self, topic: str, clock: Clock, note: Callable[[Note], None]) -> None:
        self._topic, self._clock, self._note = topic, clock, note
        self._keys: dict[Key, _Kept] = {}
        self._waiting: set[Key] = set()

    def found(self, shard: DispatchShard, key: Key) -> None:
        """The topic holds a value."""
        self._keys[key] = _Kept(shard, self._clock.now_ms(), written=True)

    def write(self, shard: DispatchShard, health: Health) -> None:
        """At once."""
        kept = self._of(shard, health)
        kept.waits, kept.written, kept.next_ms = None, True, self._clock.now_ms() + WRITE_EVERY_MS
        self._waiting.discard(_key(health))
        self._note(Note(self._topic, shard.number, wire.write(health), shard))

    def grow(self, shard: DispatchShard, health: Health) -> None:
        """Within a minute, unless it changes meanwhile."""
        self._of(shard, health).waits = health
        self._waiting.add(_key(health))

    def clear(self, shard: DispatchShard, key: Key) -> None:
        """Nothing is held against it any more."""
        kept = self._keys.pop(key, None)
        self._waiting.discard(key)
        if kept is not None and kept.written:
            self._note(Note(self._topic, shard.number, wire.write_cleared(*key), shard))

    def check(self) -> None:
        """Writes what has waited for its minute. A clock that stepped makes nothing wait for longer."""
        now_ms = self._clock.now_ms()
        for key in [k for k in self._waiting if not 0 < self._keys[k].next_ms - now_ms <= WRITE_EVERY_MS]:
            self._write_now(key)

    def flush(self, shards: Collection[DispatchShard]) -> None:
        """Writes everything that waits: the shards are about to be somebody else's."""
        for key in [key for key in self._waiting if self._keys[key].shard in shards]:
            self._write_now(key)

    def close(self, shard: DispatchShard) -> None:
        """Forgets the shard's keys."""
        self._keys = {key: kept for key, kept in self._keys.items() if kept.shard is not shard}
        self._waiting &= self._keys.keys()

    def _of(self, shard: DispatchShard, health: Health) -> _Kept:
        kept = self._keys.get(_key(health))
        if kept is None:
            kept = self._keys[_key(health)] = _Kept(shard, self._clock.now_ms() + WRITE_EVERY_MS, written=False)
        return kept

    def _write_now(self, key: Key) -> None:
        kept = self._keys[key]
        if kept.waits is not None:
            self.write(kept.shard, kept.waits)


def _key(health: Health) -> Key:
    return (health.tenant, health.destination, health.subscription if isinstance(health, StreakHealth) else None)
