"""Who asked and has gone: connections of long polls, looked at a few times a second.

aiohttp tells a handler of a lost connection only when it writes; a poll that went on would lock events for nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from aiohttp import web

LOOK_S: Final = 0.04


def gone(request: web.Request) -> bool:
    """Nobody can read an answer any more."""
    transport = request.transport
    return transport is None or transport.is_closing()


class Presence:
    """One look for all polls of a process, and none while there are none."""

    def __init__(self) -> None:
        self._watched: dict[int, tuple[web.Request, Callable[[], object]]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def watched(self, request: web.Request, left: Callable[[], object]) -> Iterator[None]:
        """`left()` soon after the client has gone, once, as long as the context lasts."""
        self._watched[id(request)] = (request, left)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._look(), name="presence")
        try:
            yield
        finally:
            self._watched.pop(id(request), None)

    async def _look(self) -> None:
        while self._watched:
            await asyncio.sleep(LOOK_S)
            for number, (_, left) in [one for one in self._watched.items() if gone(one[1][0])]:
                del self._watched[number]
                left()
