"""Requests to create or change a subscription, judged under this deployment's rules (`domain.drafts`)."""

from __future__ import annotations

from typing import Any, Final

from hub_app.domain.drafts import parse_draft, parse_patch
from hub_app.domain.egress import UrlProblem, check_url, normalise_url, parse_cidrs
from hub_app.domain.limits import QUEUE_TTL_SLACK_MS
from hub_app.domain.queue_sinks import QueueRules
from hub_app.domain.subscription import Draft, Subscription
from hub_app.settings import Settings
from hub_app.web.problems import FieldError, Problem, invalid


class Judge:
    def __init__(self, settings: Settings) -> None:
        self._settings, self._cidrs = settings, parse_cidrs(settings.sink_allow_cidrs)
        self._rules: dict[str, Any] = {
            "check_url": self._check_url,
            "timeout_ms_max": settings.dispatch_timeout_ms,
            "queues": QueueRules(
                lock_ms_min=settings.queue_lock_ms_min, ttl_ms_max=settings.events_retention_ms - QUEUE_TTL_SLACK_MS
            ),
        }

    def create(self, obj: object, *, at: str = "") -> Draft | Problem:
        """`at`: where in the body the draft stands."""
        return _judged(parse_draft(obj, **self._rules), at)

    def change(self, obj: object, current: Subscription) -> Draft | Problem:
        """What `current` should be."""
        return _judged(parse_patch(obj, current, **self._rules), "")

    def _check_url(self, text: str) -> tuple[str, str]:
        """(normalised, "") or ("", why not)."""
        url = check_url(text, allow_private=self._settings.allow_private_sinks, allow_cidrs=self._cidrs)
        if isinstance(url, UrlProblem):
            return "", f"{url.field} {url.detail}{_HINTS.get(url.field, '')}"
        return normalise_url(url), ""


_HINTS: Final = {
    "url": "; give an address such as https://crm.example.com/in",
    "userinfo": "; give credentials in sink.headers",
    "host": "; give the public name of the sink",
}


def _judged(found: Draft | tuple[Any, ...], at: str) -> Draft | Problem:
    return found if isinstance(found, Draft) else invalid(*(FieldError(at + one.pointer, one.detail) for one in found))
