"""The deployment of `tests.fakes.workers`, served by a thread of its own, for clients that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, TypeVar

from tests.fakes.workers import Deployment, Worker

Made = TypeVar("Made")


class Served(NamedTuple):
    """`run` makes something in the deployment's own loop, and waits for it."""

    hub: Deployment
    worker: Worker
    run: Callable[[Awaitable[object]], object]


@contextmanager
def served(prepare: Callable[[Deployment, Worker], Awaitable[Made]], **given: str) -> Iterator[tuple[Served, Made]]:
    """One worker; `prepare` fills it. Both end with the context."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="deployment", daemon=True)
    thread.start()

    def run(step: Awaitable[object]) -> object:
        async def awaited() -> object:
            return await step

        return asyncio.run_coroutine_threadsafe(awaited(), loop).result(30)

    async def begin() -> tuple[Served, Made]:
        hub = Deployment()
        worker = await hub.worker(**given)
        return Served(hub, worker, run), await prepare(hub, worker)

    try:
        begun, made = asyncio.run_coroutine_threadsafe(begin(), loop).result(30)
        try:
            yield begun, made
        finally:
            run(begun.hub.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
