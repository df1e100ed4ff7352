"""What every route goes through: body, key, scope, rate cap, owner, answer. Handlers see a request that passed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple
from urllib.parse import unquote

from aiohttp import ClientError, web

from hub_app.domain.errors import BrokerTrouble, Fenced, HubError, OutcomeUnknown
from hub_app.domain.ids import tenant_key
from hub_app.domain.limits import TENANT_BYTES_MAX
from hub_app.telemetry import Event
from hub_app.topics import partition_for
from hub_app.web.auth import Authenticator, Caller, require
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Doc
from hub_app.web.forwarding import DEADLINE, Carried, at_owner, is_carried, wrong_owner
from hub_app.web.problems import FieldError, Problem, failed, not_found, problem_response, unavailable
from hub_app.web.rates import RateCaps, with_rate_headers
from hub_app.web.strict_json import read_body

WAIT_MS_MAX: Final = 30_000
TENANT_PART: Final = "{tenant}"
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Ask(NamedTuple):
    """A request by a known caller, about one tenant, in the worker that serves the tenant's shard.

    `wait_ms`: the longest the answer may be delayed, 0 when the route does not wait."""

    request: web.Request
    caller: Caller
    tenant: str
    shard: int
    body: bytes
    wait_ms: int

    def part(self, name: str) -> str:
        """A segment of the path, decoded."""
        return self.request.match_info[name]


Handler = Callable[[Ask], Awaitable[web.StreamResponse | Problem]]
Open = Callable[[web.Request], Awaitable[web.StreamResponse | Problem]]


class Route(NamedTuple):
    """`path` is an aiohttp template; one with `{tenant}` is about that tenant, others about the caller's own. `rate`
    names the cap that counts. `meaning` is one line for the API's description, `doc` the rest of it.
    `anywhere`: it is about no tenant, and answered by whichever worker is asked."""

    method: str
    path: str
    scope: str
    handler: Handler
    rate: str
    meaning: str
    doc: Doc
    waits: bool = False
    anywhere: bool = False


class Serve:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self.authenticator = Authenticator(deps)
        self.rates = RateCaps(deps.settings, deps.clock)

    def guarded(self, route: Route) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def serve(request: web.Request) -> web.StreamResponse:
            return await self._answer(route.path, request, lambda: self._admit(route, request))

        return serve

    def open(self, path: str, handler: Open) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """A route without a key."""

        async def serve(request: web.Request) -> web.StreamResponse:
            return await self._answer(path, request, lambda: handler(request))

        return serve

    async def _answer(
        self, path: str, request: web.Request, make: Callable[[], Awaitable[web.StreamResponse | Problem]]
    ) -> web.StreamResponse:
        metrics, began_ms = self._deps.metrics, self._deps.clock.monotonic_ms()
        answer = await self.caught(make, path)
        response = problem_response(answer, request.path) if isinstance(answer, Problem) else answer
        metrics.http_requests.labels(path, str(response.status)).inc()
        metrics.http_duration.labels(path).observe_ms(self._deps.clock.monotonic_ms() - began_ms)
        return response

    async def caught(
        self, make: Callable[[], Awaitable[web.StreamResponse | Problem]], path: str
    ) -> web.StreamResponse | Problem:
        """What `make` gives, or the refusal that stands for what it raised."""
        try:
            return await make()
        except Fenced:
            return unavailable("the tenant's shard is moving to another worker; nothing was done")
        except OutcomeUnknown:
            return unavailable("the change may have been made: look before repeating it")
        except BrokerTrouble:
            return unavailable("Kafka does not take the change now")
        except HubError as error:
            self._deps.log.error(Event.REQUEST_FAILED, error=error, route=path)
            return unavailable("the tenant's shard cannot be read or written now")
        except (ConnectionError, ClientError) as error:
            return Problem(400, "incomplete", "The request ended early", type(error).__name__)
        except Exception as error:
            self._deps.log.error(Event.REQUEST_FAILED, error=error, route=path)
            return failed()

    async def _admit(self, route: Route, request: web.Request) -> web.StreamResponse | Problem:
        deps = self._deps
        body = await read_body(request) if request.body_exists else b""
        if isinstance(body, Problem):
            return body
        caller = await self.authenticator.caller(request.headers)
        if isinstance(caller, Problem):
            return caller
        refused = require(caller, route.scope)
        if refused is not None:
            return refused
        if route.anywhere:
            return await self._local(route, Ask(request, caller, "", 0, body, 0))
        tenant = _tenant(route, request, caller)
        if tenant is None:
            return not_found("tenant")
        shard = partition_for(tenant_key(tenant), deps.settings.shards)
        wait_ms = _wait_ms(request) if route.waits else 0
        if isinstance(wait_ms, Problem):
            return wait_ms
        carried = Carried(request.method, request.raw_path, request.headers, body, wait_ms)
        ask = Ask(request, caller, tenant, shard, body, wait_ms)
        return await at_owner(deps, shard, carried, lambda: self._local(route, ask))

    async def _local(self, route: Route, ask: Ask) -> web.StreamResponse | Problem:
        # Caps are counted here, in the one worker that serves a tenant, so that they hold whichever worker is asked.
        granted = self.rates.take(route.rate, ask.caller.key_id)
        if isinstance(granted, Problem):
            return granted
        try:
            return with_rate_headers(await route.handler(ask), granted)
        except Fenced:
            # The sender of a carried request knows to look again; everybody else is told to come again.
            if is_carried(ask.request.headers):
                return wrong_owner()
            raise


def _tenant(route: Route, request: web.Request, caller: Caller) -> str | None:
    """The tenant a request is about; None for a name that no tenant can have. It is decoded here and strictly, for
    aiohttp leaves what it cannot decode as it is, and two spellings of one path would then name two tenants."""
    if TENANT_PART not in route.path:
        return caller.tenant
    raw = request.rel_url.raw_path.split("/")[route.path.split("/").index(TENANT_PART)]
    if _BAD_PERCENT.search(raw):
        return None
    try:
        tenant = unquote(raw, errors="strict")
        size = len(tenant.encode())
    except UnicodeError:
        return None
    plain = all(ord(c) >= 0x20 and ord(c) != 0x7F for c in tenant)
    return tenant if plain and 1 <= size <= TENANT_BYTES_MAX else None


def _wait_ms(request: web.Request) -> int | Problem:
    """`wait` in whole seconds; for a carried request never past the sender's deadline."""
    text = request.query.get("wait", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and int(text) * 1000 <= WAIT_MS_MAX):
        detail = f"expected whole seconds from 0 to {WAIT_MS_MAX // 1000}"
        return Problem(
            400, "query", "A query parameter is not valid", f"wait: {detail}", (FieldError("?wait", detail),)
        )
    deadline = request.headers.get(DEADLINE, "")
    if is_carried(request.headers) and deadline.isascii() and deadline.isdigit() and len(deadline) <= 9:
        return min(int(text) * 1000, int(deadline))
    return int(text) * 1000
