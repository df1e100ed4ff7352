"""What is known of a sink's health: of a destination its breaker, of a subscription its streak of failures.

Both outlive the worker that saw them (`wire.health`), and both are void once a person has enabled the subscription
again: what was held against its sink before that moment counts no more (docs/delivery.md, "Auto-disable").
"""

from __future__ import annotations

from typing import NamedTuple

from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import CLOSED, Breaker

Place = tuple[str, str]
"""(tenant, destination)"""


class BreakerHealth(NamedTuple):
    """`changed_ms`: when its last event was."""

    tenant: str
    destination: str
    breaker: Breaker
    changed_ms: int


class StreakHealth(NamedTuple):
    """`warned_percent`: the highest warning given. `disable_wanted`: the rule fired; nothing of this subscription is
    attempted any more, and the owner of its tenant's inbox is to disable it."""

    tenant: str
    destination: str
    subscription: str
    streak: Streak
    warned_percent: int = 0
    disable_wanted: bool = False


Health = BreakerHealth | StreakHealth


def breaker_since(health: BreakerHealth, *, enabled_at_ms: int) -> Breaker:
    """What of a recorded breaker still counts after a subscription of its destination was enabled at `enabled_at_ms`.
    One that is open counts from when it opened, failures in a row from the last of them."""
    began_ms = health.breaker.opened_at_ms if health.breaker.open_ms else health.changed_ms
    return health.breaker if began_ms >= enabled_at_ms else CLOSED
