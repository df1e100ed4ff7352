"""Two tenants, every route: nothing lets one see that the other's resource is there.

The routes are those of the router itself. One that is added is met here without anybody's doing; where the test cannot
know how a stranger would ask for it, it fails and says so."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote

import pytest
from aiohttp import web

from agents.sinks import Failing, Sink
from hub_app.adapters.clock import SystemClock
from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import Breaker
from hub_app.domain.delivery import Job, OutcomeKind
from hub_app.domain.ids import delivery_id
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.domain.queue import Operation
from hub_app.web.event_grid_path import SETTLING
from hub_app.web.routes import build_web
from hub_app.wire import dead_letters, observations, quarantine
from hub_app.wire import operator as wire_operator
from hub_app.wire.attempts import Outcome
from hub_app.wire.record import Record
from tests.fakes.facts import fact
from tests.fakes.queues import QueueWorld
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Reply, Worker
from tests.support.event_grid import queue

OWNER: Final = "canary-tenant"
URL: Final = "https://canary-sink.example.com/in"
TOPIC, QUEUE = "canary-topic", "canary-queue"
STRANGERS: Final = ("stranger", "canary-tenant ", "Canary-tenant", "canary-tenant/", "canary-tenan")
VERSION: Final = "api-version=2024-06-01"
PART: Final = re.compile(r"\{(\w+)(?::[^{}]*)?\}")
NONE: Final = {
    "id": "sub_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "/v1/dead-letters/{id}": "0" * 32,
    "/v1/operations/{id}": "opn_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "seq": "77",
}


class Stage(NamedTuple):
    """`there`: what of the owner's a route's path may name, by the route's path up to the part, or by the part."""

    hub: Deployment
    worker: Worker
    world: QueueWorld
    key: str
    there: Mapping[str, str]
    token: str

    def asks(self) -> list[tuple[str, str]]:
        """(method, path) of every route of the router; those that change nothing first."""
        application = web.Application()
        application.add_routes(build_web(self.worker.deps))
        routes = [(route.method, route.resource.canonical) for route in application.router.routes() if route.resource]
        assert len(routes) == len(application.router.routes())
        return sorted(routes, key=lambda route: route[0] != "GET")


class Pair(NamedTuple):
    """A request about something of the owner's, and the same about what is not there. `statuses`: what a stranger gets
    for either."""

    path: str
    none: str
    body: object = None
    none_body: object = None
    statuses: tuple[int, ...] = (404,)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    hub = Deployment(shards=1)
    worker = await hub.worker()
    world = QueueWorld(tmp_path, SystemClock(), subscriptions=worker.subscriptions, keyring=worker.deps.keyring)
    await world.start()
    worker.queue_world = world
    key = await hub.key(worker, OWNER)
    yield await _filled(hub, worker, world, key)
    await hub.close()
    await world.stop()


async def _filled(hub: Deployment, worker: Worker, world: QueueWorld, key: str) -> Stage:
    """Something of everything that a tenant can have."""

    async def made(path: str, wish: object) -> str:
        reply = await hub.ask(worker, "POST", path, key=key, json=wish)
        assert isinstance(reply.json, dict), reply
        return str(reply.json["id"])

    wish = {"name": "canary-name", "event_types": ["*"], "sink": {"type": "webhook", "url": URL}}
    id = await made("/v1/subscriptions", wish)
    event = fact(1, OWNER, value=b'{"n":"canary-payload"}')
    hub.cluster.inboxes[0].add(event)
    operation = await made(f"/v1/subscriptions/{id}/replay", {"from_seq": 0, "dry_run": True})
    job = Job(delivery_id(OWNER, 1, id), 8, 0, OWNER, URL, id, "", 1, event.topic, 5, 0, 0, 0)
    record = dead_letters.write(job, event.headers, event.value, reason="exhausted", at_ms=event.received_at_ms)
    hub.cluster.append(NAMES.dlq, 0, record)
    told = OperatorEvent(OWNER, OperatorKind.WARNED, event.received_at_ms, URL, id, "1", "canary-detail")
    hub.cluster.append(NAMES.operator, 0, wire_operator.write(told))
    shard = hub.cluster.sink(0)
    batch = shard.table.store.batch()
    now_ms = worker.clock.now_ms()
    shard.history.note(batch, [Outcome(OutcomeKind.FAILED, job, now_ms, 12, 500, "http_500", "", b"canary-answer")])
    shard.table.store.write(batch)
    held = hub.cluster.held[OWNER, URL] = Sink(shard, (OWNER, URL))
    held.breaker, held.failing[id] = Breaker(5, now_ms, 30_000), Failing(Streak(now_ms, now_ms))
    _quarantined(hub)
    await made("/v1/subscriptions", queue(TOPIC, QUEUE))
    subscription = worker.subscriptions.queues(OWNER)[TOPIC, QUEUE]
    await world.give("canary-event", tenant=OWNER, topic=TOPIC)
    [locked] = await world.receive(subscription)
    await world.give("canary-ready", tenant=OWNER, topic=TOPIC)
    there = {
        "id": id,
        "seq": "1",
        "tenant": OWNER,
        "what": "health",
        "/v1/operations/{id}": operation,
        "/v1/dead-letters/{id}": job.delivery_id.hex(),
        "/admin/tenants/{tenant}/keys/{id}": key.split("_")[1],
        "/admin/quarantine/{id}": "0.0",
    }
    return Stage(hub, worker, world, key, there, locked.token)


