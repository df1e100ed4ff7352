"""Any worker answers any request: what belongs to a shard is carried to its owner, with body, headers and a deadline.

One hop only. A worker that gets a carried request for a shard it does not serve answers 421, and the sender looks
again; while a shard moves the sender waits up to two seconds, then answers 503. The owner authenticates again: the hop
guard is no credential, and setting it from outside gains nothing but a 421."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple

from aiohttp import web

from hub_app.web.deps import NoReply, Reply, WebDeps
from hub_app.web.problems import Problem, unavailable

HOP: Final = "X-Hub-Forwarded"
DEADLINE: Final = "X-Hub-Deadline-Ms"
MOVE_MS_MAX: Final = 2_000
LOOK_AGAIN_S: Final = 0.05
ANSWER_MS_MAX: Final = 20_000
REPEATABLE: Final = frozenset(("GET", "HEAD"))
_NOT_CARRIED: Final = frozenset(
    (
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "trailer"),
        *("transfer-encoding", "upgrade", "host", "content-length", "expect", "accept-encoding"),
        *(HOP.lower(), DEADLINE.lower()),
    )
)

Local = Callable[[], Awaitable[web.StreamResponse | Problem]]


class Carried(NamedTuple):
    """A request as it will be sent on. `wait_ms`: how long the route itself may take to answer (a long poll).
    `if_lost` makes the answer when the owner may have acted and nobody knows; without it that is a 503."""

    method: str
    path: str  # raw path and query
    headers: Mapping[str, str]
    body: bytes
    wait_ms: int = 0
    if_lost: Callable[[], web.Response] | None = None


def is_carried(headers: Mapping[str, str]) -> bool:
    return HOP in headers


def carried_headers(headers: Mapping[str, str], timeout_ms: int) -> dict[str, str]:
    """End-to-end headers, and the hop guard. What `Connection` names is of the hop too (RFC 9110, 7.6.1)."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    kept = {name: value for name, value in headers.items() if name.lower() not in _NOT_CARRIED | named}
    return {**kept, HOP: "1", DEADLINE: str(timeout_ms)}


async def at_owner(deps: WebDeps, shard: int, request: Carried, local: Local) -> web.StreamResponse | Problem:
    """Runs `local` when the shard is here, else carries the request to where it is."""
    if deps.owners.is_here(shard):
        return await local()
    if is_carried(request.headers):
        return wrong_owner()
    give_up_at_ms = deps.clock.monotonic_ms() + MOVE_MS_MAX
    while True:
        url = await deps.owners.url_of(shard)
        if deps.owners.is_here(shard):
            return await local()
        if url is not None and url != deps.settings.http_advertised_url:
            answer = await _carry(deps, url, request)
            if answer is not None:
                return answer
        if deps.clock.monotonic_ms() >= give_up_at_ms or deps.stopping():
            deps.metrics.http_forwards.labels("no_owner").inc()
            return unavailable("no worker serves this tenant's shard right now")
        await deps.sleep(LOOK_AGAIN_S)


def wrong_owner() -> Problem:
    return Problem(421, "wrong-owner", "Not the owner", "this worker does not serve the tenant's shard")


async def _carry(deps: WebDeps, url: str, request: Carried) -> web.Response | Problem | None:
    """None: look again."""
    timeout_ms = ANSWER_MS_MAX + request.wait_ms
    headers = carried_headers(request.headers, timeout_ms)
    reply = await deps.peers.send(request.method, url + request.path, headers, request.body, timeout_ms)
    if isinstance(reply, Reply):
        if reply.status == 421:
            deps.metrics.http_forwards.labels("wrong_owner").inc()
            return None
        deps.metrics.http_forwards.labels("answered").inc()
        return _answer(reply)
    deps.metrics.http_forwards.labels("failed").inc()
    return _lost(reply, request)


def _lost(reply: NoReply, request: Carried) -> web.Response | Problem | None:
    if not reply.sent or request.method in REPEATABLE:
        return None
    if request.if_lost is not None:
        return request.if_lost()
    return unavailable("the owner did not answer; the request may have been carried out, so look before repeating it")


def _answer(reply: Reply) -> web.Response:
    headers = {name: value for name, value in reply.headers.items() if name.lower() not in _NOT_CARRIED}
    return web.Response(status=reply.status, body=reply.body, headers=headers)
