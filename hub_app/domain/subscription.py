"""A subscription: what a tenant wants, the sink it wants it in, and the states it goes through.

Every change is a pure function from one immutable value to the next. `enabled` and `verification_state` are two
independent conditions; a subscription receives facts while both hold. Requests are judged in drafts.py,
records and answers made in subscription_json.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from hub_app.domain.filters import Filter
from hub_app.domain.limits import DAY_MS

OVERLAP_MS_MAX: Final = 7 * DAY_MS
OVERLAP_MS_DEFAULT: Final = DAY_MS
BY_REQUEST: Final = "by_request"
"""The reason of a subscription that a person created or left disabled."""
FAILING: Final = "failing"
"""The reason of one that was disabled because its sink only failed."""


class Verification(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"


class SealedText(str):
    """A static header's value as it is kept: sealed. `chars`: of the value itself."""

    chars: int

    def __new__(cls, sealed: str, chars: int) -> SealedText:
        made = super().__new__(cls, sealed)
        made.chars = chars
        return made


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSink:
    """`url` is normalised; `headers` in the order given, values that look like credentials sealed
    (`agents.sealing`); `timeout_ms` is an upper bound beside the deployment's."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSink:
    """Events wait in the hub until they are received. `topic`: the one published to, or the `ce-source` of facts from
    Kafka; with `name` it is the queue's address, and does not change."""

    topic: str
    name: str
    lock_ms: int
    deliveries_max: int
    ttl_ms: int


Sink = WebhookSink | QueueSink


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a request asks for, checked (`drafts.parse_draft`). `verify` false: do not probe at once."""

    name: str
    event_types: tuple[str, ...]
    origin: tuple[str, ...]
    filters: tuple[Filter, ...]
    sink: Sink
    destination: str
    enabled: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Secrets are sealed texts; they never leave through the read model or `repr`. `origin` empty: no pin.

    `enabled_at_ms`: when it was last enabled or verified by request; what was held against its sink before is void.
    `inactive_since_ms`: since when it has not been both enabled and active; None while it is."""

    id: str
    tenant: str
    name: str
    event_types: tuple[str, ...]
    origin: tuple[str, ...]
    filters: tuple[Filter, ...]
    sink: Sink
    destination: str
    enabled: bool
    verification_state: Verification
    disabled_reason: str | None
    disabled_at_ms: int | None
    enabled_at_ms: int
    inactive_since_ms: int | None
    created_at_ms: int
    updated_at_ms: int
    revision: int
    secret: str = field(repr=False)
    previous_secret: str | None = field(default=None, repr=False)
    previous_secret_until_ms: int | None = None

    @property
    def receives(self) -> bool:
        """Enabled and active: two independent conditions."""
        return self.enabled and self.verification_state is Verification.ACTIVE


# -- life --------------------------------------------------------------------------------------------------------------
def created(draft: Draft, *, id: str, tenant: str, secret: str, now_ms: int) -> Subscription:
    """`pending` until its sink is verified; a queue, which is our own, is active. Revision 1."""
    is_queue = isinstance(draft.sink, QueueSink)
    return Subscription(
        id=id,
        tenant=tenant,
        name=draft.name,
        event_types=draft.event_types,
        origin=draft.origin,
        filters=draft.filters,
        sink=draft.sink,
        destination=draft.destination,
        enabled=draft.enabled,
        verification_state=Verification.ACTIVE if is_queue else Verification.PENDING,
        disabled_reason=None if draft.enabled else BY_REQUEST,
        disabled_at_ms=None if draft.enabled else now_ms,
        enabled_at_ms=now_ms,
        inactive_since_ms=None if is_queue and draft.enabled else now_ms,
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
        revision=1,
        secret=secret,
    )


def verified(subscription: Subscription, *, now_ms: int, enable: bool) -> Subscription:
    """The probe passed: active. `enable`: a person asked for it, so it is enabled too and its past is void, which
    clears the streak of failures and the breaker. Without it, the same object if it was active already."""
    if not enable and subscription.verification_state is Verification.ACTIVE:
        return subscription
    changes: dict[str, Any] = {"verification_state": Verification.ACTIVE}
    return _changed(subscription, now_ms, **changes, **(_enabling(now_ms) if enable else {}))


def verification_failed(subscription: Subscription) -> Subscription:
    """Changes nothing: the answer says why."""
    return subscription


def disabled(subscription: Subscription, *, reason: str, now_ms: int) -> Subscription:
    """Never touches the verification state. The first reason stays: the same object if it was disabled already."""
    if not subscription.enabled:
        return subscription
    return _changed(subscription, now_ms, **_disabling(reason, now_ms))


def enabled(subscription: Subscription, *, now_ms: int) -> Subscription:
    """Re-enabled in place; the same object if it was enabled."""
    if subscription.enabled:
        return subscription
    return _changed(subscription, now_ms, **_enabling(now_ms))


def patched(subscription: Subscription, draft: Draft, *, now_ms: int) -> Subscription:
    """As the draft says (`drafts.parse_patch`). A changed address goes back to `pending`. The same object when nothing
    changes."""
    wanted: dict[str, Any] = {
        "name": draft.name,
        "event_types": draft.event_types,
        "origin": draft.origin,
        "filters": draft.filters,
        "sink": draft.sink,
        "destination": draft.destination,
    }
    changes = {name: value for name, value in wanted.items() if getattr(subscription, name) != value}
    if draft.destination != subscription.destination or type(draft.sink) is not type(subscription.sink):
        changes["verification_state"] = Verification.PENDING
    if draft.enabled and not subscription.enabled:
        changes.update(_enabling(now_ms))
    elif subscription.enabled and not draft.enabled:
        changes.update(_disabling(BY_REQUEST, now_ms))
    return _changed(subscription, now_ms, **changes) if changes else subscription


def rotated(subscription: Subscription, *, secret: str, overlap_ms: int, now_ms: int) -> Subscription:
    """A new (sealed) secret now, the old one valid for `overlap_ms` more; ValueError outside 0…7 days. The one before
    the old one ends at once."""
    if not 0 <= overlap_ms <= OVERLAP_MS_MAX:
        raise ValueError("the overlap is 0 to 7 days")
    return _changed(
        subscription,
        now_ms,
        secret=secret,
        previous_secret=subscription.secret if overlap_ms else None,
        previous_secret_until_ms=now_ms + overlap_ms if overlap_ms else None,
    )


def signing_secrets(subscription: Subscription, *, now_ms: int) -> tuple[str, ...]:
    """Sealed secrets to sign with at `now_ms`, newest first. The previous one's end is exclusive."""
    previous, until_ms = subscription.previous_secret, subscription.previous_secret_until_ms
    if previous is not None and until_ms is not None and now_ms < until_ms:
        return (subscription.secret, previous)
    return (subscription.secret,)


def _enabling(now_ms: int) -> dict[str, Any]:
    return {"enabled": True, "disabled_reason": None, "disabled_at_ms": None, "enabled_at_ms": now_ms}


def _disabling(reason: str, now_ms: int) -> dict[str, Any]:
    return {"enabled": False, "disabled_reason": reason, "disabled_at_ms": now_ms}


def _changed(subscription: Subscription, now_ms: int, **changes: Any) -> Subscription:
    made = replace(subscription, **changes, updated_at_ms=now_ms, revision=subscription.revision + 1)
    if made.receives:
        since_ms = None
    else:
        since_ms = now_ms if subscription.receives else subscription.inactive_since_ms
    return made if since_ms == made.inactive_since_ms else replace(made, inactive_since_ms=since_ms)