def _quarantined(hub: Deployment) -> None:
    """Of a producer whose topic nobody else writes to; administrators alone see it."""
    headers = [(name, value) for name, value in fact(7, OWNER).headers if name != "ce-id"]
    seen = observations.write("lerian.streaming.canary.dlq", 0, 0, 5, headers, b"canary-payload")
    hub.cluster.append(NAMES.observations, 0, seen)
    source = _Source("lerian.streaming.canary", 0, 0, b"k", b"canary-payload", headers)
    held = quarantine.write(source, reason="id_missing", detail="canary-detail")
    hub.cluster.append(NAMES.quarantine, 0, Record(held.key, held.value, held.headers))


class _Source(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


# -- how a stranger would ask ------------------------------------------------------------------------------------------
DRAFT: Final = {"event_types": ["*"]}
WISH: Final = {"name": "x", "event_types": ["*"], "sink": {"type": "webhook", "url": URL}, "verify": False}
BODIES: Final[Mapping[str, object]] = {
    "PATCH /v1/subscriptions/{id}": {"name": "x"},
    "POST /v1/subscriptions/{id}/replay": {"from_seq": 0},
    "POST /admin/tenants/{tenant}/keys": {"scopes": ["manage"]},
}


def pairs(stage: Stage, method: str, path: str, stranger: str) -> list[Pair]:
    """Of a route that is about the caller's tenant. AssertionError for one that nobody has thought of."""
    listed = {
        "GET /v1/subscriptions": (200,),
        "GET /v1/operations": (200,),
        "GET /v1/dead-letters": (200,),
        "GET /v1/events": (200,),
        "GET /v1/operator-events": (200,),
    }
    name = f"{method} {path}"
    if name in listed:
        return [Pair(path + query, path, statuses=listed[name]) for query in ("", "?limit=1")]
    if name == "POST /v1/subscriptions":
        return [Pair(path, path, WISH, {**WISH, "sink": {**WISH["sink"], "url": "https://x.example.com/"}}, (201,))]  # type: ignore[dict-item]
    if name == "POST /v1/subscriptions:preview":
        spans = {"from_seq": 1, "to_seq": 1}, {"from_seq": 77, "to_seq": 77}
        here, none = ({"subscription": DRAFT, "range": span} for span in spans)
        return [Pair(path, path, here, none, (200,))]
    if name == "POST /v1/dead-letters/redrive":
        here, none = ({"subscription": id, "dry_run": True} for id in (stage.there["id"], NONE["id"]))
        return [Pair(path, path, here, none, (202,))]
    if path.startswith("/t/"):
        return list(data_plane(stage, stranger))
    if path.startswith("/internal/sinks/"):
        return list(between_workers(stage))
    assert PART.search(path), f"{name}: say in {Path(__file__).name} how a stranger would ask for what is another's"
    return [Pair(placed(path, stage.there), placed(path, NONE), BODIES.get(name), BODIES.get(name))]


def placed(path: str, parts: Mapping[str, str]) -> str:
    """The path with its parts filled in. KeyError for a part that nobody has thought of."""
    found = path
    for match in PART.finditer(path):
        known = next((parts[at] for at in (path[: match.end()], match[1]) if at in parts), None)
        assert known is not None, f"{path}: say in {Path(__file__).name} what {match[0]} may be"
        found = found.replace(match[0], quote(known, safe=""))
    return found


def data_plane(stage: Stage, stranger: str) -> Iterator[Pair]:
    """The owner's tenant in the path; the owner's names below the stranger's own; the owner's lock token."""
    own = quote(stranger, safe="")
    tokens = {"lockTokens": [stage.token]}
    for operation in ("publish", "receive", *SETTLING):
        body = tokens if operation in SETTLING else _EVENT if operation == "publish" else None
        for tenant, none in ((OWNER, "nobody"), (own, own)):
            if operation == "publish":
                below = f"topics/{TOPIC}"
                statuses = (404,) if tenant == OWNER else (200,)
                yield Pair(*(f"/t/{one}/{below}:publish?{VERSION}" for one in (tenant, none)), body, body, statuses)
                continue
            here, gone = (f"topics/{TOPIC}/eventsubscriptions/{name}" for name in (QUEUE, "none"))
            yield Pair(
                f"/t/{tenant}/{here}:{operation}?{VERSION}", f"/t/{none}/{gone}:{operation}?{VERSION}", body, body
            )


_EVENT: Final = {"specversion": "1.0", "id": "1", "source": "/x", "type": "a.b"}


def between_workers(stage: Stage) -> Iterator[Pair]:
    """The way between workers takes the tenant from the key, whatever is asked."""
    for what in ("attempts", "health", "delivery"):
        here, none = (
            f"/internal/sinks/{what}?destination={quote(URL, safe='')}&subscription={id}&seq=1"
            for id in (stage.there["id"], NONE["id"])
        )
        yield Pair(here, none, statuses=(200, 421))


# -- the matrix --------------------------------------------------------------------------------------------------------
OPEN: Final = ("/healthz", "/readyz", "/metrics", "/openapi.json", "/docs")
UNKNOWN: Final = ("/v1{rest}", "/admin{rest}")


def hidden(stage: Stage) -> list[str]:
    """What no answer to anybody else may hold."""
    common = ("seq", "tenant", "what", "/admin/quarantine/{id}")
    texts = [text for name, text in stage.there.items() if name not in common]
    return ["canary", stage.token, *texts]


def told(reply: Reply, asked: Pair, stranger: str) -> str:
    """The answer, without what the stranger said itself."""
    text = reply.body.decode("utf-8", "replace") + repr(sorted(reply.headers.items()))
    path, _, query = asked.path.partition("?")
    said = [path, quote(stranger, safe=""), stranger, *(value for _, value in parse_qsl(query)), *leaves(asked.body)]
    for one in sorted((text for text in said if len(text) > 3), key=len, reverse=True):
        text = text.replace(one, "")
    return text


def leaves(value: object) -> Iterator[str]:
    """Every text in a body."""
    if isinstance(value, str):
        yield from (value, quote(value, safe=""))
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from leaves(inner)


def shown(reply: Reply) -> object:
    """Without what differs by the request alone."""
    if not isinstance(reply.json, dict):
        return reply.status, reply.body
    names = ("instance", "id", "created_at", "updated_at", "secret", "sink", "destination", "next_seq", "subscription")
    return reply.status, {name: value for name, value in reply.json.items() if name not in names}


@pytest.mark.parametrize("way", ["to the owner", "to another worker", "as if carried"])
async def test_every_route_hides_what_is_another_tenants(stage: Stage, way: str) -> None:
    asked = stage.worker
    if way == "to another worker":
        asked = await stage.hub.worker()
        asked.queue_world = stage.world
    headers = {"X-Hub-Forwarded": "1", "X-Hub-Tenant": OWNER} if way == "as if carried" else {}
    tried = 0
    for stranger in STRANGERS:
        key = await stage.hub.key(stage.worker, stranger)
        for method, path in stage.asks():
            if method == "HEAD" or path in OPEN:
                continue
            for pair in asks(stage, method, path, stranger):
                wished = "POST" if path.startswith("/t/") else "PUT" if method == "*" else method
                real = await stage.hub.ask(asked, wished, pair.path, key=key, json=pair.body, headers=headers)
                none = await stage.hub.ask(asked, wished, pair.none, key=key, json=pair.none_body, headers=headers)
                where = (method, path, pair.path, stranger, real.status, real.body[:300], none.body[:300])
                assert real.status in pair.statuses, where
                assert shown(real) == shown(none), where
                for text in hidden(stage):
                    assert text not in told(real, pair, stranger), (text, where)
                tried += 1
    assert tried >= 50 * len(STRANGERS)
    await untouched(stage)


def asks(stage: Stage, method: str, path: str, stranger: str) -> list[Pair]:
    if path in UNKNOWN:
        return [Pair(path.replace("{rest}", "/x"), path.replace("{rest}", "/y"))]
    body, nowhere = BODIES.get(f"{method} {path}"), {**NONE, "tenant": "nobody"}
    if method == "*" and not path.startswith("/t/"):  # a method that the path does not take
        return [Pair(placed(path, stage.there), placed(path, nowhere), statuses=(405,))]
    if path.startswith("/admin"):
        return [Pair(placed(path, stage.there), placed(path, nowhere), body, body, (403,))]
    return pairs(stage, method, path, stranger)


async def untouched(stage: Stage) -> None:
    """Nothing that strangers did changed what is the owner's."""
    hub, worker, key = stage.hub, stage.worker, stage.key
    for path in ("/v1/subscriptions/{id}", "/v1/dead-letters/{id}", "/v1/operations/{id}", "/v1/events/{seq}"):
        assert (await hub.ask(worker, "GET", placed(path, stage.there), key=key)).status == 200, path
    letter = await hub.ask(worker, "GET", placed("/v1/dead-letters/{id}", stage.there), key=key)
    operation = await hub.ask(worker, "GET", placed("/v1/operations/{id}", stage.there), key=key)
    assert isinstance(letter.json, dict)
    assert isinstance(operation.json, dict)
    assert (letter.json["state"], operation.json["state"]) == ("dead", "running")
    subscription = worker.subscriptions.queues(OWNER)[TOPIC, QUEUE]
    [ready] = await stage.world.receive(subscription)
    assert ready.fact.id == "canary-ready"
    assert await stage.world.settle(subscription, Operation.ACKNOWLEDGE, [stage.token]) == [None]


async def test_cursors_of_others_open_nothing(stage: Stage) -> None:
    """A list that is begun by the owner cannot be gone on with by a stranger."""
    key, tried = await stage.hub.key(stage.worker, "stranger"), 0
    empty = ("subscriptions", "operations", "dead_letters", "events", "operator_events")
    for method, path in stage.asks():
        if method != "GET" or PART.search(path) or not path.startswith("/v1/"):
            continue
        own = await stage.hub.ask(stage.worker, "GET", path + "?limit=1", key=stage.key)
        assert isinstance(own.json, dict)
        [kind] = [kind for kind in empty if kind in own.json]
        assert own.json[kind], f"{path}: the owner has none of them"
        name = "after" if kind in ("events", "operator_events") else "cursor"
        cursors = [own.json["next"]] if own.json["next"] else []
        for query in ("", *(f"?{name}={cursor}" for cursor in cursors)):
            found = await stage.hub.ask(stage.worker, "GET", path + query, key=key)
            assert isinstance(found.json, dict)
            assert (found.status, found.json[kind]) == (200, []), (path, query)
            assert found.json.get("head") is None
        tried += 1
    assert tried >= 5


async def test_what_needs_no_key_tells_of_no_tenant(stage: Stage) -> None:
    for path in OPEN:
        reply = await stage.hub.ask(stage.worker, "GET", path)
        assert reply.status == 200
        for text in hidden(stage):
            assert text not in told(reply, Pair(path, path), "stranger"), (path, text)


async def test_everything_that_has_a_key_refuses_who_has_none(stage: Stage) -> None:
    """401 for every route but those that need none and those that are not there; nothing of the resource is told."""
    for method, path in stage.asks():
        if method in ("HEAD", "*") or path in OPEN:
            continue
        reply = await stage.hub.ask(stage.worker, method, placed(path, stage.there))
        assert reply.status == 401, (method, path, reply)


async def test_an_administrator_is_of_no_tenant(stage: Stage) -> None:
    """The bootstrap key opens the routes of administrators alone."""
    for method, path in stage.asks():
        if method in ("HEAD", "*") or path in OPEN or path.startswith("/admin"):
            continue
        reply = await stage.hub.ask(stage.worker, method, placed(path, stage.there), key=ADMIN_KEY)
        assert reply.status == 403, (method, path, reply)
