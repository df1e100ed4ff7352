"""A subscription: what a tenant wants, the sink it wants it in, and the states it goes through."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hub_app.domain.filters import FieldProblem, Filter


class Verification(StrEnum):
    PENDING = "pending"
    ACTIVE = "active"


UrlCheck = Callable[[str], "tuple[str, str]"]
"""A URL as written -> (destination text, "") when it may be used, else ("", why not)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSink:
    """`url` is normalised; `headers` in the order given; `timeout_ms` is an upper bound beside the deployment's."""

    url: str
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    timeout_ms: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What a request asks for, checked. `verify` false: do not probe at once."""

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
    """Secrets are sealed texts; they never leave through `to_public` or `repr`. `origin` empty: no pin."""

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


def parse_draft(obj: object, *, check_url: UrlCheck, timeout_ms_max: int = 10_000) -> Draft | tuple[FieldProblem, ...]:
    """A create request. Every problem at once; unknown fields are refused by name."""
    raise NotImplementedError


def parse_patch(
    obj: object, current: Subscription, *, check_url: UrlCheck, timeout_ms_max: int = 10_000
) -> Draft | tuple[FieldProblem, ...]:
    """A change request over `current` (fields given replace, inside `sink` too): what it should be afterwards."""
    raise NotImplementedError


def created(draft: Draft, *, id: str, tenant: str, secret: str, now_ms: int) -> Subscription:
    """`pending` until its sink is verified; revision 1."""
    raise NotImplementedError


def verified(subscription: Subscription, *, now_ms: int, enable: bool) -> Subscription:
    """The probe passed: active. `enable`: a person asked for it, so it is enabled too."""
    raise NotImplementedError


def verification_failed(subscription: Subscription) -> Subscription:
    """Changes nothing: the answer says why."""
    return subscription


def disabled(subscription: Subscription, *, reason: str, now_ms: int) -> Subscription:
    """Never touches the verification state. The first reason stays."""
    raise NotImplementedError


def enabled(subscription: Subscription, *, now_ms: int) -> Subscription:
    """Re-enabled in place."""
    raise NotImplementedError


def patched(subscription: Subscription, draft: Draft, *, now_ms: int) -> Subscription:
    """As the draft says. A changed address goes back to `pending`. The same object when nothing changes."""
    raise NotImplementedError


def rotated(subscription: Subscription, *, secret: str, overlap_ms: int, now_ms: int) -> Subscription:
    """A new secret now, the old one valid for `overlap_ms` more (0…7 days)."""
    raise NotImplementedError


def signing_secrets(subscription: Subscription, *, now_ms: int) -> tuple[str, ...]:
    """Sealed secrets to sign with at `now_ms`, newest first."""
    raise NotImplementedError


def to_record(subscription: Subscription) -> dict[str, object]:
    """Plain JSON values for the log, sealed secrets included."""
    raise NotImplementedError


def from_record(record: Mapping[str, object]) -> Subscription:
    """The inverse of `to_record`. ValueError when the record cannot be one; unknown fields are ignored."""
    raise NotImplementedError


def to_public(subscription: Subscription) -> dict[str, object]:
    """The read model of the API; never a secret."""
    raise NotImplementedError
