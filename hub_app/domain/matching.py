"""Which subscriptions of one tenant receive a fact, and why the others do not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hub_app.domain.fact import Fact
from hub_app.domain.subscription import Subscription


class Mismatch(NamedTuple):
    """The first condition that failed: tenant, enabled, verification_state, event_types, origin or filters."""

    condition: str
    detail: str


class Index:
    """The subscriptions of one tenant, compiled. Immutable; make a new one when one of them changes."""

    def __init__(self, tenant: str, subscriptions: Iterable[Subscription]) -> None:
        raise NotImplementedError

    def match(self, fact: Fact) -> list[Subscription]:
        """The subscriptions that receive `fact`, in the order given; none is a correct answer."""
        raise NotImplementedError


def explain(subscription: Subscription, fact: Fact) -> Mismatch | None:
    """The first condition that fails, in the order of the rules; None when the fact is received."""
    raise NotImplementedError
