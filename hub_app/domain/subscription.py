"""A subscription: what a tenant wants, the sink it wants it in, and the states it goes through.

Every change is a pure function from one immutable value to the next. `enabled` and `verification_state` are two
independent conditions; a subscription receives facts while both hold. Requests are judged in drafts.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from hub_app.domain.filters import FieldProblem, Filter, parse_filters, to_json
from hub_app.domain.instants import rfc3339
from hub_app.domain.limits import DAY_MS

OVERLAP_MS_MAX: Final = 7 * DAY_MS
OVERLAP_MS_DEFAULT: Final = DAY_MS
BY_REQUEST: Final = "by_request"
"""The reason of a subscription that a person created or left disabled."""
MASK: Final = "***"
"""Shown instead of the value of a static header that looks like a credential."""

_CREDENTIAL: Final = re.compile(r"auth|token|secret|key|passw|cookie|credential|session|signature", re.IGNORECASE)


class Verification(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSink:
    """`url` is normalised; `headers` in the order given; `timeout_ms` is an upper bound beside the deployment's."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a request asks for, checked (`drafts.parse_draft`). `verify` false: do not probe at once."""

    name: str
    event_types: tuple[str, ...]
    origin: tuple[str, ...]
    filters: tuple[Filter, ...]
    sink: WebhookSink
    destination: str
    enabled: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Secrets are sealed texts; they never leave through `to_public` or `repr`. `origin` empty: no pin.

    `enabled_at_ms`: when it was last enabled or verified by request; what was held against its sink before is void.
    `inactive_since_ms`: since when it has not been both enabled and active; None while it is."""

    id: str
    tenant: str
    name: str
    event_types: tuple[str, ...]
    origin: tuple[str, ...]
    filters: tuple[Filter, ...]
    sink: WebhookSink
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
    """`pending` until its sink is verified; revision 1."""
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
        verification_state=Verification.PENDING,
        disabled_reason=None if draft.enabled else BY_REQUEST,
        disabled_at_ms=None if draft.enabled else now_ms,
        enabled_at_ms=now_ms,
        inactive_since_ms=now_ms,
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


# -- records and answers -----------------------------------------------------------------------------------------------
def sink_json(sink: WebhookSink) -> dict[str, object]:
    """As a request writes it."""
    return {"type": "webhook", "url": sink.url, "headers": dict(sink.headers), "timeout_ms": sink.timeout_ms}


def to_record(subscription: Subscription) -> dict[str, object]:
    """Plain JSON values for the log, sealed secrets included. Instants stay integers of milliseconds."""
    plain = {name: getattr(subscription, name) for name in subscription.__slots__}
    return plain | {
        "event_types": list(subscription.event_types),
        "origin": list(subscription.origin),
        "filters": to_json(subscription.filters),
        "sink": sink_json(subscription.sink),
        "verification_state": subscription.verification_state.value,
    }


def from_record(record: Mapping[str, object]) -> Subscription:
    """The inverse of `to_record`. ValueError when the record cannot be one; unknown fields are ignored, so that a
    worker of an older version reads what a newer one wrote."""
    get = _Reader(record)
    filters = parse_filters(record.get("filters"))
    if filters and isinstance(filters[0], FieldProblem):
        raise ValueError(f"filters: {filters[0]}")
    return Subscription(
        id=get.text("id"),
        tenant=get.text("tenant"),
        name=get.text("name"),
        event_types=get.texts("event_types"),
        origin=get.texts("origin"),
        filters=tuple(one for one in filters if isinstance(one, Filter)),
        sink=_sink_of(record.get("sink")),
        destination=get.text("destination"),
        enabled=get.flag("enabled"),
        verification_state=Verification(get.text("verification_state")),
        disabled_reason=get.text_or_none("disabled_reason"),
        disabled_at_ms=get.number_or_none("disabled_at_ms"),
        enabled_at_ms=get.number("enabled_at_ms"),
        inactive_since_ms=get.number_or_none("inactive_since_ms"),
        created_at_ms=get.number("created_at_ms"),
        updated_at_ms=get.number("updated_at_ms"),
        revision=get.number("revision"),
        secret=get.text("secret"),
        previous_secret=get.text_or_none("previous_secret"),
        previous_secret_until_ms=get.number_or_none("previous_secret_until_ms"),
    )


def to_public(subscription: Subscription) -> dict[str, object]:
    """The read model of the API; never a secret. Static headers that look like credentials are masked."""
    disabled_at_ms = subscription.disabled_at_ms
    sink = sink_json(subscription.sink)
    sink["headers"] = {name: MASK if looks_secret(name) else value for name, value in subscription.sink.headers}
    return {
        "id": subscription.id,
        "tenant": subscription.tenant,
        "name": subscription.name,
        "event_types": list(subscription.event_types),
        "origin": list(subscription.origin),
        "filters": to_json(subscription.filters),
        "sink": sink,
        "enabled": subscription.enabled,
        "verification_state": subscription.verification_state.value,
        "disabled_reason": subscription.disabled_reason,
        "disabled_at": None if disabled_at_ms is None else rfc3339(disabled_at_ms),
        "created_at": rfc3339(subscription.created_at_ms),
        "updated_at": rfc3339(subscription.updated_at_ms),
        "revision": subscription.revision,
        "destination": subscription.destination,
    }


def looks_secret(header: str) -> bool:
    """Whether the value of a static header of this name is not shown again."""
    return _CREDENTIAL.search(header) is not None


def _sink_of(obj: object) -> WebhookSink:
    if not isinstance(obj, Mapping) or obj.get("type") != "webhook":
        raise ValueError("sink: not one that this version knows")
    get, headers = _Reader(obj), obj.get("headers")
    if not isinstance(headers, Mapping):
        raise _malformed("headers", "an object")
    pairs = tuple((name, _Reader(headers).text(name)) for name in headers)
    return WebhookSink(url=get.text("url"), headers=pairs, timeout_ms=get.number("timeout_ms"))


class _Reader:
    """Typed fields of a record; ValueError names the field that is not what it must be."""

    def __init__(self, record: Mapping[str, object]) -> None:
        self._record = record

    def text(self, name: str) -> str:
        value = self._record.get(name)
        if not isinstance(value, str):
            raise _malformed(name, "a text")
        return value

    def number(self, name: str) -> int:
        value = self._record.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise _malformed(name, "a whole number")
        return value

    def flag(self, name: str) -> bool:
        value = self._record.get(name)
        if not isinstance(value, bool):
            raise _malformed(name, "true or false")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        value = self._record.get(name)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise _malformed(name, "a list of texts")
        return tuple(value)

    def text_or_none(self, name: str) -> str | None:
        return None if self._record.get(name) is None else self.text(name)

    def number_or_none(self, name: str) -> int | None:
        return None if self._record.get(name) is None else self.number(name)


def _malformed(name: str, wanted: str) -> ValueError:
    return ValueError(f"{name}: not {wanted}")
