"""Addresses of sinks under this deployment's rules (docs/delivery.md, "Addresses")."""

from __future__ import annotations

from hub_app.domain.drafts import UrlCheck
from hub_app.domain.egress import UrlProblem, check_url, normalise_url, parse_cidrs
from hub_app.settings import Settings


def url_check(settings: Settings) -> UrlCheck:
    """What judges the address in a request: (normalised, "") or ("", why not)."""
    cidrs = parse_cidrs(settings.sink_allow_cidrs)

    def check(text: str) -> tuple[str, str]:
        url = check_url(text, allow_private=settings.allow_private_sinks, allow_cidrs=cidrs)
        return ("", f"{url.field} {url.detail}") if isinstance(url, UrlProblem) else (normalise_url(url), "")

    return check
