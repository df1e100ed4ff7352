"""What stands still and since when: the registry that readiness reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from hub_app.ports import Clock


class Reason(NamedTuple):
    """Why something stands still. `since_ms` is wall-clock; it keeps its first value while the text changes. One that
    does not block is for people to see: the worker is ready all the same (there may be nothing to read yet)."""

    since_ms: int
    text: str
    blocks: bool = True


class Standing:
    """Names of things that stand still (`inbox/hub.facts/3`, `ingest`, `producer`) with their reasons.

    One per process; every service of this package reports into the one it is given. Empty means ready."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reasons: dict[str, Reason] = {}

    def report(self, name: str, text: str, *, blocks: bool = True) -> None:
        """Adds or updates `name`."""
        known = self._reasons.get(name)
        self._reasons[name] = Reason(known.since_ms if known else self._clock.now_ms(), text, blocks)

    def clear(self, name: str) -> None:
        """`name` moves again; unknown names are fine."""
        self._reasons.pop(name, None)

    def clear_under(self, prefix: str) -> None:
        """Clears `prefix` and everything below it (`prefix/…`)."""
        for name in [n for n in self._reasons if n == prefix or n.startswith(prefix + "/")]:
            del self._reasons[name]

    def reasons(self) -> Mapping[str, Reason]:
        """A snapshot, by name."""
        return dict(sorted(self._reasons.items()))
