"""Facts that keep coming while something happens to the hub."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from hub_app.dev.facts import FactProducer, NewFact
from tests.support.deployment import Deployment, facts
from tests.support.sink import RecordingSink, webhook_id

TICK_S = 0.05


class Stream:
    """`with Stream(hub, source, tenants, per_s=200) as stream: …`; afterwards `sent` holds every fact that the broker
    acknowledged. An outage of the broker only holds it up."""

    def __init__(self, hub: Deployment, source: str, tenants: list[str], *, per_s: int, start: int = 0) -> None:
        """`start`: the number of the first, where a source has several streams."""
        self._start = start
        self._hub, self._source, self._tenants = hub, source, tenants
        self._chunk = max(1, int(per_s * TICK_S))
        self._over = False
        self.sent: list[NewFact] = []

    def __enter__(self) -> Self:
        self._running = self._hub.start(self._send())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over = True
        self._running.result(90)

    async def _send(self) -> None:
        async with FactProducer(self._hub.bootstrap) as producer:
            while not self._over:
                chunk = facts(self._source, self._chunk, tenants=self._tenants, start=self._start + len(self.sent))
                await producer.send_many(chunk)
                self.sent += chunk
                await asyncio.sleep(TICK_S)

    def ids(self) -> list[str]:
        return [webhook_id(fact) for fact in self.sent]


def repeats(sink: RecordingSink, path: str, ids: list[str]) -> int:
    """How many requests there were beyond one for each id."""
    counts = sink.counts(path, ids)
    return sum(counts.values()) - len(counts)
