"""What can be seen of a run while it goes on: the workers' metrics, the sink's ledger, and the logs."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from hub_app.dev.demo.logs import Reader

Counters = Mapping[tuple[str, str], float]
"""(metric, its labels as they stand in the exposition) -> value."""

LOOK_EVERY_S = 0.5
QUIET_S = 12.0
"""When everything is written and nothing moves for so long, nothing will: the longest back-off of the demo is 3 s, and
its longest attempt 5."""
_SERIES = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look. `expected` counts the deliveries that must come about by endpoint; `stats` is the sink's `/_stats`."""

    seconds: float
    records: int
    written: int
    counters: Counters
    stats: Mapping[str, Mapping[str, Any]]
    expected: Mapping[str, int]
    dead: Mapping[str, int] = field(default_factory=dict)

    def counted(self, name: str, label: str = "") -> int:
        """The sum of a metric over workers and labels; `label` is a text that must stand among them."""
        return int(sum(value for (one, labels), value in self.counters.items() if one == name and label in labels))

    def by_label(self, name: str, label: str) -> dict[str, int]:
        """The metric by the value of one of its labels."""
        found: dict[str, int] = defaultdict(int)
        for (one, labels), value in self.counters.items():
            if one == name and (match := re.search(rf'{label}="([^"]*)"', labels)):
                found[match[1]] += int(value)
        return dict(found)

    def delivered(self, path: str) -> int:
        return int(self.stats.get(path, {}).get("delivered", 0))

    def open(self) -> int:
        """Deliveries that have neither arrived nor been given up."""
        return sum(max(0, wanted - self.delivered(p) - self.dead.get(p, 0)) for p, wanted in self.expected.items())

    @property
    def movement(self) -> tuple[int, int, int]:
        """Changes as long as anything goes on."""
        return self.written, self.open(), sum(one.get("requests", 0) for one in self.stats.values())

    @property
    def finished(self) -> bool:
        return self.written >= self.records and self.open() == 0


def parse_metrics(text: str) -> dict[tuple[str, str], float]:
    """Prometheus text: the series, without comments."""
    matches = (_SERIES.fullmatch(line) for line in text.splitlines())
    return {(m["name"], m["labels"] or ""): float(m["value"]) for m in matches if m}


def added_up(several: Iterable[Counters]) -> dict[tuple[str, str], float]:
    """The same series of several workers as one."""
    total: dict[tuple[str, str], float] = defaultdict(float)
    for counters in several:
        for series, value in counters.items():
            total[series] += value
    return dict(total)


class Watcher:
    """Looks at a run. `check` is called at every look, and raises when there is no use in going on."""

    def __init__(
        self, *, workers: Sequence[str], sink: str, reader: Reader, records: int, expected: Mapping[str, int]
    ) -> None:
        self._workers, self._sink, self._reader = workers, sink, reader
        self._records, self._expected, self._began = records, expected, time.monotonic()
        self._stats: Mapping[str, Mapping[str, Any]] = {}

    async def until_finished(self, show: Callable[[Sight], None], check: Callable[[], None], seconds: float) -> Sight:
        """The last look: the one that found everything finished, or nothing moving, or the one after `seconds`."""
        moved_at, before = 0.0, (-1, -1, -1)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            while True:
                check()
                sight = await self._look(session)
                show(sight)
                if sight.movement != before:
                    moved_at, before = sight.seconds, sight.movement
                quiet = sight.written >= sight.records and sight.seconds - moved_at > QUIET_S
                if sight.finished or quiet or sight.seconds > seconds:
                    return sight
                await asyncio.sleep(LOOK_EVERY_S)

    async def _look(self, session: aiohttp.ClientSession) -> Sight:
        while await self._reader.read_on():
            pass
        ledger = self._reader.ledger
        texts = await asyncio.gather(*(self._get(session, url + "/metrics") for url in self._workers))
        self._stats = json.loads(await self._get(session, self._sink + "/_stats") or "{}").get("endpoints", self._stats)
        return Sight(
            seconds=time.monotonic() - self._began,
            records=self._records,
            written=len(ledger.produced),
            counters=added_up(map(parse_metrics, texts)),
            stats=self._stats,
            expected=self._expected,
            dead={path: len(events) for path, events in ledger.dead.items()},
        )

    async def _get(self, session: aiohttp.ClientSession, url: str) -> str:
        """Who is too busy to answer is asked again the next time; whether it lives is for `check` to say."""
        try:
            async with session.get(url) as answer:
                return await answer.text()
        except (aiohttp.ClientError, TimeoutError):
            return ""
