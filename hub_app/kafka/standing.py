"""What stands still and since when: the registry that readiness reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Reason(NamedTuple):
    """Why something stands still. `since_ms` is wall-clock; it keeps its first value while the reason's text changes."""

    since_ms: int
    text: str


class Standing:
    """Names of things that stand still (`inbox/hub.facts/3`, `ingest`, `producer`) with their reasons.

    One per process; every service of this package reports into the one it is given. Empty means ready."""

    def report(self, name: str, text: str) -> None:
        """Adds or updates `name`."""
        raise NotImplementedError

    def clear(self, name: str) -> None:
        """`name` moves again; unknown names are fine."""
        raise NotImplementedError

    def reasons(self) -> Mapping[str, Reason]:
        """A snapshot, by name."""
        raise NotImplementedError
