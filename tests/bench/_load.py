"""Facts that come as they do in life: each destination's by itself, at random moments (Poisson), at a rate."""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from hub_app.dev.facts import FactProducer, NewFact
from hub_app.domain.ids import event_id
from tests.bench import _hub


class Due(NamedTuple):
    """One fact of a schedule, in seconds from its start."""

    at_s: float
    tenant: str


def poisson(tenants: Iterable[str], per_s: float, seconds: float, draw: random.Random) -> list[Due]:
    """`per_s` facts of each tenant, by time."""
    found: list[Due] = []
    for tenant in tenants:
        at_s = draw.expovariate(per_s)
        while at_s < seconds:
            found.append(Due(at_s, tenant))
            at_s += draw.expovariate(per_s)
    return sorted(found)


class Load:
    """Sends facts of one source; remembers when each was about to be sent."""

    def __init__(self, producer: FactProducer, source: str) -> None:
        self._producer, self._source = producer, source

    async def send(self, schedule: Sequence[Due]) -> dict[str, Sent]:
        """The schedule from now on; by the webhook-id that the delivery will carry."""
        sent: dict[str, Sent] = {}
        pending: list[asyncio.Task[None]] = []
        began = time.monotonic()
        for due in schedule:
            await asyncio.sleep(max(0.0, began + due.at_s - time.monotonic()))
            fact = NewFact(
                id=f"{self._source}-{secrets.token_hex(6)}", tenant=due.tenant, source=self._source, body=_hub.BODY
            )
            sent[event_id(fact.tenant, fact.source, fact.source, fact.id)] = Sent(due.tenant, time.monotonic_ns())
            pending.append(asyncio.create_task(self._producer.send(fact)))
        await asyncio.gather(*pending)
        return sent


class Sent(NamedTuple):
    tenant: str
    at_ns: int
