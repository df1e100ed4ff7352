"""How a run is shown: a table that lives on a terminal, a line now and then anywhere else, a summary in the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hub_app.dev.demo.plan import TENANTS, WISHES
from hub_app.dev.demo.reckoning import Check
from hub_app.dev.demo.watch import Sight

LINE_EVERY_S = 2.0
PLAIN_WIDTH = 110


def console() -> Console:
    """The one everything is printed on. Without a terminal it is wide enough for the tables."""
    made = Console()
    return made if made.is_terminal else Console(width=PLAIN_WIDTH)


class View:
    """A context manager; `show` as often as there is something new."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, refresh_per_second=4, transient=False) if console.is_terminal else None
        self._console, self._said_at = console, float("-inf")

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, sight: Sight) -> None:
        if self._live is not None:
            self._live.update(Group(_journey(sight), _endpoints(sight)))
        elif sight.finished or time.monotonic() - self._said_at >= LINE_EVERY_S:
            self._said_at = time.monotonic()
            self._console.print(line(sight), markup=False, highlight=False, soft_wrap=True)

    def last(self, sight: Sight) -> None:
        """Without a terminal, the table of endpoints once."""
        if self._live is None:
            self._console.print(_endpoints(sight))


def line(sight: Sight) -> str:
    """A look in one line."""
    retrying = " ".join(f"{tier}:{count}" for tier, count in tiers(sight))
    return (
        f"{sight.seconds:5.1f}s produced {sight.written}/{sight.records} admitted {sight.counted('hub_admitted_total')}"
        f" duplicates {sight.counted('hub_duplicates_total')} quarantined {quarantined(sight)}"
        f" delivered {total(sight, 'delivered')} retried {retrying or 0} dead {sum(sight.dead.values())}"
        f" open {sight.open()}"
    )


def quarantined(sight: Sight) -> int:
    return sight.counted("hub_facts_total", 'verdict="quarantine"') + sight.counted("hub_collisions_total")


def tiers(sight: Sight) -> list[tuple[str, int]]:
    """How many deliveries went to each retry tier, the shortest wait first."""
    found = sight.by_label("hub_retries_total", "tier")
    return sorted(found.items(), key=lambda one: _milliseconds(one[0]))


def _milliseconds(tier: str) -> int:
    for unit, ms in (("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)):
        number = tier.removesuffix(unit)
        if number.isdigit():
            return int(number) * ms
    return 0


def total(sight: Sight, name: str) -> int:
    return sum(one.get(name) or 0 for one in sight.stats.values())


def _journey(sight: Sight) -> Table:
    table = Table(title=f"Streaming Hub, {sight.seconds:.0f} s", expand=True)
    for name in ("produced", "admitted", "duplicates", "quarantined", "dropped", "delivered", "dead", "open"):
        table.add_column(name, justify="right")
    table.add_column("sent to retry tiers", ratio=1)
    table.add_row(
        f"{sight.written}/{sight.records}",
        str(sight.counted("hub_admitted_total")),
        str(sight.counted("hub_duplicates_total")),
        str(quarantined(sight)),
        str(sight.counted("hub_facts_total", 'verdict="drop"')),
        str(total(sight, "delivered")),
        str(sum(sight.dead.values())),
        str(sight.open()),
        "  ".join(f"{tier} {count}" for tier, count in tiers(sight)),
    )
    return table


def _endpoints(sight: Sight) -> Table:
    table = Table(expand=True)
    table.add_column("endpoint", ratio=1)
    for name in ("wanted", "delivered", "dead", "open", "requests", "failed", "p50 ms", "p99 ms"):
        table.add_column(name, justify="right")
    for wish in WISHES:
        for tenant in TENANTS:
            path = wish.path(tenant)
            stats, wanted, dead = sight.stats.get(path, {}), sight.expected.get(path, 0), sight.dead.get(path, 0)
            delivered, requests = sight.delivered(path), stats.get("requests", 0)
            failed = requests - delivered - stats.get("repeats", 0)
            cells = (wanted, delivered, dead, max(0, wanted - delivered - dead), requests, failed)
            latency = (_or_dash(stats.get("p50_ms")), _or_dash(stats.get("p99_ms")))
            table.add_row(path, *map(str, cells), *latency)
        table.add_section()
    return table


def _or_dash(value: Any) -> str:
    return "-" if value is None else str(value)


def summary(console: Console, checks: Sequence[Check]) -> None:
    """The checks, one line each, and what they say together."""
    for check in checks:
        mark = Text("ok  ", style="green") if check.ok else Text("FAIL", style="bold red")
        console.print(Text.assemble(mark, f" {check.name}: {check.detail}"), soft_wrap=True)
    bad = sum(not check.ok for check in checks)
    verdict = f"{bad} of {len(checks)} checks failed" if bad else f"all {len(checks)} checks hold: none lost"
    console.print(Text(verdict, style="bold red" if bad else "bold green"))
