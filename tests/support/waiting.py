"""Waiting for what a process, a broker or a sink will show: conditions with deadlines, never a sleep for luck."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
LOOK_AGAIN_S = 0.05


def until(condition: Callable[[], T], what: Callable[[], object] | str, *, seconds: float = 30) -> T:
    """What `condition` gives as soon as that is true. AssertionError with `what` when it is not within `seconds`."""
    ends = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > ends:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(LOOK_AGAIN_S)


def holds(condition: Callable[[], object], what: Callable[[], object] | str, *, seconds: float) -> None:
    """That `condition` is true all the time for `seconds`: for what must not happen."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        assert condition(), what() if callable(what) else what
        time.sleep(LOOK_AGAIN_S)
