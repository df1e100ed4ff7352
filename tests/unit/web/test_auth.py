"""Who may ask what. A client that sees 401 throws its key away, so 401 is said only when it is certain."""

from __future__ import annotations

import asyncio
from hashlib import sha256

import pytest

from hub_app.domain.apikey import ApiKey
from hub_app.web.auth import key_text, present, secret_digest
from hub_app.web.problems import Problem
from hub_app.wire import keys as wire_keys
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Worker

GOOD = "shk_abcdefghij234567_" + "s" * 52


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {GOOD}",
        GOOD,
        f"Bearer  {GOOD}",
        f"Bearer {GOOD}é",
        "Bearer " + "x" * 513,
    ],
)
def test_no_key_in_the_header(header: str | None) -> None:
    problem = present({} if header is None else {"Authorization": header})
    assert isinstance(problem, Problem)
    assert problem.status == 401
    assert problem.headers["WWW-Authenticate"].startswith("Bearer")
    assert "ssss" not in problem.detail


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_key_in_the_header(scheme: str) -> None:
    presented = present({"Authorization": f"{scheme} {GOOD}"})
    assert not isinstance(presented, Problem)
    assert presented.key_id == "abcdefghij234567"
    assert presented.secret_sha256 == sha256(b"s" * 52).digest() == secret_digest("s" * 52)


ROUTES = [
    ("POST", "/v1/subscriptions", "manage"),
    ("GET", "/v1/subscriptions", "manage"),
    ("GET", "/v1/subscriptions/sub_1", "manage"),
    ("DELETE", "/v1/subscriptions/sub_1", "manage"),
    ("POST", "/v1/subscriptions/sub_1/verify", "manage"),
    ("GET", "/v1/events", "receive"),
    ("GET", "/v1/events/7", "receive"),
    ("POST", "/admin/tenants/t/keys", "admin"),
    ("GET", "/admin/tenants/t/keys", "admin"),
    ("DELETE", "/admin/tenants/t/keys/abc", "admin"),
]


@pytest.mark.parametrize(("method", "path", "scope"), ROUTES)
async def test_every_route_needs_a_key_and_its_scope(
    hub: Deployment, worker: Worker, method: str, path: str, scope: str
) -> None:
    others = [known for known in ("publish", "receive", "manage") if known != scope]
    key = await hub.key(worker, "t", *others)
    assert (await hub.ask(worker, method, path)).status == 401
    assert (await hub.ask(worker, method, path, key=GOOD)).status == 401
    reply = await hub.ask(worker, method, path, key=key)
    assert reply.status == 403
    assert scope in reply.body.decode()


@pytest.mark.parametrize(("method", "path", "scope"), [route for route in ROUTES if route[2] != "admin"])
async def test_an_admin_has_no_tenant(hub: Deployment, worker: Worker, method: str, path: str, scope: str) -> None:
    assert (await hub.ask(worker, method, path, key=ADMIN_KEY)).status == 403


async def test_the_wrong_secret_of_a_known_key(hub: Deployment, worker: Worker) -> None:
    key = await hub.key(worker, "t")
    reply = await hub.ask(worker, "GET", "/v1/subscriptions", key=key[:-1] + ("a" if key[-1] != "a" else "b"))
    assert reply.status == 401


async def test_a_deleted_key_opens_nothing(hub: Deployment, worker: Worker) -> None:
    key = await hub.key(worker, "t")
    assert (await hub.ask(worker, "GET", "/v1/events", key=key)).status == 200
    key_id = key.split("_")[1]
    assert (await hub.ask(worker, "DELETE", f"/admin/tenants/t/keys/{key_id}", key=ADMIN_KEY)).status == 204
    assert (await hub.ask(worker, "GET", "/v1/events", key=key)).status == 401


async def test_without_an_admin_key_nobody_is_admin(hub: Deployment) -> None:
    worker = await hub.worker(ADMIN_KEY="")
    assert (await hub.ask(worker, "GET", "/admin/tenants/t/keys", key=ADMIN_KEY)).status == 401
    assert (await hub.ask(worker, "GET", "/admin/tenants/t/keys", headers={"Authorization": "Bearer "})).status == 401


# -- 503, never 401 ----------------------------------------------------------------------------------------------------
async def test_before_the_keys_are_read_nothing_is_decided(hub: Deployment, worker: Worker) -> None:
    key = await hub.key(worker, "t")
    worker.keys_known = False
    for presented in (key, GOOD):
        reply = await hub.ask(worker, "GET", "/v1/events", key=presented)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert (await hub.ask(worker, "GET", "/v1/events", key="nonsense")).status == 401  # certain without the table


async def test_a_key_made_elsewhere_a_moment_ago_is_found(hub: Deployment, worker: Worker) -> None:
    other = await hub.worker()
    other.lags = True
    key = await hub.key(worker, "t")
    assert other.keys.of_tenant("t") == []
    assert (await hub.ask(other, "GET", "/v1/events", key=key)).status == 200


async def test_an_unknown_key_while_the_tail_cannot_be_read_is_503(hub: Deployment, worker: Worker) -> None:
    key = await hub.key(worker, "t")
    worker.refreshable = False
    assert (await hub.ask(worker, "GET", "/v1/events", key=GOOD)).status == 503
    assert (await hub.ask(worker, "GET", "/v1/events", key=key)).status == 200


async def test_a_key_whose_record_cannot_be_read_is_503(hub: Deployment, worker: Worker) -> None:
    record = wire_keys.write(
        ApiKey(
            id="abcd2345",
            tenant="t",
            name="",
            scopes=frozenset(("receive",)),
            secret_sha256=secret_digest("s" * 52),
            created_at_ms=0,
        )
    )
    hub.cluster.append(NAMES.keys, hub.cluster.shard_of("t"), record._replace(value=b"damaged"))
    reply = await hub.ask(worker, "GET", "/v1/events", key=key_text("abcd2345", "s" * 52))
    assert reply.status == 503


async def test_bad_keys_share_readings_of_the_tail(hub: Deployment, worker: Worker) -> None:
    asked = [hub.ask(worker, "GET", "/v1/events", key=GOOD) for _ in range(40)]
    assert {reply.status for reply in await asyncio.gather(*asked)} == {401}
    assert worker.refreshes <= 3
