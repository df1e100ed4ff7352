"""What this worker knows of the sinks of its dispatch shards: breakers, and streaks of failures.

Every end of an attempt comes here; what follows goes three ways: a block in the scheduler, records of `hub.health`
(`agents.health_log`), and what people are told (`agents.notices`). The owner of a shard reads its part of `hub.health`
to the end before it claims anything, so a breaker outlives its worker.
"""

from __future__ import annotations

from collections.abc import Callable

from agents.dispatch_shard import DispatchShard
from agents.health_log import HealthLog
from agents.notices import Notices
from agents.sinks import Failing, Sink
from hub_app.domain import autodisable, breaker
from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.breaker import CLOSED, BreakerPolicy, State
from hub_app.domain.delivery import Job
from hub_app.domain.health import Place, StreakHealth, breaker_since
from hub_app.domain.ids import destination_key
from hub_app.domain.limits import SECOND_MS
from hub_app.domain.subscription import Subscription
from hub_app.ports import Clock
from hub_app.topics import partition_for
from tables.health import HealthTable
from tables.subscriptions import SubscriptionsTable

JUDGE_EVERY_MS = 10 * SECOND_MS

Block = Callable[[Place, int | None, int | None], None]
"""(place, blocked until, at most so many afterwards)"""


class SinkHealth:
    def __init__(
        self,
        *,
        table: HealthTable,
        subscriptions: SubscriptionsTable,
        shards: int,
        clock: Clock,
        breakers: BreakerPolicy,
        disabling: DisablePolicy | None,
        log: HealthLog,
        notices: Notices,
    ) -> None:
        """`disabling` None: subscriptions are never disabled by themselves."""
        self._table, self._subscriptions, self._count, self._clock = table, subscriptions, shards, clock
        self._breakers, self._disabling, self.log, self._notices = breakers, disabling, log, notices
        self.block: Block = lambda place, until_ms, at_most: None
        self.wanted: set[str] = set()
        """Subscriptions that are to be disabled: nothing of theirs is attempted."""
        self._sinks: dict[Place, Sink] = {}
        self._judged_ms = 0

    # -- shards come and go --------------------------------------------------------------------------------------------
    def open(self, shard: DispatchShard) -> None:
        """Takes over what the topic says of the shard's places; to be called when it has been read to its end."""
        enabled: dict[str, dict[str, int]] = {}
        for place in self._table.places(lambda at: partition_for(destination_key(*at), self._count) == shard.number):
            tenant, destination = place
            if tenant not in enabled:
                enabled[tenant] = self._enabled_at(tenant)
            sink = self._sinks[place] = Sink(shard, place)
            recorded = self._table.breaker(place)
            if recorded is not None:
                self.log.found(shard, (*place, None))
                sink.breaker = breaker_since(recorded, enabled_at_ms=enabled[tenant].get(destination, 0))
                sink.changed_ms = recorded.changed_ms
                if sink.breaker == CLOSED:
                    self.log.clear(shard, (*place, None))
            for health in self._table.streaks(place).values():
                self._take_over(sink, health)
            self._apply(sink)
            self._forget_if_clean(sink)

    def _enabled_at(self, tenant: str) -> dict[str, int]:
        """destination -> when one of those who receive there was last enabled."""
        found: dict[str, int] = {}
        for one in self._subscriptions.of_tenant(tenant):
            if one.receives:
                found[one.destination] = max(found.get(one.destination, 0), one.enabled_at_ms)
        return found

    def _take_over(self, sink: Sink, health: StreakHealth) -> None:
        id = health.subscription
        self.log.found(sink.shard, (*sink.place, id))
        one = self._subscriptions.get(health.tenant, id)
        if one is None or one.destination != health.destination:
            self.log.clear(sink.shard, (*sink.place, id))
            return
        sink.failing[id] = Failing(health.streak, warned=health.warned_percent, wanted=health.disable_wanted)
        if health.disable_wanted:
            self.wanted.add(id)
        self._since_enabled(sink, one)
        if id in sink.failing:
            self._judge(sink, id, self._clock.now_ms())

    def close(self, shard: DispatchShard) -> None:
        for place, sink in list(self._sinks.items()):
            if sink.shard is shard:
                del self._sinks[place]
                self.wanted -= sink.failing.keys()
                if sink.until_ms is not None:
                    self.block(place, None, None)
        self.log.close(shard)

    # -- attempts end --------------------------------------------------------------------------------------------------
    def attempted(self, shard: DispatchShard, job: Job, *, ok: bool | None) -> None:
        """An attempt of a job ended; None: it was not charged, and says nothing of the sink."""
        if ok is None or shard.closed:
            return
        place = (job.tenant, job.destination)
        sink = self._sinks.get(place)
        if not ok:
            sink = sink or self._sinks.setdefault(place, Sink(shard, place))
            self._failed(sink, job.subscription, self._clock.now_ms())
        elif sink is not None:
            self._succeeded(sink, job.subscription)

    def _succeeded(self, sink: Sink, subscription: str) -> None:
        self._close_breaker(sink, "a delivery succeeded")
        if (failing := sink.failing.get(subscription)) is not None:
            self._end_streak(sink, subscription)
            if failing.warned:
                self._notices.recovered(sink.shard, sink.place, subscription, failing.streak)
        self._forget_if_clean(sink)

    def _failed(self, sink: Sink, subscription: str, now_ms: int) -> None:
        before = sink.breaker
        sink.breaker = breaker.after(before, breaker.Event.FAILED, now_ms=now_ms, policy=self._breakers)
        sink.changed_ms = now_ms
        if (sink.breaker.opened_at_ms, sink.breaker.open_ms) != (before.opened_at_ms, before.open_ms):
            self.log.write(sink.shard, sink.breaker_health())
            if not before.open_ms:
                self._notices.breaker_opened(sink.shard, sink.place, sink.breaker)
        else:
            self.log.grow(sink.shard, sink.breaker_health())
        self._apply(sink)  # always: a probe may have failed after the clock had stepped back to when it was open
        failing = sink.failing.get(subscription)
        if failing is None:
            sink.failing[subscription] = Failing(autodisable.failed(None, at_ms=now_ms))
        else:
            failing.streak = autodisable.failed(failing.streak, at_ms=now_ms)
        self.log.grow(sink.shard, sink.streak_health(subscription))
        self._judge(sink, subscription, now_ms)

    # -- what changes by a person's will, or by time -------------------------------------------------------------------
    def subscription_changed(self, before: Subscription | None, now: Subscription | None) -> None:
        """What was held against a subscription's sink before it was enabled again is void; what was held against the
        address it had is nobody's."""
        if before is not None and (now is None or now.destination != before.destination):
            old = self._sinks.get((before.tenant, before.destination))
            if old is not None and before.id in old.failing:
                self._end_streak(old, before.id)
                self._forget_if_clean(old)
        sink = self._sinks.get((now.tenant, now.destination)) if now is not None else None
        if now is None or sink is None:
            return
        if now.receives and breaker_since(sink.breaker_health(), enabled_at_ms=now.enabled_at_ms) == CLOSED:
            self._close_breaker(sink, "a subscription was enabled or verified")
        if now.id in sink.failing:
            self._since_enabled(sink, now)
        self._forget_if_clean(sink)

    def _since_enabled(self, sink: Sink, subscription: Subscription) -> None:
        failing = sink.failing[subscription.id]
        streak = autodisable.since_enabled(failing.streak, enabled_at_ms=subscription.enabled_at_ms)
        if streak is None:
            self._end_streak(sink, subscription.id)
        elif streak != failing.streak:
            failing.streak, failing.warned, failing.wanted = streak, 0, False
            self.wanted.discard(subscription.id)
            self.log.write(sink.shard, sink.streak_health(subscription.id))

    def check(self) -> None:
        """To be called about once a second: streaks that come of age, blocks that a clock which stepped back would hold
        for too long, records that have waited for their minute."""
        now_ms = self._clock.now_ms()
        if not 0 <= now_ms - self._judged_ms < JUDGE_EVERY_MS:
            self._judged_ms = now_ms
            for sink in self._sinks.values():
                for subscription in sink.failing:
                    self._judge(sink, subscription, now_ms)
                if sink.until_ms and breaker.state_at(sink.breaker, now_ms) is State.HALF_OPEN:
                    self._apply(sink)
        self.log.check()

    def _judge(self, sink: Sink, subscription: str, now_ms: int) -> None:
        failing, policy = sink.failing[subscription], self._disabling
        if policy is None or failing.wanted:
            return
        percent = autodisable.warning_percent(failing.streak, now_ms=now_ms, policy=policy)
        if autodisable.fires(failing.streak, now_ms=now_ms, policy=policy):
            failing.wanted = True
            self.wanted.add(subscription)
            self.log.write(sink.shard, sink.streak_health(subscription))
        elif percent > failing.warned:
            failing.warned = percent
            self.log.write(sink.shard, sink.streak_health(subscription))
            self._notices.warned(sink.shard, sink.place, subscription, failing.streak, percent)

    # -- the scheduler -------------------------------------------------------------------------------------------------
    def again(self, place: Place) -> None:
        """The scheduler may have forgotten the place since."""
        if (sink := self._sinks.get(place)) is not None:
            self._apply(sink)

    def sink(self, place: Place) -> Sink | None:
        """What is held against it, as it is now; None: nothing. Only of places whose shard is here."""
        return self._sinks.get(place)

    def open_places(self) -> list[tuple[DispatchShard, Place]]:
        """Where attempts are blocked now."""
        now_ms, sinks = self._clock.now_ms(), [sink for sink in self._sinks.values() if sink.breaker.open_ms]
        return [(s.shard, s.place) for s in sinks if breaker.state_at(s.breaker, now_ms) is State.OPEN]

    def not_closed(self) -> int:
        return sum(1 for sink in self._sinks.values() if sink.breaker.open_ms)

    def _apply(self, sink: Sink) -> None:
        """Open: nothing before its time is over, and then one attempt at once, until it closes."""
        until_ms: int | None = None
        if sink.breaker.open_ms:
            is_open = breaker.state_at(sink.breaker, self._clock.now_ms()) is State.OPEN
            until_ms = (sink.breaker.until_ms or 0) if is_open else 0
        if until_ms is not None or sink.until_ms is not None:
            sink.until_ms = until_ms
            self.block(sink.place, until_ms, None if until_ms is None else 1)

    def _close_breaker(self, sink: Sink, why: str) -> None:
        before = sink.breaker
        if before == CLOSED:
            return
        sink.breaker = CLOSED
        self.log.clear(sink.shard, (*sink.place, None))
        self._apply(sink)
        if before.open_ms:
            self._notices.breaker_closed(sink.shard, sink.place, before, why)

    def _end_streak(self, sink: Sink, subscription: str) -> None:
        del sink.failing[subscription]
        self.wanted.discard(subscription)
        self.log.clear(sink.shard, (*sink.place, subscription))

    def _forget_if_clean(self, sink: Sink) -> None:
        if sink.clean:
            self._sinks.pop(sink.place, None)
