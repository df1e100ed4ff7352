"""API keys: made, listed, deleted; the key itself is seen once."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from hub_app.web.auth import secret_digest
from tests.fakes.workers import ADMIN_KEY, Deployment, Reply, Worker


async def make(hub: Deployment, worker: Worker, tenant: str = "t", body: object = None) -> Reply:
    path = f"/admin/tenants/{quote(tenant, safe='')}/keys"
    return await hub.ask(worker, "POST", path, key=ADMIN_KEY, json={"scopes": ["manage"]} if body is None else body)


def field(reply: Reply, name: str) -> object:
    assert isinstance(reply.json, dict)
    return reply.json[name]


async def test_a_key_is_shown_once_and_kept_as_a_digest(hub: Deployment, worker: Worker) -> None:
    reply = await make(hub, worker, body={"name": "crm", "scopes": ["receive", "manage"]})
    assert reply.status == 201
    assert reply.headers["Cache-Control"] == "no-store"
    key = str(field(reply, "key"))
    _, key_id, secret = key.split("_")
    assert reply.headers["Location"] == f"/admin/tenants/t/keys/{key_id}"
    stored = worker.keys.get(key_id)
    assert stored is not None
    assert (stored.name, sorted(stored.scopes), stored.tenant) == ("crm", ["manage", "receive"], "t")
    assert stored.secret_sha256 == secret_digest(secret)
    listed = await hub.ask(worker, "GET", "/admin/tenants/t/keys", key=ADMIN_KEY)
    assert secret not in listed.body.decode()
    assert field(listed, "keys") == [
        {
            "id": key_id,
            "tenant": "t",
            "name": "crm",
            "scopes": ["manage", "receive"],
            "created_at": field(reply, "created_at"),
        }
    ]
    assert all(secret.encode() not in bytes(entry.record.value or b"") for entry in hub.cluster.log)


@pytest.mark.parametrize("tenant", ["a/b", "ä b", "a%2Fb", "..", "x" * 256, "a:b?c#d"])
async def test_any_tenant_can_have_keys(hub: Deployment, worker: Worker, tenant: str) -> None:
    reply = await make(hub, worker, tenant)
    assert field(reply, "tenant") == tenant
    listed = await hub.ask(worker, "GET", f"/admin/tenants/{quote(tenant, safe='')}/keys", key=ADMIN_KEY)
    assert len(listed.json["keys"]) == 1  # type: ignore[index]
    deleted = await hub.ask(worker, "DELETE", reply.headers["Location"], key=ADMIN_KEY)
    assert deleted.status == 204


@pytest.mark.parametrize("tenant", ["a%1Fb", "%7F", "x" * 257, "%C3%A9" * 129, "%FF", "a%", "a%2"])
async def test_names_that_no_tenant_has(hub: Deployment, worker: Worker, tenant: str) -> None:
    reply = await hub.ask(worker, "GET", f"/admin/tenants/{tenant}/keys", key=ADMIN_KEY)
    assert reply.status == 404


@pytest.mark.parametrize(
    ("body", "pointer", "word"),
    [
        ({}, "/scopes", "required"),
        ({"scopes": []}, "/scopes", "1 to 3"),
        ({"scopes": "manage"}, "/scopes", "list"),
        ({"scopes": ["admin"]}, "/scopes/0", "publish, receive, manage"),
        ({"scopes": ["manage", "manage"]}, "/scopes/1", "twice"),
        ({"scopes": ["manage"], "name": 7}, "/name", "string"),
        ({"scopes": ["manage"], "name": "x" * 201}, "/name", "200"),
        ({"scopes": ["manage"], "name": "a\nb"}, "/name", "control"),
        ({"scopes": ["manage"], "tenant": "other"}, "/tenant", "not a known field"),
        ({"scopes": ["manage"], "nmae": "x"}, "/nmae", "did you mean name?"),
        ([], "", "object"),
    ],
)
async def test_the_field_and_the_repair_are_named(
    hub: Deployment, worker: Worker, body: object, pointer: str, word: str
) -> None:
    reply = await make(hub, worker, body=body)
    assert reply.status == 422
    assert reply.headers["Content-Type"] == "application/problem+json"
    [error] = reply.json["errors"]  # type: ignore[index]
    assert error["pointer"] == pointer
    assert word in error["detail"]


async def test_every_error_at_once(hub: Deployment, worker: Worker) -> None:
    reply = await make(hub, worker, body={"name": 1, "scopes": ["x", "y"], "z": 1})
    assert {error["pointer"] for error in reply.json["errors"]} == {"/name", "/scopes/0", "/scopes/1", "/z"}  # type: ignore[index]


async def test_keys_of_another_tenant_are_not_found(hub: Deployment, worker: Worker) -> None:
    reply = await make(hub, worker, "a")
    key_id = field(reply, "id")
    assert (await hub.ask(worker, "DELETE", f"/admin/tenants/b/keys/{key_id}", key=ADMIN_KEY)).status == 404
    assert (await hub.ask(worker, "DELETE", f"/admin/tenants/a/keys/{key_id}", key=ADMIN_KEY)).status == 204
    assert (await hub.ask(worker, "DELETE", f"/admin/tenants/a/keys/{key_id}", key=ADMIN_KEY)).status == 404


async def test_a_list_in_pages(hub: Deployment, worker: Worker) -> None:
    made = [field(await make(hub, worker), "id") for _ in range(5)]
    seen: list[object] = []
    cursor = ""
    while True:
        reply = await hub.ask(worker, "GET", f"/admin/tenants/t/keys?limit=2{cursor}", key=ADMIN_KEY)
        assert isinstance(reply.json, dict)
        seen += [key["id"] for key in reply.json["keys"]]
        if reply.json["next"] is None:
            break
        cursor = f"&cursor={reply.json['next']}"
    assert sorted(map(str, seen)) == sorted(map(str, made))
    assert len(seen) == 5


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "limit=", "cursor=x", "cursor=1.a/b", "page=2"])
async def test_a_query_is_judged(hub: Deployment, worker: Worker, query: str) -> None:
    reply = await hub.ask(worker, "GET", f"/admin/tenants/t/keys?{query}", key=ADMIN_KEY)
    assert reply.status == 400
    assert reply.json["errors"][0]["pointer"] == "?" + query.partition("=")[0]  # type: ignore[index]
