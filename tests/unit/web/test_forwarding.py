"""Any worker answers any request: carried to the owner, once, and refused honestly when there is none."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from hub_app.domain.errors import BrokerTrouble, Fenced, OutcomeUnknown
from hub_app.web.deps import NoReply, Reply
from hub_app.web.forwarding import DEADLINE, HOP, carried_headers
from hub_app.web.peers import ANSWER_BYTES_MAX, AiohttpPeers
from tests.fakes.facts import fact
from tests.fakes.workers import ADMIN_KEY, Deployment, Worker

KEYS = "/admin/tenants/a%2Fb/keys"


@pytest.fixture
async def other(hub: Deployment, worker: Worker) -> Worker:
    """A second worker, which owns nothing."""
    return await hub.worker()


def forwards(worker: Worker) -> dict[str, float]:
    return {labels[0]: child.value for labels, child in worker.metrics.http_forwards.items()}


async def test_a_request_is_carried_with_body_headers_and_path(hub: Deployment, worker: Worker, other: Worker) -> None:
    reply = await hub.ask(other, "POST", KEYS, key=ADMIN_KEY, json={"scopes": ["receive"], "name": "ü"})
    assert reply.status == 201
    assert reply.headers["Location"].startswith(KEYS)
    assert [key.name for key in worker.keys.of_tenant("a/b")] == ["ü"]
    assert forwards(other) == {"answered": 1}
    assert forwards(worker) == {}
    listed = await hub.ask(other, "GET", KEYS + "?limit=1", key=ADMIN_KEY)
    assert len(listed.json["keys"]) == 1  # type: ignore[index]


async def test_problems_of_the_owner_come_back_as_they_are(hub: Deployment, worker: Worker, other: Worker) -> None:
    reply = await hub.ask(other, "POST", KEYS, key=ADMIN_KEY, json={"scopes": []})
    assert (reply.status, reply.headers["Content-Type"]) == (422, "application/problem+json")
    assert reply.json["instance"] == "/admin/tenants/a/b/keys"  # type: ignore[index]


async def test_a_long_poll_is_carried(hub: Deployment, worker: Worker, other: Worker) -> None:
    key = await hub.key(worker, "t")
    task = asyncio.create_task(hub.ask(other, "GET", "/v1/events?wait=30", key=key))
    async with asyncio.timeout(5):
        while not len(worker.arrivals):
            await asyncio.sleep(0)
        hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(1))
        worker.arrivals.notify("t")
        assert len((await task).json["events"]) == 1  # type: ignore[index]


async def test_a_wrong_owner_answers_421_and_is_asked_once(hub: Deployment, worker: Worker, other: Worker) -> None:
    reply = await hub.ask(other, "GET", KEYS, key=ADMIN_KEY, headers={HOP: "1"})
    assert reply.status == 421
    assert forwards(other) == {}


async def test_a_stale_map_is_looked_at_again(hub: Deployment, worker: Worker, other: Worker) -> None:
    third = await hub.worker()
    other.stale_owner[hub.cluster.shard_of("a/b")] = third.url
    assert (await hub.ask(other, "GET", KEYS, key=ADMIN_KEY)).status == 200
    assert forwards(other) == {"wrong_owner": 1, "answered": 1}


async def test_an_owner_that_is_gone_is_looked_up_again(hub: Deployment, worker: Worker, other: Worker) -> None:
    other.stale_owner[hub.cluster.shard_of("a/b")] = "http://127.0.0.1:1"
    reply = await hub.ask(other, "POST", KEYS, key=ADMIN_KEY, json={"scopes": ["receive"]})
    assert reply.status == 201
    assert forwards(other) == {"failed": 1, "answered": 1}


async def test_a_moving_shard_is_waited_for(hub: Deployment, worker: Worker, other: Worker) -> None:
    hub.cluster.give("a/b", None)
    task = asyncio.create_task(hub.ask(other, "GET", KEYS, key=ADMIN_KEY))
    done, _ = await asyncio.wait([task], timeout=0.2)
    assert not done
    hub.cluster.give("a/b", worker)
    assert (await task).status == 200


async def test_a_shard_that_comes_to_the_asked_worker_is_served_there(
    hub: Deployment, worker: Worker, other: Worker
) -> None:
    hub.cluster.give("a/b", None)
    task = asyncio.create_task(hub.ask(other, "GET", KEYS, key=ADMIN_KEY))
    await asyncio.wait([task], timeout=0.2)
    hub.cluster.give("a/b", other)
    assert (await task).status == 200
    assert forwards(other) == {}


async def test_no_owner_is_503_after_two_seconds(hub: Deployment, worker: Worker, other: Worker) -> None:
    hub.cluster.give("a/b", None)
    began = time.monotonic()
    for asked in (other, worker):
        reply = await hub.ask(asked, "GET", KEYS, key=ADMIN_KEY)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert 4.0 <= time.monotonic() - began < 6.0


async def test_a_stopping_worker_does_not_wait(hub: Deployment, worker: Worker, other: Worker) -> None:
    hub.cluster.give("a/b", None)
    other.is_stopping = True
    async with asyncio.timeout(1):
        assert (await hub.ask(other, "GET", KEYS, key=ADMIN_KEY)).status == 503


async def test_the_owner_authenticates_again(hub: Deployment, worker: Worker, other: Worker) -> None:
    key = await hub.key(worker, "t")
    worker.keys_known = False
    assert (await hub.ask(other, "GET", "/v1/events", key=key)).status == 503
    assert forwards(other) == {"answered": 1}


# -- writes that fail --------------------------------------------------------------------------------------------------
async def test_fenced_while_writing_goes_to_the_new_owner(hub: Deployment, worker: Worker, other: Worker) -> None:
    worker.write_fails = Fenced
    task = asyncio.create_task(hub.ask(other, "POST", KEYS, key=ADMIN_KEY, json={"scopes": ["receive"]}))
    async with asyncio.timeout(5):
        while not forwards(other):
            await asyncio.sleep(0)
        hub.cluster.give("a/b", other)
        assert (await task).status == 201
    assert len(other.keys.of_tenant("a/b")) == 1


@pytest.mark.parametrize(
    ("fault", "words"), [(BrokerTrouble, "Kafka"), (OutcomeUnknown, "may have been"), (Fenced, "nothing was done")]
)
async def test_a_write_that_fails_says_what_is_known(
    hub: Deployment, worker: Worker, fault: type[Any], words: str
) -> None:
    worker.write_fails = fault
    reply = await hub.ask(worker, "POST", KEYS, key=ADMIN_KEY, json={"scopes": ["receive"]})
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert words in reply.body.decode()


async def test_an_owner_that_breaks_off_a_write_is_not_asked_twice(
    hub: Deployment, worker: Worker, other: Worker
) -> None:
    asked: list[str] = []

    async def breaks_off(request: web.Request) -> web.Response:
        asked.append(request.method)
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    application = web.Application()
    application.add_routes([web.route("*", "/{path:.*}", breaks_off)])
    async with TestServer(application) as server:
        shard, url = hub.cluster.shard_of("a/b"), str(server.make_url("")).rstrip("/")
        other.stale_owner[shard] = url
        reply = await hub.ask(other, "POST", KEYS, key=ADMIN_KEY, json={"scopes": ["receive"]})
        assert reply.status == 503
        assert b"may have been" in reply.body
        other.stale_owner[shard] = url
        assert (await hub.ask(other, "GET", KEYS, key=ADMIN_KEY)).status == 200
    assert asked[0] == "POST"
    assert set(asked[1:]) == {"GET"}


# -- the parts ---------------------------------------------------------------------------------------------------------
def test_headers_of_the_hop_stay_behind() -> None:
    headers = {
        "Authorization": "Bearer x",
        "Idempotency-Key": "k",
        "Connection": "close, X-Private",
        "X-Private": "1",
        "Host": "hub",
        "Content-Length": "3",
        "Transfer-Encoding": "chunked",
        HOP: "7",
        DEADLINE: "999999",
    }
    carried = carried_headers(headers, 5_000)
    assert carried == {"Authorization": "Bearer x", "Idempotency-Key": "k", HOP: "1", DEADLINE: "5000"}


async def test_peers_tell_sent_from_not_sent() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        match request.path:
            case "/slow":
                await asyncio.sleep(5)
            case "/huge":
                return web.Response(body=b"x" * (ANSWER_BYTES_MAX + 1))
            case "/moved":
                return web.Response(status=302, headers={"Location": "/slow"})
        return web.Response(text=request.raw_path)

    application = web.Application()
    application.add_routes([web.route("*", "/{path:.*}", handler)])
    peers = AiohttpPeers()
    async with TestServer(application) as server:
        base = str(server.make_url("")).rstrip("/")
        plain = await peers.send("GET", base + "/a%2Fb%20c?x=%2F&y=%3A", {}, b"", 5_000)
        assert isinstance(plain, Reply)
        assert plain.body == b"/a%2Fb%20c?x=%2F&y=%3A"
        moved = await peers.send("GET", base + "/moved", {}, b"", 5_000)
        assert isinstance(moved, Reply)
        assert moved.status == 302
        slow = await peers.send("GET", base + "/slow", {}, b"", 100)
        assert isinstance(slow, NoReply)
        assert slow.sent
        assert isinstance(await peers.send("GET", base + "/huge", {}, b"", 5_000), NoReply)
    refused = await peers.send("POST", "http://127.0.0.1:1/", {}, b"x", 5_000)
    assert isinstance(refused, NoReply)
    assert not refused.sent
    await peers.close()
