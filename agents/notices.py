"""What people are told about their subscriptions and sinks: records of `hub.operator`, in the tenant's partition.

Written by owners: of dispatch shards with the outcomes that they follow from, of inbox shards before the change that
they speak of. At least once; a repeat has the same id.
"""

from __future__ import annotations

from collections.abc import Callable

from agents.dispatch_shard import DispatchShard
from agents.outcomes import Note, Settled
from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import Breaker
from hub_app.domain.health import Place
from hub_app.domain.ids import tenant_key
from hub_app.domain.instants import rfc3339
from hub_app.domain.operator import BURST_COUNT, BURST_WINDOW_MS, Bursts, OperatorEvent, OperatorKind
from hub_app.ports import Clock
from hub_app.topics import partition_for
from hub_app.wire import operator as wire


class Notices:
    """Those of dispatch owners. `note` writes a record with the next outcomes (`agents.settle.Settler.note`)."""

    def __init__(self, *, topic: str, shards: int, clock: Clock, note: Callable[[Note], None]) -> None:
        self._topic, self._count, self._clock, self._note = topic, shards, clock, note
        self._bursts = Bursts()

    def breaker_opened(self, shard: DispatchShard, place: Place, breaker: Breaker) -> None:
        at_ms = breaker.opened_at_ms
        detail = f"after {breaker.failures} failures in a row; tried again in {breaker.open_ms / 1000:g} s"
        self._tell(OperatorEvent(place[0], OperatorKind.BREAKER_OPENED, at_ms, place[1], "", str(at_ms), detail), shard)

    def breaker_closed(self, shard: DispatchShard, place: Place, breaker: Breaker, why: str) -> None:
        now_ms = self._clock.now_ms()
        mark, detail = str(breaker.opened_at_ms), f"{why}; {breaker.failures} failures in a row before"
        self._tell(OperatorEvent(place[0], OperatorKind.BREAKER_CLOSED, now_ms, place[1], "", mark, detail), shard)

    def warned(self, shard: DispatchShard, place: Place, subscription: str, streak: Streak, percent: int) -> None:
        now_ms = self._clock.now_ms()
        mark = f"{streak.first_ms}/{percent}"
        detail = f"only failures since {rfc3339(streak.first_ms)}: {percent} % of the time after which it is disabled"
        self._tell(OperatorEvent(place[0], OperatorKind.WARNED, now_ms, place[1], subscription, mark, detail), shard)

    def recovered(self, shard: DispatchShard, place: Place, subscription: str, streak: Streak) -> None:
        now_ms = self._clock.now_ms()
        detail = f"a delivery succeeded, after only failures since {rfc3339(streak.first_ms)}"
        kind, mark = OperatorKind.RECOVERED, str(streak.first_ms)
        self._tell(OperatorEvent(place[0], kind, now_ms, place[1], subscription, mark, detail), shard)

    def died(self, settled: Settled) -> None:
        """A dead letter; many of one subscription that come close together are told."""
        job, now_ms = settled.row.job, self._clock.now_ms()
        if self._bursts.note(job.tenant, job.subscription, now_ms):
            minutes = BURST_WINDOW_MS // 60_000
            detail = f"{BURST_COUNT} or more within {minutes} minutes"
            event = OperatorEvent(
                job.tenant, OperatorKind.BURST, now_ms, job.destination, job.subscription, str(now_ms), detail
            )
            self._tell(event, None)

    def _tell(self, event: OperatorEvent, shard: DispatchShard | None) -> None:
        partition = partition_for(tenant_key(event.tenant), self._count)
        self._note(Note(self._topic, partition, wire.write(event), shard))
