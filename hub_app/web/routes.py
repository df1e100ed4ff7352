"""Every route of the API, as one table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import groupby
from typing import Final

from aiohttp import web

from hub_app.web.admin import Admin
from hub_app.web.auth import ADMIN, MANAGE, RECEIVE
from hub_app.web.changes import Changes
from hub_app.web.dead_letters import LISTING, DeadLetterRoutes
from hub_app.web.dead_letters import ROOT as DEAD_LETTERS
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Doc
from hub_app.web.event_grid import ROUTE as EVENT_GRID
from hub_app.web.event_grid import EventGrid
from hub_app.web.health import Health
from hub_app.web.observed import OBSERVED, QUARANTINED, Observation
from hub_app.web.openapi import Documents
from hub_app.web.operations import OPERATIONS, BulkOperations
from hub_app.web.operator_events import EVERYBODYS, TOLD, OperatorRoutes
from hub_app.web.paging import PAGING
from hub_app.web.preview import WHY, Preview
from hub_app.web.probe import Prober
from hub_app.web.problems import Problem, not_found
from hub_app.web.pull import PULLING, Pull
from hub_app.web.rates import PULL, READ, STANDARD, WRITE
from hub_app.web.serve import Open, Route, Serve
from hub_app.web.shown import ROUTE
from hub_app.web.sinks import ATTEMPTS, INTERNAL, Sinks
from hub_app.web.subscriptions import Subscriptions
from hub_app.web.trial import Trial

ATTEMPTED: Final = Doc({200: "AttemptPage"}, query=ATTEMPTS)
WHYS: Final = Doc({200: "Why"}, query=WHY)
ROOTS: Final = ("/v1", "/admin")  # unknown paths below these are answered by the API, not by aiohttp's plain text


def table(deps: WebDeps) -> tuple[Route, ...]:
    """Routes of one path stand together."""
    bulk = BulkOperations(deps)
    return (
        *_subscriptions(deps),
        *_trials(deps, bulk),
        *_events(deps),
        *_dead_letters(deps, bulk),
        *_operations(bulk),
        *_operator_events(deps),
        *_admin(deps),
        *_observed(deps),
    )


def _subscriptions(deps: WebDeps) -> tuple[Route, ...]:
    prober, changes, one = Prober(deps), Changes(deps), ROUTE + "/{id}"
    handlers, trial = Subscriptions(deps, prober), Trial(deps, prober)
    made = Doc({201: "SubscriptionMade"}, body="SubscriptionWish", idempotent=True)
    changed = Doc({200: "Subscription"}, body="SubscriptionChange", refuses=(409,), idempotent=True, if_match=True)
    verified = Doc({200: "SubscriptionVerified"}, refuses=(409, 422), idempotent=True)
    rotated = Doc({200: "Rotated"}, body="Rotation", body_needed=False, idempotent=True, if_match=True)
    deleted = Doc({204: None}, idempotent=True, if_match=True)
    paged = Doc({200: "SubscriptionPage"}, query=PAGING)
    tried = Doc({200: "Tried"}, body="Trial", body_needed=False, refuses=(409,))
    return (
        Route("POST", ROUTE, MANAGE, handlers.create, WRITE, "Create a subscription", made),
        Route("GET", ROUTE, MANAGE, handlers.list, READ, "List subscriptions", paged),
        Route("GET", one, MANAGE, handlers.read, READ, "Read a subscription", Doc({200: "Subscription"})),
        Route("PATCH", one, MANAGE, changes.patch, WRITE, "Change a subscription", changed),
        Route("DELETE", one, MANAGE, handlers.delete, WRITE, "Delete a subscription", deleted),
        Route("POST", one + "/verify", MANAGE, handlers.verify, STANDARD, "Probe the sink, enable", verified),
        Route("POST", one + "/secret:rotate", MANAGE, changes.rotate, WRITE, "Give it a new secret", rotated),
        Route("POST", one + "/test", MANAGE, trial.send, STANDARD, "Send a test event once", tried),
    )


def _trials(deps: WebDeps, bulk: BulkOperations) -> tuple[Route, ...]:
    """What would be received, and what was."""
    sinks = Sinks(deps)
    preview = Preview(deps, sinks)
    previewed = Doc({200: "Previewed"}, body="Preview")
    replayed = Doc({202: "Operation"}, body="Replay", idempotent=True)
    return (
        Route("POST", ROUTE + ":preview", MANAGE, preview.preview, READ, "What a draft would receive", previewed),
        Route("POST", ROUTE + "/{id}/replay", MANAGE, bulk.replay, WRITE, "Deliver past events anew", replayed),
        Route("GET", ROUTE + "/{id}/attempts", MANAGE, sinks.attempts, READ, "Attempts, newest first", ATTEMPTED),
        Route("GET", ROUTE + "/{id}/health", MANAGE, sinks.health, READ, "How its sink is", Doc({200: "Health"})),
        Route("GET", "/v1/events/{seq}/why", MANAGE, preview.why, READ, "Who receives an event, and why not", WHYS),
    )


def _dead_letters(deps: WebDeps, bulk: BulkOperations) -> tuple[Route, ...]:
    handlers, one = DeadLetterRoutes(deps, bulk), DEAD_LETTERS + "/{id}"
    paged = Doc({200: "DeadLetterPage"}, query=LISTING)
    many = Doc({202: "Operation"}, body="Redrive", idempotent=True)
    again = Doc({202: "Redriven"}, idempotent=True)
    gone, read = Doc({204: None}), Doc({200: "DeadLetterRead"})
    return (
        Route("GET", DEAD_LETTERS, MANAGE, handlers.list, READ, "List dead letters", paged),
        Route("POST", DEAD_LETTERS + "/redrive", MANAGE, handlers.redrive_many, WRITE, "Redrive many", many),
        Route("GET", one, MANAGE, handlers.read, READ, "Read a dead letter, payload included", read),
        Route("DELETE", one, MANAGE, handlers.discard, WRITE, "Discard a dead letter", gone),
        Route("POST", one + "/redrive", MANAGE, handlers.redrive, WRITE, "Redrive a dead letter", again),
    )


def _operations(bulk: BulkOperations) -> tuple[Route, ...]:
    one, found = OPERATIONS + "/{id}", Doc({200: "Operation"})
    paged, cancelled = Doc({200: "OperationPage"}, query=PAGING), Doc({200: "Operation"}, refuses=(409,))
    return (
        Route("GET", OPERATIONS, MANAGE, bulk.list, READ, "List bulk operations", paged),
        Route("GET", one, MANAGE, bulk.read, READ, "Progress of a bulk operation", found),
        Route("DELETE", one, MANAGE, bulk.cancel, WRITE, "Cancel a bulk operation", cancelled),
    )


def _events(deps: WebDeps) -> tuple[Route, ...]:
    pull = Pull(deps)
    pulled = Doc({200: "EventPage"}, query=PULLING, refuses=(410,))
    return (
        Route("GET", "/v1/events", RECEIVE, pull.events, PULL, "Pull events in order", pulled, waits=True),
        Route("GET", "/v1/events/{seq}", RECEIVE, pull.event, PULL, "Read one event", Doc({200: "Event"})),
    )


def _operator_events(deps: WebDeps) -> tuple[Route, ...]:
    told = OperatorRoutes(deps)
    own = Doc({200: "OperatorEventPage"}, query=TOLD, refuses=(410,))
    every = Route(
        "GET",
        "/admin/operator-events",
        ADMIN,
        told.everybodys,
        STANDARD,
        "What every tenant was told",
        Doc({200: "ToldPage"}, query=EVERYBODYS),
        anywhere=True,
    )
    return (
        Route("GET", "/v1/operator-events", MANAGE, told.own, READ, "What happened to my subscriptions", own),
        every,
    )


def _admin(deps: WebDeps) -> tuple[Route, ...]:
    admin, keys = Admin(deps), "/admin/tenants/{tenant}/keys"
    made = Doc({201: "KeyMade"}, body="KeyWish", idempotent=True)
    deleted = Doc({204: None}, idempotent=True)
    paged = Doc({200: "KeyPage"}, query=PAGING)
    return (
        Route("POST", keys, ADMIN, admin.create, STANDARD, "Make an API key", made),
        Route("GET", keys, ADMIN, admin.list, STANDARD, "List a tenant's API keys", paged),
        Route("DELETE", keys + "/{id}", ADMIN, admin.delete, STANDARD, "Delete an API key", deleted),
    )


def _observed(deps: WebDeps) -> tuple[Route, ...]:
    """About no tenant: any worker answers."""
    seen, root = Observation(deps), "/admin/quarantine"
    dead, held = Doc({200: "ObservedPage"}, query=OBSERVED), Doc({200: "QuarantinePage"}, query=QUARANTINED)
    back = Doc({202: "Readmitted"}, body="Repair", body_needed=False, refuses=(409,))
    rows = (
        Route("GET", "/admin/dlq", ADMIN, seen.observed, STANDARD, "Producers' dead letters, observed", dead),
        Route("GET", root, ADMIN, seen.quarantined, STANDARD, "Quarantined records", held),
        Route("POST", root + "/{id}/ingest", ADMIN, seen.ingest, STANDARD, "Repair and ingest a record", back),
    )
    return tuple(route._replace(anywhere=True) for route in rows)


def build_web(deps: WebDeps) -> list[web.RouteDef]:
    """Routes for an aiohttp application, Faust's included: `application.add_routes(build_web(deps))`."""
    serve, health, described = Serve(deps), Health(deps), table(deps)
    documents = Documents(described, deps.version, explorer=deps.settings.swagger_enabled)
    routes: list[web.RouteDef] = []
    for path, group in groupby(described, key=lambda route: route.path):
        methods = list(group)
        routes += [_route(route.method, path, serve.guarded(route)) for route in methods]
        routes.append(web.route("*", path, serve.open(path, _other_method(tuple(r.method for r in methods)))))
    for path, handler in (
        ("/healthz", health.live),
        ("/readyz", health.ready),
        ("/metrics", health.metrics),
        ("/openapi.json", documents.openapi),
        ("/docs", documents.docs),
    ):
        routes.append(_route("GET", path, serve.open(path, handler)))
    # Names in its paths hold anything, slashes too, so it reads them itself.
    routes.append(web.route("*", EVENT_GRID + "/{rest:.*}", serve.open(EVENT_GRID, EventGrid(deps, serve).handle)))
    routes.append(_route("GET", INTERNAL + "/{what}", serve.open(INTERNAL, Sinks(deps).internal)))
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
