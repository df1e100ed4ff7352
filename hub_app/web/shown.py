"""How a subscription is shown, and the refusals that several of its routes give."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from hub_app.domain.subscription import Subscription, Verification
from hub_app.domain.subscription_json import to_public
from hub_app.web.idempotency import REPLAYED
from hub_app.web.problems import FieldError, Problem, conflict, json_response

ROUTE: Final = "/v1/subscriptions"


def shown(
    subscription: Subscription, more: Mapping[str, object] | None = None, *, replayed: bool = False
) -> web.Response:
    """200 with the read model, its ETag, and members that only this answer has."""
    headers = {"ETag": etag(subscription)}
    if replayed:
        headers[REPLAYED] = "true"
    return json_response({**to_public(subscription), **(more or {})}, headers=headers)


def etag(subscription: Subscription) -> str:
    return f'"{subscription.revision}"'


def precondition(if_match: str | None, subscription: Subscription) -> Problem | None:
    """412 when the caller speaks of another state than the present one (RFC 9110, 13.1.1: compared strongly, `*` is any
    state). Without the header whatever state there is will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    if etag(subscription) in [tag.strip() for tag in if_match.split(",")]:
        return None
    detail = f"the subscription has changed: its ETag is {etag(subscription)}; read it again, then repeat the change"
    return Problem(
        412,
        "stale",
        "The subscription has changed",
        detail,
        (FieldError("", detail),),
        headers={"ETag": etag(subscription)},
    )


def changed_meanwhile(what: str = "subscription") -> Problem:
    return conflict("changed", f"the {what} is being changed by others all the time; read it and try again")


def not_active(subscription: Subscription) -> Problem:
    """409: nothing is sent to a sink that is not verified, or for a subscription that is disabled."""
    if subscription.verification_state is not Verification.ACTIVE:
        return conflict("not-active", "the sink is not verified: POST …/verify first")
    return conflict("not-active", f"the subscription is disabled ({subscription.disabled_reason}): enable it first")


def not_a_webhook() -> Problem:
    return conflict("not-a-webhook", "the subscription's sink is a queue: nothing is sent, so nothing is signed")


def no_secret(detail: str) -> Problem:
    """503: this deployment holds no key for it. No `Retry-After`, for it needs a person."""
    return Problem(503, "no-key", "Secrets cannot be kept or opened here", detail)


def busy() -> Problem:
    detail = "too many verifications and tests are being made; try again in a moment"
    return Problem(429, "busy", "Too many of them at once", detail, headers={"Retry-After": "2"})
