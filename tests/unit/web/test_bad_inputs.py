"""Whatever is wrong with a request: the error names the field, and says what would be right. Every member of every body
and every parameter of every query is tried, from the routes' own table, so that a new one is met without anybody's
doing; and the rules that no schema can say, from a table of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import quote

import pytest

from hub_app.web.routes import table
from hub_app.web.schemas import SCHEMAS
from hub_app.web.serve import Route
from tests.fakes.workers import ADMIN_KEY, Deployment, Reply, Worker
from tests.support.openapi_world import World, prepared

REPAIR: Final = re.compile(
    r"expected |must |is required|at most |at least |known are |did you mean |is not after |; make |; leave it out|"
    r"use |give |write |say where |takes |only |instead of the value|twice"
)
ODD: Final = (7.5, -1, "\x00", {"odd": 1}, [{"odd": 1}], [], True)
ODD_QUERIES: Final = ("", "\x00", "x" * 3_000, "-1", "1e9")
ANYTHING: Final = {"Trial": {"data"}}
"""Members that take any JSON."""
URL: Final = "https://crm.example.com/in"


@pytest.fixture
async def world(hub: Deployment, worker: Worker) -> World:
    return await prepared(hub, worker)


def placed(route: Route, world: World) -> str:
    def known(match: re.Match[str]) -> str:
        values = world.parts.get(f"{route.path}:{match[1]}") or world.parts.get(match[1]) or ["0.0"]
        return quote(str(values[0]), safe="")

    return re.sub(r"\{(\w+)\}", known, route.path)


async def ask(hub: Deployment, worker: Worker, world: World, route: Route, query: str, wish: object) -> Reply:
    key = ADMIN_KEY if route.path.startswith("/admin") else world.key
    return await hub.ask(worker, route.method, placed(route, world) + query, key=key, json=wish)


def errors(reply: Reply) -> list[tuple[str, str]]:
    """(pointer, detail) of each; every one of them names a place and says what would be right."""
    assert isinstance(reply.json, dict), reply
    assert reply.headers["Content-Type"] == "application/problem+json"
    found = [(error["pointer"], error["detail"]) for error in reply.json.get("errors", [])]
    for pointer, detail in found:
        assert pointer == "" or pointer[0] in "/?", pointer
        assert REPAIR.search(detail), (pointer, detail)
    return found


def members(schema: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """(name, required) of what a body may hold."""
    for name in schema.get("properties", {}):
        yield name, name in schema.get("required", ())


# -- from the routes' table --------------------------------------------------------------------------------------------
async def test_every_member_of_every_body(hub: Deployment, worker: Worker, world: World) -> None:
    tried = 0
    for route in (route for route in table(worker.deps) if route.doc.body is not None):
        name = route.doc.body
        assert name is not None
        if route.path == "/admin/quarantine/{id}/ingest":
            continue  # needs a quarantined record: below
        for member, required in members(SCHEMAS[name]):
            if member in ANYTHING.get(name, ()):
                continue
            named = set[str]()
            for odd in ODD:
                reply = await ask(hub, worker, world, route, "", {member: odd})
                if reply.status == 422:
                    named |= {pointer for pointer, _ in errors(reply)}
            assert any(pointer.startswith(f"/{member}") for pointer in named), (route.path, member, named)
            if required:
                reply = await ask(hub, worker, world, route, "", {})
                assert f"/{member}" in dict(errors(reply)), (route.path, member)
            tried += 1
        reply = await ask(hub, worker, world, route, "", {"nope": 1})
        assert "/nope" in dict(errors(reply)), route.path
        for whole in ([], 7, "x"):
            reply = await ask(hub, worker, world, route, "", whole)
            assert reply.status == 422
            assert errors(reply) != []
    assert tried >= 25


async def test_every_parameter_of_every_query(hub: Deployment, worker: Worker, world: World) -> None:
    tried = 0
    for route in (route for route in table(worker.deps) if route.method == "GET"):
        reply = await ask(hub, worker, world, route, "?nope=1", None)
        if not route.doc.query:
            continue
        assert (reply.status, [pointer for pointer, _ in errors(reply)]) == (400, ["?nope"]), route.path
        assert "known are" in errors(reply)[0][1]
        for parameter in route.doc.query:
            refused = 0
            for odd in ODD_QUERIES:
                reply = await ask(hub, worker, world, route, f"?{parameter.name}={quote(odd)}", None)
                if reply.status == 400:
                    assert [pointer for pointer, _ in errors(reply)] == [f"?{parameter.name}"], (route.path, odd)
                    refused += 1
                else:
                    assert reply.status in (200, 410), (route.path, parameter.name, odd, reply)
            assert refused, (route.path, parameter.name)
            tried += 1
    assert tried >= 35


# -- what no schema can say --------------------------------------------------------------------------------------------
def wish(**more: Any) -> dict[str, Any]:
    return {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": URL}, "verify": False, **more}


def hook(**more: Any) -> dict[str, Any]:
    return wish(sink={"type": "webhook", "url": URL, **more})


def queue(**more: Any) -> dict[str, Any]:
    return wish(sink={"type": "queue", "topic": "orders", "name": "billing", **more})


def filtered(**one: Any) -> dict[str, Any]:
    return wish(filters=[one])


BAD: Final[list[tuple[str, dict[str, Any], str, str]]] = [
    ("event type in full", wish(event_types=["studio.lerian.lender.loan.approved"]), "/event_types/0", "origin"),
    ("half a star", wish(event_types=["loan.app*"]), "/event_types/0", ""),
    ("no event type", wish(event_types=[]), "/event_types", ""),
    ("too many", wish(event_types=["a.b"] * 101), "/event_types", "100"),
    ("no origin", wish(origin=[""]), "/origin/0", ""),
    ("plain http", hook(url="http://crm.example.com/"), "/sink/url", "https"),
    ("inside", hook(url="https://127.0.0.1/"), "/sink/url", ""),
    ("password", hook(url="https://u:pw@crm.example.com/"), "/sink/url", ""),
    ("no port", hook(url="https://crm.example.com:70000/"), "/sink/url", "port"),
    ("long", hook(url="https://crm.example.com/" + "a" * 9_000), "/sink/url", ""),
    ("host header", hook(headers={"Host": "x"}), "/sink/headers/Host", ""),
    ("signature header", hook(headers={"webhook-id": "x"}), "/sink/headers/webhook-id", ""),
    ("ce header", hook(headers={"ce-id": "x"}), "/sink/headers/ce-id", ""),
    ("line end", hook(headers={"X-A": "a\r\nb"}), "/sink/headers/X-A", ""),
    ("slash", hook(headers={"X/A": "a"}), "/sink/headers/X~1A", ""),
    ("twice", hook(headers={"X-A": "1", "x-a": "2"}), "/sink/headers/x-a", "twice"),
    ("masked", hook(headers={"X-Api-Key": "***"}), "/sink/headers/X-Api-Key", ""),
    ("time", hook(timeout_ms=99), "/sink/timeout_ms", "100"),
    ("pigeon", wish(sink={"type": "carrier-pigeon", "url": URL}), "/sink/type", "webhook"),
    ("not built", wish(sink={"type": "sqs", "url": URL}), "/sink/type", "not built in this version"),
    ("extra", hook(uri=URL), "/sink/uri", ""),
    ("operator", filtered(operatorType="Nope", key="a", value=1), "/filters/0/operatorType", ""),
    ("no value", filtered(operatorType="NumberIn", key="a"), "/filters/0/values", ""),
    ("wrong value", filtered(operatorType="NumberIn", key="a", values=["x"]), "/filters/0/values/0", ""),
    ("many", filtered(operatorType="NumberIn", key="a", values=[1] * 26), "/filters/0/values", "25"),
    ("filters", wish(filters=[{"operatorType": "IsNotNull", "key": "a"}] * 26), "/filters", "25"),
    ("lock", queue(receiveLockDurationInSeconds=5), "/sink/receiveLockDurationInSeconds", "60"),
    ("count", queue(maxDeliveryCount=11), "/sink/maxDeliveryCount", "10"),
    ("ttl", queue(eventTimeToLive="7 days"), "/sink/eventTimeToLive", ""),
]


@pytest.mark.parametrize(("body", "pointer", "word"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
async def test_rules_of_a_subscription(
    hub: Deployment, worker: Worker, body: dict[str, Any], pointer: str, word: str
) -> None:
    key = await hub.key(worker, "t", "manage")
    reply = await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=body)
    assert reply.status == 422, reply
    [(named, detail)] = errors(reply)
    assert named == pointer
    assert word in detail
    assert len(worker.subscriptions) == 0


async def test_a_body_that_cannot_be_read_says_where_it_stops(hub: Deployment, worker: Worker) -> None:
    key, headers = await hub.key(worker, "t", "manage"), {"Content-Type": "application/json"}
    for data, word in ((b"{", "not JSON"), (b'{"a":1,"a":2}', "twice"), (b"", "empty"), (b"[" * 40 + b"]" * 40, "16")):
        reply = await hub.ask(worker, "POST", "/v1/subscriptions", key=key, data=data, headers=headers)
        assert reply.status == 400
        assert isinstance(reply.json, dict)
        assert word in reply.json["detail"]
