"""Two tenants, every route: nothing lets one see that the other's resource is there. And canaries: what is secret is
found in no log, record, answer, metric or repr."""

from __future__ import annotations

import logging
import re
from typing import Any

import orjson
import pytest

from hub_app.web.auth import ADMIN
from hub_app.web.routes import table
from hub_app.web.serve import Route
from tests.fakes.sender import fails
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Reply, Worker
from tests.support.openapi_world import TENANT, prepared

PART = re.compile(r"\{(\w+)\}")
MISSING = {"id": "sub_aaaaaaaaaaaaaaaaaaaaaaaaaa", "seq": "77"}
BODIES: dict[str, object] = {
    "PATCH /v1/subscriptions/{id}": {"name": "x"},
    "POST /v1/subscriptions/{id}/replay": {"from_seq": 0},
}
STRANGERS = ("u", "t ", "T", "t/", "tt")


def shown(reply: Reply) -> object:
    """Without what differs by the request alone."""
    if not isinstance(reply.json, dict):
        return reply.status, reply.body
    return reply.status, {name: value for name, value in reply.json.items() if name != "instance"}


def place(route: Route, parts: dict[str, Any]) -> str:
    path = route.path
    for name in PART.findall(route.path):
        path = path.replace(
            f"{{{name}}}", str(parts.get(f"{route.path}:{name}", parts.get(name, MISSING.get(name, "x"))))
        )
    return path


@pytest.mark.parametrize("moved", [False, True])
async def test_what_is_another_tenants_is_as_if_it_were_not(hub: Deployment, worker: Worker, moved: bool) -> None:
    world = await prepared(hub, worker)
    there = {name: values[0] for name, values in world.parts.items()}
    begun = await hub.ask(
        worker, "POST", f"/v1/subscriptions/{there['id']}/replay", key=world.key, json={"from_seq": 0, "dry_run": True}
    )
    assert isinstance(begun.json, dict)
    there["/v1/operations/{id}:id"] = begun.json["id"]
    asked = await hub.worker() if moved else worker  # one that owns nothing carries the request on
    tried = 0
    for stranger in STRANGERS:
        key = await hub.key(worker, stranger)
        for route in table(worker.deps):
            if (
                route.scope == ADMIN
                or not PART.search(route.path)
                or "/{tenant}" in route.path
                or "{topic" in route.path
            ):
                continue
            wish = BODIES.get(f"{route.method} {route.path}")
            absent = place(route, {})
            if "dead-letters" in route.path:
                absent = absent.replace(MISSING["id"], "0" * 32)
            real = await hub.ask(asked, route.method, place(route, there), key=key, json=wish)
            none = await hub.ask(asked, route.method, absent, key=key, json=wish)
            assert real.status == 404, (route.method, route.path, real)
            assert shown(real) == shown(none), (route.method, route.path)
            tried += 1
    assert tried >= 14 * len(STRANGERS)


async def test_lists_and_cursors_show_nothing_of_others(hub: Deployment, worker: Worker) -> None:
    world = await prepared(hub, worker)
    key = await hub.key(worker, "u")
    empty = {"subscriptions": [], "operations": [], "dead_letters": [], "events": []}
    for route in table(worker.deps):
        if route.method != "GET" or route.scope == ADMIN or PART.search(route.path):
            continue
        own = await hub.ask(worker, "GET", route.path + "?limit=1", key=world.key)
        assert isinstance(own.json, dict)
        cursor = own.json.get("next")
        name = "after" if route.path == "/v1/events" else "cursor"
        for query in ("", f"?{name}={cursor}" if cursor else ""):
            found = await hub.ask(worker, "GET", route.path + query, key=key)
            assert isinstance(found.json, dict)
            [kind] = [kind for kind in empty if kind in found.json]
            assert (found.status, found.json[kind]) == (200, []), (route.path, query)
            assert found.json.get("head") is None


async def test_a_claim_to_be_carried_gains_nothing(hub: Deployment, worker: Worker) -> None:
    world = await prepared(hub, worker)
    key = await hub.key(worker, "u")
    id = world.parts["id"][0]
    for headers in ({"X-Hub-Forwarded": "1"}, {"X-Hub-Forwarded": "1", "X-Hub-Tenant": TENANT}):
        reply = await hub.ask(worker, "GET", f"/v1/subscriptions/{id}", key=key, headers=headers)
        assert reply.status == 404


# -- canaries ----------------------------------------------------------------------------------------------------------
async def test_secrets_are_found_nowhere(hub: Deployment, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Reply] = []

    async def ask(method: str, path: str, key: str | None, wish: object = None) -> dict[str, Any]:
        reply = await hub.ask(worker, method, path, key=key, json=wish)
        answers.append(reply)
        return reply.json if isinstance(reply.json, dict) else {}

    key = await hub.key(worker, "t")
    sink = {
        "type": "webhook",
        "url": "https://crm.example.com/in?token=CANARY-query",
        "headers": {"Authorization": "Bearer CANARY-header", "X-Api-Key": "CANARY-apikey"},
    }
    wish = {"name": "n", "event_types": ["*"], "sink": sink}
    made = await ask("POST", "/v1/subscriptions", key, wish)
    path = f"/v1/subscriptions/{made['id']}"
    rotated = await ask("POST", f"{path}/secret:rotate", key)
    shown_once = [made["secret"].removeprefix("whsec_"), rotated["secret"].removeprefix("whsec_")]
    once = len(answers)
    worker.sender.sink = fails("tls", "https://u:CANARY-user@crm.example.com/?token=CANARY-query failed")
    for method, asked, body in (
        ("GET", path, None),
        ("GET", "/v1/subscriptions", None),
        ("PATCH", path, {"name": "other"}),
        ("PATCH", path, {"sink": {"headers": {"Host": "CANARY-header"}}}),
        ("POST", f"{path}/verify", None),
        ("POST", f"{path}/test", None),
        ("GET", f"{path}/health", None),
        ("GET", f"{path}/attempts", None),
        ("GET", "/metrics", None),
        ("GET", "/readyz", None),
        ("GET", "/openapi.json", None),
        ("GET", "/admin/tenants/t/keys", None),
    ):
        await ask(method, asked, ADMIN_KEY if asked.startswith("/admin") else key, body)
    kept = worker.subscriptions.get("t", made["id"])
    written = [repr(entry) for entry in hub.cluster.log if entry.topic != NAMES.subscriptions]
    ours = [record for record in caplog.records if record.name.startswith("streaming_hub")]
    logs = [repr(vars(record)) + record.getMessage() for record in ours]
    secret = key.split("_")[2]
    places = {
        "answers": [answer.body.decode("utf-8", "replace") for answer in answers[once:]],
        "logs": logs,
        "records": written,
        "reprs": [repr(worker.settings), repr(kept), repr(worker.deps.keyring), repr(worker.deps.settings)],
    }
    headers = ["CANARY-header", "CANARY-apikey", "CANARY-user"]
    for name, texts in places.items():
        for text in texts:
            for canary in (*shown_once, secret, ADMIN_KEY, *headers):
                assert canary not in text, (name, canary, text[:300])
    stored = b"".join(entry.record.value or b"" for entry in hub.cluster.log)
    for canary in (*shown_once, secret):  # static headers are the tenant's own configuration, and not sealed
        assert canary.encode() not in stored
    assert orjson.loads(answers[once].body)["sink"]["headers"]["X-Api-Key"] == "***"
