"""`python -m hub_app.dev.sink --listen HOST:PORT`: a receiver of webhooks, good and bad, that keeps a ledger.

    POST /good/…    answers 200 at once
    POST /slow/…    answers 200 after 300 to 800 ms
    POST /flaky/…   answers 503 to the first two requests of each event, then 200
    POST /dead/…    answers 500; to one event in sixteen, never
    GET  /_stats    counts and latencies of each endpoint, JSON
    GET  /_ids?endpoint=/good/a     the events that endpoint took
    PUT  /_secrets  {"endpoint": "/good/a", "secret": "whsec_…"}: verify signatures there from now on, 401 otherwise

An endpoint is a whole path. Probes of a new subscription are answered 200 everywhere, else nobody could subscribe a
dead sink. Latency is from `ce-time` to arrival, of each event's first successful request.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import binascii
import hashlib
import hmac
import random
import re
import signal
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Final

import uvloop
from aiohttp import web

from hub_app.domain.instants import parse_rfc3339

ENDPOINTS_MAX: Final = 256
EVENTS_MAX: Final = 100_000
"""Events remembered per endpoint; of more, the oldest are forgotten, and counted."""
LATENCIES_MAX: Final = 10_000
SLOW_MS: Final = (300, 800)
FLAKY_FAILURES: Final = 2
HANG_S: Final = 20.0
HANGS_MAX: Final = 64
SKEW_S_MAX: Final = 300
PROBE: Final = "subscription.verification"


class Endpoint:
    """The ledger of one path. `skip` > 0 makes it take its skip-th event without noting it: a planted loss."""

    def __init__(self, *, skip: int = 0) -> None:
        self.key: bytes | None = None
        self.requests = self.answered_badly = self.refused = self.unsigned = self.probes = 0
        self.repeats = self.forgotten = 0
        self.first_ms = self.last_ms = 0
        self._tries: dict[str, int] = {}
        self._taken: dict[str, None] = {}
        self._latencies_ms: deque[int] = deque(maxlen=LATENCIES_MAX)
        self._skip = skip

    def arrived(self, event: str, now_ms: int) -> int:
        """Notes a request; how many there have been for this event, this one included."""
        self.requests += 1
        self.first_ms, self.last_ms = self.first_ms or now_ms, now_ms
        tries = self._tries[event] = self._tries.get(event, 0) + 1
        if len(self._tries) > EVENTS_MAX:
            del self._tries[next(iter(self._tries))]
            self.forgotten += 1
        return tries

    def took(self, event: str, produced_ms: int | None, arrived_ms: int) -> None:
        """Notes that the event was answered 200."""
        if event in self._taken:
            self.repeats += 1
            return
        self._skip -= 1
        if self._skip == 0:
            return
        self._taken[event] = None
        if len(self._taken) > EVENTS_MAX:
            del self._taken[next(iter(self._taken))]
        if produced_ms is not None:
            self._latencies_ms.append(max(0, arrived_ms - produced_ms))

    def taken(self) -> list[str]:
        return list(self._taken)

    def stats(self) -> dict[str, Any]:
        latencies = sorted(self._latencies_ms)
        return {
            "delivered": len(self._taken),
            "events": len(self._tries),
            "requests": self.requests,
            "answered_badly": self.answered_badly,
            "repeats": self.repeats,
            "refused": self.refused,
            "unsigned": self.unsigned,
            "probes": self.probes,
            "forgotten": self.forgotten,
            "first_ms": self.first_ms,
            "last_ms": self.last_ms,
            "p50_ms": nearest_rank(latencies, 50),
            "p99_ms": nearest_rank(latencies, 99),
        }


def nearest_rank(ordered: Sequence[int], percent: int) -> int | None:
    """A value that was measured, never one between two; None of nothing."""
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)] if ordered else None


def signature_problem(key: bytes, headers: Mapping[str, str], body: bytes, now_s: float) -> str | None:
    """Why this is no genuine Standard Webhooks request, or None. Written apart from the hub's own signing, so that the
    two do not share a mistake."""
    try:
        id, stamp, given = headers["webhook-id"], headers["webhook-timestamp"], headers["webhook-signature"]
    except KeyError as missing:
        return f"no {missing.args[0]}"
    if not stamp.isdigit() or abs(now_s - int(stamp)) > SKEW_S_MAX:
        return "webhook-timestamp is not now"
    mac = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(mac).decode()
    if not any(hmac.compare_digest(wanted, one) for one in given.split(" ")):
        return "webhook-signature does not match"
    return None


class DemoSink:
    """The handlers. `dice` draws how slow the slow one is."""

    def __init__(self, *, skip: int = 0, dice: random.Random | None = None) -> None:
        self._endpoints: dict[str, Endpoint] = {}
        self._skip, self._dice, self._hanging = skip, dice or random.Random(), 0

    def application(self) -> web.Application:
        app = web.Application(client_max_size=2 << 20)
        app.add_routes(
            [
                web.get("/_stats", self.stats),
                web.get("/_ids", self.ids),
                web.put("/_secrets", self.secrets),
                web.post("/{manner:good|slow|flaky|dead}{rest:(/.*)?}", self.receive),
            ]
        )
        return app

    def endpoint(self, path: str) -> Endpoint:
        found = self._endpoints.get(path)
        if found is None:
            if len(self._endpoints) >= ENDPOINTS_MAX:
                raise web.HTTPNotFound(text=f"there are {ENDPOINTS_MAX} endpoints already\n")
            found = self._endpoints[path] = Endpoint(skip=self._skip)
            self._skip = 0  # one event in all
        return found

    # -- asked by people and the demo ----------------------------------------------------------------------------------
    async def stats(self, _request: web.Request) -> web.Response:
        return web.json_response({"endpoints": {path: one.stats() for path, one in self._endpoints.items()}})

    async def ids(self, request: web.Request) -> web.Response:
        found = self._endpoints.get(request.query.get("endpoint", ""))
        return web.json_response({"delivered": found.taken() if found else []})

    async def secrets(self, request: web.Request) -> web.Response:
        try:
            wish = await request.json()
            path, secret = wish["endpoint"], wish["secret"]
            key = base64.b64decode(re.fullmatch(r"whsec_(.+)", secret)[1], validate=True)  # type: ignore[index]
        except (ValueError, KeyError, TypeError, binascii.Error):
            raise web.HTTPBadRequest(text='expected {"endpoint": "/good/a", "secret": "whsec_…"}\n') from None
        self.endpoint(str(path)).key = key
        return web.Response(status=204)

    # -- asked by the hub ----------------------------------------------------------------------------------------------
    async def receive(self, request: web.Request) -> web.Response:
        arrived_ms, body = time.time_ns() // 1_000_000, await request.read()
        endpoint, headers = self.endpoint(request.path), request.headers
        if endpoint.key is None:
            endpoint.unsigned += 1
        elif problem := signature_problem(endpoint.key, headers, body, arrived_ms / 1000):
            endpoint.refused += 1
            return web.Response(status=401, text=problem + "\n")
        if headers.get("X-Lerian-Event-Type") == PROBE:
            endpoint.probes += 1
            return web.Response(text="welcome\n")
        event = headers.get("webhook-id")
        if not event:
            return web.Response(status=400, text="no webhook-id\n")
        status = await self._behave(request.match_info["manner"], event, endpoint.arrived(event, arrived_ms))
        if status != 200:
            endpoint.answered_badly += 1
            return web.Response(status=status, text="the demo's sink is told to fail\n")
        endpoint.took(event, _produced_ms(headers), arrived_ms)
        return web.Response(text="ok\n")

    async def _behave(self, manner: str, event: str, tries: int) -> int:
        """The status to answer, when it is time to."""
        if manner == "slow":
            await asyncio.sleep(self._dice.uniform(*SLOW_MS) / 1000)
        if manner == "flaky" and tries <= FLAKY_FAILURES:
            return 503
        if manner == "dead":
            if event.endswith("0") and self._hanging < HANGS_MAX:  # ids end in a random hexadecimal digit
                self._hanging += 1
                try:
                    await asyncio.sleep(HANG_S)
                finally:
                    self._hanging -= 1
            return 500
        return 200


def _produced_ms(headers: Mapping[str, str]) -> int | None:
    try:
        return parse_rfc3339(headers.get("ce-time", ""))
    except ValueError:
        return None


async def serve(host: str, port: int, skip: int) -> None:
    """Until SIGTERM or SIGINT."""
    done, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, done.set)
    runner = web.AppRunner(DemoSink(skip=skip).application(), access_log=None, shutdown_timeout=0.5)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        print(f"sink: listening on http://{host}:{port}", flush=True)
        await done.wait()
    finally:
        await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m hub_app.dev.sink", description="A receiver of webhooks.")
    parser.add_argument("--listen", default="127.0.0.1:9000", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)  # take this event and not note it
    chosen = parser.parse_args(arguments)
    host, _, port = chosen.listen.rpartition(":")
    if not host or not port.isdigit():
        parser.error("--listen takes HOST:PORT")
    uvloop.run(serve(host, int(port), chosen.skip))


if __name__ == "__main__":
    main()
