"""Every route of the API, as one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Final

from aiohttp import web

from hub_app.web.admin import Admin
from hub_app.web.auth import ADMIN, MANAGE, RECEIVE
from hub_app.web.changes import Changes
from hub_app.web.deps import WebDeps
from hub_app.web.health import Health
from hub_app.web.problems import Problem, not_found
from hub_app.web.pull import Pull
from hub_app.web.rates import PULL, READ, STANDARD, WRITE
from hub_app.web.serve import Open, Route, Serve
from hub_app.web.subscriptions import Subscriptions

ROOTS: Final = ("/v1", "/admin")  # unknown paths below these are answered by the API, not by aiohttp's plain text


def table(deps: WebDeps) -> tuple[Route, ...]:
    subscriptions, changes, pull, admin = Subscriptions(deps), Changes(deps), Pull(deps), Admin(deps)
    return (
        Route("POST", "/v1/subscriptions", MANAGE, subscriptions.create, WRITE, "Create a subscription"),
        Route("GET", "/v1/subscriptions", MANAGE, subscriptions.list, READ, "List subscriptions"),
        Route("GET", "/v1/subscriptions/{id}", MANAGE, subscriptions.read, READ, "Read a subscription"),
        Route("PATCH", "/v1/subscriptions/{id}", MANAGE, changes.patch, WRITE, "Change a subscription"),
        Route("DELETE", "/v1/subscriptions/{id}", MANAGE, subscriptions.delete, WRITE, "Delete a subscription"),
        Route(
            "POST", "/v1/subscriptions/{id}/verify", MANAGE, subscriptions.verify, STANDARD, "Probe the sink, enable"
        ),
        Route("POST", "/v1/subscriptions/{id}/secret:rotate", MANAGE, changes.rotate, WRITE, "Give it a new secret"),
        Route("GET", "/v1/events", RECEIVE, pull.events, PULL, "Pull events in order", waits=True),
        Route("GET", "/v1/events/{seq}", RECEIVE, pull.event, PULL, "Read one event"),
        Route("POST", "/admin/tenants/{tenant}/keys", ADMIN, admin.create, STANDARD, "Make an API key"),
        Route("GET", "/admin/tenants/{tenant}/keys", ADMIN, admin.list, STANDARD, "List a tenant's API keys"),
        Route("DELETE", "/admin/tenants/{tenant}/keys/{id}", ADMIN, admin.delete, STANDARD, "Delete an API key"),
    )


def build_web(deps: WebDeps) -> list[web.RouteDef]:
    """Routes for an aiohttp application, Faust's included: `application.add_routes(build_web(deps))`."""
    serve, health = Serve(deps), Health(deps)
    routes: list[web.RouteDef] = []
    for path, group in groupby(table(deps), key=lambda route: route.path):
        methods = list(group)
        routes += [_route(route.method, path, serve.guarded(route)) for route in methods]
        routes.append(web.route("*", path, serve.open(path, _other_method(tuple(r.method for r in methods)))))
    for path, handler in (("/healthz", health.live), ("/readyz", health.ready), ("/metrics", health.metrics)):
        routes.append(_route("GET", path, serve.open(path, handler)))
    routes += [web.route("*", root + "{rest:(/.*)?}", serve.open(root, _unknown)) for root in ROOTS]
    return routes


def _route(method: str, path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.RouteDef:
    return web.get(path, handler) if method == "GET" else web.route(method, path, handler)


def _other_method(methods: tuple[str, ...]) -> Open:
    async def refuse(_request: web.Request) -> Problem:
        allowed = ", ".join(methods)
        return Problem(405, "method", "Not this method", f"allowed here: {allowed}", headers={"Allow": allowed})

    return refuse


async def _unknown(_request: web.Request) -> Problem:
    return not_found("route")
