"""Disabling subscriptions whose sink stays dead, on the worker that owns the tenant's inbox shard.

Dispatch owners say in `hub.health` for whom the rule fired; only this owner may change the subscription. It does so if
the streak began after the subscription was last enabled, and never touches the verification. People are told first: a
crash between the two tells them again, with the same id (docs/delivery.md, "Auto-disable").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from agents.outputs import flush
from agents.registrations import Result
from hub_app.domain.errors import HubError
from hub_app.domain.health import StreakHealth
from hub_app.domain.ids import tenant_key
from hub_app.domain.instants import rfc3339
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.domain.subscription import FAILING, Subscription, disabled
from hub_app.kafka.producer import HubProducer
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import partition_for
from hub_app.wire import operator as wire
from tables.health import HealthTable
from tables.subscriptions import SubscriptionsTable

LOOK_EVERY_S = 1.0
WAITING_MAX = 10_000


class Disabler:
    def __init__(
        self,
        *,
        health: HealthTable,
        subscriptions: SubscriptionsTable,
        replace: Callable[[Subscription, Subscription], Awaitable[Result]],
        owned: Callable[[int], bool],
        shards: int,
        producer: HubProducer,
        topic: str,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        """`owned(shard)`: the inbox shard is this worker's now. `topic`: of operator events."""
        self._health, self._subscriptions, self._replace, self._owned = health, subscriptions, replace, owned
        self._count, self._producer, self._topic, self._clock = shards, producer, topic, clock
        self._disabled, self._log = metrics.disabled.only(), Log("inbox")
        self._recovered: list[OperatorEvent] = []

    def subscription_changed(self, before: Subscription | None, now: Subscription | None) -> None:
        """Notes that one which had been disabled for its failures was enabled again."""
        if before is None or now is None or before.enabled or not now.enabled or before.disabled_reason != FAILING:
            return
        if self._is_mine(now.tenant) and len(self._recovered) < WAITING_MAX:
            mark, detail = str(before.disabled_at_ms), "enabled again, after it had been disabled for its failures"
            kind, at_ms = OperatorKind.RECOVERED, self._clock.now_ms()
            self._recovered.append(OperatorEvent(now.tenant, kind, at_ms, now.destination, now.id, mark, detail))

    async def step(self) -> None:
        """One look, after a while."""
        await asyncio.sleep(LOOK_EVERY_S)
        for wanted in list(self._health.wanted.values()):
            subscription = self._subscriptions.get(wanted.tenant, wanted.subscription)
            if subscription is not None and self._is_due(subscription, wanted):
                try:
                    await self._disable(subscription, wanted)
                except HubError as error:  # looked at again in a moment, by whoever owns the shard then
                    self._log.warning(Event.AGENT_FAILED, subscription=subscription.id, error=repr(error))
        if self._recovered:
            await self._tell(self._recovered)
            self._recovered = []

    def _is_mine(self, tenant: str) -> bool:
        return self._owned(partition_for(tenant_key(tenant), self._count))

    def _is_due(self, subscription: Subscription, wanted: StreakHealth) -> bool:
        """What is recorded of an earlier life, or of another address, does not count."""
        return (
            subscription.enabled
            and subscription.destination == wanted.destination
            and wanted.streak.first_ms >= subscription.enabled_at_ms
            and self._is_mine(subscription.tenant)
        )

    async def _disable(self, subscription: Subscription, wanted: StreakHealth) -> None:
        now_ms, streak = self._clock.now_ms(), wanted.streak
        detail = f"only failures from {rfc3339(streak.first_ms)} to {rfc3339(streak.last_ms)}"
        kind, mark = OperatorKind.DISABLED, str(streak.first_ms)
        await self._tell(
            [OperatorEvent(subscription.tenant, kind, now_ms, subscription.destination, subscription.id, mark, detail)]
        )
        await self._replace(subscription, disabled(subscription, reason=FAILING, now_ms=now_ms))
        self._disabled.inc()
        self._log.warning(Event.SUBSCRIPTION_DISABLED, subscription=subscription.id, detail=detail)

    async def _tell(self, events: list[OperatorEvent]) -> None:
        outbox = self._producer.outbox()
        for event in events:
            outbox.add(self._topic, partition_for(tenant_key(event.tenant), self._count), *wire.write(event))
        await flush(outbox)
