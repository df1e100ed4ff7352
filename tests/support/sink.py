"""A sink that remembers every request whole, and behaves as each test says."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

from aiohttp import web

from hub_app.dev.facts import NewFact
from hub_app.domain.ids import event_id
from tests.support.background import Background
from tests.support.waiting import until

PROBE = "subscription.verification"


class Request(NamedTuple):
    """One request. `nth`: how many with this webhook-id have come to this path, this one included."""

    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    at_s: float
    nth: int

    def header(self, name: str) -> str:
        """Its only value; KeyError when it is not there, AssertionError when it is there twice."""
        found = [value for known, value in self.headers if known.lower() == name.lower()]
        if not found:
            raise KeyError(name)
        assert len(found) == 1, (name, found)
        return found[0]

    @property
    def id(self) -> str:
        return self.header("webhook-id")


class Reply(NamedTuple):
    """What the sink answers; `delay_ms` later."""

    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    delay_ms: int = 0
    body: bytes = b"ok"


Behaviour = Callable[[Request], Reply | Awaitable[Reply]]


def webhook_id(fact: NewFact) -> str:
    """What the hub must send as `webhook-id` of this fact."""
    return event_id(fact.tenant, fact.source, fact.source, fact.id)


class RecordingSink:
    """An HTTP server on a free port of 127.0.0.1. Probes are answered 200 and kept apart."""

    def __init__(self, background: Background) -> None:
        self._background = background
        self._lock = threading.Lock()
        self._seen: dict[str, list[Request]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._behaviours: dict[str, Behaviour] = {}
        self.probes: list[Request] = []
        self.port = background.run(self._serve())

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def behave(self, path: str, behaviour: Behaviour) -> str:
        """From now on requests to `path` are answered so; its URL."""
        self._behaviours[path] = behaviour
        return self.url(path)

    # -- what was seen -------------------------------------------------------------------------------------------------
    def requests(self, path: str, id: str | None = None) -> list[Request]:
        with self._lock:
            return [r for r in self._seen.get(path, ()) if id is None or r.id == id]

    def counts(self, path: str, among: Iterable[str] | None = None) -> dict[str, int]:
        """How often each webhook-id came to `path`; of `among` those that did."""
        wanted = None if among is None else frozenset(among)
        with self._lock:
            return {
                id: times
                for (where, id), times in self._counts.items()
                if where == path and (not wanted or id in wanted)
            }

    def wait_for(self, path: str, ids: Iterable[str], *, seconds: float = 30) -> None:
        """Until each of these has come at least once."""
        wanted = set(ids)
        until(
            lambda: wanted <= self.counts(path, wanted).keys(),
            lambda: f"{path}: {len(wanted - self.counts(path, wanted).keys())} of {len(wanted)} have not come",
            seconds=seconds,
        )

    # -- serving -------------------------------------------------------------------------------------------------------
    async def _serve(self) -> int:
        app = web.Application(client_max_size=8 << 20)
        app.add_routes([web.post("/{rest:.*}", self._receive)])
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        port: int = self._runner.addresses[0][1]
        return port

    async def _receive(self, request: web.Request) -> web.Response:
        body, path = await request.read(), request.path
        headers = tuple((name.decode(), value.decode("latin-1")) for name, value in request.raw_headers)
        seen = Request(path, headers, body, time.monotonic(), 0)
        if request.headers.get("X-Lerian-Event-Type") == PROBE:
            self.probes.append(seen)
            return web.Response(text="welcome")
        with self._lock:
            nth = self._counts[path, seen.id] = self._counts.get((path, seen.id), 0) + 1
            seen = seen._replace(nth=nth)
            self._seen.setdefault(path, []).append(seen)
        behaviour = self._behaviours.get(path)
        reply = Reply() if behaviour is None else behaviour(seen)
        if inspect.isawaitable(reply):
            reply = await reply
        assert isinstance(reply, Reply)
        if reply.delay_ms:
            await asyncio.sleep(reply.delay_ms / 1000)
        return web.Response(status=reply.status, headers=list(reply.headers), body=reply.body)

    def close(self) -> None:
        self._background.run(self._runner.cleanup())
