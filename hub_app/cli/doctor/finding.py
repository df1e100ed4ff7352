"""What the doctor found."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """One thing looked at. `repair` is what to do when it is not well; empty when it is."""

    what: str
    well: bool
    detail: str
    repair: str = ""


def broken(what: str, detail: str, repair: str) -> Finding:
    return Finding(what, False, detail, repair)


def some(names: list[str], shown: int = 3) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - shown
    return ", ".join(names[:shown]) + (f" and {more} more" if more > 0 else "")
