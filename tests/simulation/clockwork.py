"""An event loop without waiting: when nothing is ready, time jumps to the next timer. Everything runs in one thread, in
an order that depends on nothing but the program, so a seed tells the same story again."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

START_MS = 1_767_323_045_000
T = TypeVar("T")


class Stuck(Exception):
    """Nothing is ready and no timer runs: whatever is waited for will never come."""


class _NoWaiting(selectors.SelectSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck
        self.now_s += timeout
        return []


class Clockwork(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.face = _NoWaiting()
        super().__init__(self.face)

    def time(self) -> float:
        return self.face.now_s


class SimClock:
    """`hub_app.ports.Clock` of one process, which may be off from the others'."""

    def __init__(self, loop: asyncio.AbstractEventLoop, off_ms: int = 0) -> None:
        self._loop, self.off_ms = loop, off_ms

    def now_ms(self) -> int:
        return START_MS + self.off_ms + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(self._loop.time() * 1_000 + 1e-6)


def run(story: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs a story to its end on a loop of its own. What it leaves running is cancelled."""
    loop = Clockwork()
    try:
        return loop.run_until_complete(story())
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
