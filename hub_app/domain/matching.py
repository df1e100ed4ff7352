"""Which subscriptions of one tenant receive a fact, and why the others do not (docs/delivery.md, "Matching")."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from hub_app.domain.event_types import patterns_for
from hub_app.domain.fact import Fact
from hub_app.domain.filters import Predicate, compile_filter, compile_filters, payload_json
from hub_app.domain.subscription import QueueSink, Subscription

_KNOWN_TYPES_MAX: Final = 256
"""Event types whose subscriptions are remembered per tenant; with more, all are forgotten and found again."""


class Mismatch(NamedTuple):
    """The first condition that failed: tenant, enabled, verification_state, topic, event_types, origin or filters."""

    condition: str
    detail: str


class _Entry(NamedTuple):
    order: int
    subscription: Subscription
    topic: str | None
    origin: frozenset[str] | None
    holds: Predicate | None


class Index:
    """The subscriptions of one tenant, compiled by event type, so that a fact costs about a microsecond when few
    receive it. Make a new one when one of them changes."""

    __slots__ = ("_by_pattern", "_by_type", "tenant")

    def __init__(self, tenant: str, subscriptions: Iterable[Subscription]) -> None:
        self.tenant = tenant
        self._by_pattern: dict[str, list[_Entry]] = {}
        self._by_type: dict[str, tuple[_Entry, ...]] = {}
        for order, subscription in enumerate(subscriptions):
            if subscription.tenant == tenant and subscription.receives:
                entry = _Entry(
                    order,
                    subscription,
                    subscription.sink.topic if isinstance(subscription.sink, QueueSink) else None,
                    frozenset(subscription.origin) if subscription.origin else None,
                    compile_filters(subscription.filters) if subscription.filters else None,
                )
                for pattern in subscription.event_types:
                    self._by_pattern.setdefault(pattern, []).append(entry)

    def match(self, fact: Fact) -> list[Subscription]:
        """The subscriptions that receive `fact`, in the order given; none is a correct answer."""
        if fact.tenant != self.tenant:
            return []
        entries = self._by_type.get(fact.event_type)
        if entries is None:
            entries = self._find(fact.event_type)
        received = []
        view: tuple[dict[str, str], Callable[[], object]] | None = None
        for _, subscription, topic, origin, holds in entries:
            if topic is not None and topic != fact.topic:
                continue
            if origin is not None and fact.source not in origin:
                continue
            if holds is not None:
                if view is None:
                    view = view_of(fact)
                if not holds(*view):
                    continue
            received.append(subscription)
        return received

    def _find(self, event_type: str) -> tuple[_Entry, ...]:
        found = {
            entry.order: entry for pattern in patterns_for(event_type) for entry in self._by_pattern.get(pattern, ())
        }
        entries = tuple(found[order] for order in sorted(found))
        if len(self._by_type) >= _KNOWN_TYPES_MAX:
            self._by_type.clear()
        self._by_type[event_type] = entries
        return entries


def view_of(fact: Fact) -> tuple[dict[str, str], Callable[[], object]]:
    """What filters look at: the attributes by name, and the payload, parsed once and only if asked for."""
    attributes = {name[3:]: value.decode("utf-8", "replace") for name, value in fact.headers if name.startswith("ce-")}
    parsed: list[object] = []

    def data() -> object:
        if not parsed:
            parsed.append(payload_json(fact.value, attributes.get("datacontenttype")))
        return parsed[0]

    return attributes, data


def explain(subscription: Subscription, fact: Fact) -> Mismatch | None:
    """The first condition that fails, in the order of the rules; None when the fact is received."""
    if subscription.tenant != fact.tenant:
        return Mismatch("tenant", "another tenant's")
    if not subscription.enabled:
        return Mismatch("enabled", subscription.disabled_reason or "disabled")
    if not subscription.receives:
        return Mismatch("verification_state", subscription.verification_state)
    if isinstance(subscription.sink, QueueSink) and subscription.sink.topic != fact.topic:
        return Mismatch("topic", f"{fact.topic} is not {subscription.sink.topic}")
    return mismatch(subscription, fact)


def mismatch(subscription: Subscription, fact: Fact) -> Mismatch | None:
    """As `explain`, for a fact of the subscription's tenant and whatever state the subscription is in."""
    if not set(patterns_for(fact.event_type)).intersection(subscription.event_types):
        return Mismatch("event_types", f"{fact.event_type} is none of {', '.join(subscription.event_types)}")
    if subscription.origin and fact.source not in subscription.origin:
        return Mismatch("origin", f"{fact.source} is none of {', '.join(subscription.origin)}")
    view = view_of(fact)
    for i, one in enumerate(subscription.filters):
        if not compile_filter(one)(*view):
            return Mismatch("filters", f"filter {i}: {one.operator} on {one.key} does not hold")
    return None
