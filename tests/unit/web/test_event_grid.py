"""The Event Grid data plane, asked by its public clients and by hand; the tables are real, Kafka is a list."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import io
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceNotFoundError
from azure.core.messaging import CloudEvent

from hub_app.adapters.clock import SystemClock
from hub_app.domain.queue import Operation
from tests.fakes.queues import QueueWorld, ids
from tests.fakes.workers import Deployment, Reply, Worker
from tests.support.event_grid import consumer, publisher, queue

TENANT, TOPIC, NAME = "acme/ü", "a b/ñ:x", "s:1/é"
VERSION = "api-version=2024-06-01"
QUEUE_PATH = "/t/acme%2F%C3%BC/topics/a%20b%2F%C3%B1%3Ax/eventsubscriptions/s%3A1%2F%C3%A9"
TOPIC_PATH = "/t/acme%2F%C3%BC/topics/a%20b%2F%C3%B1%3Ax"


class Stage(NamedTuple):
    hub: Deployment
    worker: Worker
    world: QueueWorld
    key: str

    async def ask(self, path: str, json: object = None, *, method: str = "POST", **more: Any) -> Reply:
        more.setdefault("key", self.key)
        return await self.hub.ask(self.worker, method, path, json=json, **more)

    async def settle(self, operation: str, json: object, query: str = "") -> Reply:
        return await self.ask(f"{QUEUE_PATH}:{operation}?{VERSION}{query}", json)

    def consumer(self, *, aio: bool, **options: Any) -> Any:
        return consumer(self.worker.url, TENANT, self.key, TOPIC, NAME, aio=aio, retry_total=0, **options)

    def publisher(self, *, aio: bool) -> Any:
        return publisher(self.worker.url, TENANT, self.key, TOPIC, aio=aio, retry_total=0)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    hub = Deployment(shards=1)
    worker = await hub.worker()
    world = QueueWorld(tmp_path, SystemClock(), subscriptions=worker.subscriptions, keyring=worker.deps.keyring)
    await world.start()
    worker.queue_world = world
    pumping = asyncio.create_task(world.pump_for_ever())
    key = await hub.key(worker, TENANT)
    made = await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=queue(TOPIC, NAME))
    assert made.status == 201, made
    yield Stage(hub, worker, world, key)
    pumping.cancel()
    await asyncio.gather(pumping, return_exceptions=True)
    await hub.close()
    await world.stop()


@pytest.fixture(params=["sync", "aio"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """`await call(client.receive, max_events=1)`, whichever kind of client it is."""

    async def do(method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if request.param == "aio":
            return await method(*arguments, **named)
        return await asyncio.to_thread(method, *arguments, **named)

    do.aio = request.param == "aio"  # type: ignore[attr-defined]
    return do


@contextlib.asynccontextmanager
async def closing(client: Any, call: Any) -> AsyncIterator[Any]:
    try:
        yield client
    finally:
        await call(client.close)


def event(id: str = "1", **more: Any) -> CloudEvent[Any]:
    return CloudEvent("/shop", "com.example.made", id=id, **{"data": {"n": 1.0}, **more})


# -- the clients -------------------------------------------------------------------------------------------------------
async def test_every_operation(stage: Stage, call: Any) -> None:
    async with (
        closing(stage.publisher(aio=call.aio), call) as sender,
        closing(stage.consumer(aio=call.aio), call) as receiver,
    ):
        await call(sender.send, [event(f"e{i}") for i in range(5)])
        got = await _receive(receiver, call, 5)
        assert [one.event.id for one in got] == [f"e{i}" for i in range(5)]
        assert all(one.broker_properties.delivery_count == 1 for one in got)
        a, b, c, d, e = [one.broker_properties.lock_token for one in got]
        done = await call(receiver.acknowledge, lock_tokens=[a])
        assert (done.succeeded_lock_tokens, done.failed_lock_tokens) == ([a], [])
        assert (await call(receiver.renew_locks, lock_tokens=[b])).succeeded_lock_tokens == [b]
        assert (await call(receiver.reject, lock_tokens=[c])).succeeded_lock_tokens == [c]
        assert (await call(receiver.release, lock_tokens=[d])).succeeded_lock_tokens == [d]
        assert (await call(receiver.release, lock_tokens=[e], release_delay=10)).succeeded_lock_tokens == [e]
        [again] = await _receive(receiver, call, 1)
        assert (again.event.id, again.broker_properties.delivery_count) == ("e3", 2)
        for method in (receiver.acknowledge, receiver.release, receiver.reject, receiver.renew_locks):
            lost = await call(method, lock_tokens=[a, "nonsense", d])
            assert lost.succeeded_lock_tokens == []
            assert [(f.lock_token, f.error.code) for f in lost.failed_lock_tokens] == [
                (a, "TokenLost"),
                ("nonsense", "BadToken"),
                (d, "TokenLost"),
            ]
            assert lost.failed_lock_tokens[0].error.message == "Token has expired."
    assert stage.world.dead()[0][:2] == ("Rejected", "e2")


async def _receive(receiver: Any, call: Any, count: int) -> list[Any]:
    got: list[Any] = []
    while len(got) < count:
        got += await call(receiver.receive, max_events=count - len(got), max_wait_time=10)
    return got


@pytest.mark.parametrize(
    "sent",
    [
        event(data={"a": [1, 2.5, None], "b": "é"}),
        event(data="text"),
        event(data=b"\x00\xffbytes"),
        event(data="plain", datacontenttype="text/plain"),
        event(data=None),
        event(time=None, data=1),
        event(time=datetime.datetime(2026, 1, 2, 3, 4, 5, 123456, tzinfo=datetime.UTC)),
        event(subject="orders/1", dataschema="urn:x", extensions={"partner": "x", "n1": "5"}),
        event(data=[]),
    ],
    ids=lambda one: type(one.data).__name__,
)
async def test_an_event_comes_back_as_it_was(stage: Stage, call: Any, sent: CloudEvent[Any]) -> None:
    async with (
        closing(stage.publisher(aio=call.aio), call) as sender,
        closing(stage.consumer(aio=call.aio), call) as receiver,
    ):
        await call(sender.send, sent)
        [got] = await _receive(receiver, call, 1)
    for name in ("source", "type", "id", "time", "subject", "dataschema", "datacontenttype", "data", "extensions"):
        assert getattr(got.event, name) == getattr(sent, name), name


@pytest.mark.parametrize(
    ("method", "arguments", "named"),
    [
        ("receive", {"max_events": 0}, "maxEvents must be a whole number from 1 to 100."),
        ("receive", {"max_events": 101}, "maxEvents must be a whole number from 1 to 100."),
        ("receive", {"max_wait_time": 9}, "maxWaitTime must be a whole number from 10 to 120."),
        ("receive", {"max_wait_time": 121}, "maxWaitTime must be a whole number from 10 to 120."),
        (
            "release",
            {"lock_tokens": [], "release_delay": 5},
            "releaseDelayInSeconds must be one of 0, 10, 60, 600, 3600.",
        ),
        ("acknowledge", {"lock_tokens": ["x"] * 1001}, "lockTokens must be a list of at most 1000 tokens."),
    ],
)
async def test_ranges(stage: Stage, call: Any, method: str, arguments: dict[str, Any], named: str) -> None:
    async with closing(stage.consumer(aio=call.aio), call) as receiver:
        with pytest.raises(HttpResponseError) as caught:
            await call(getattr(receiver, method), **arguments)
    assert caught.value.status_code == 400
    assert caught.value.error.code == "ArgumentInvalid"
    assert named in str(caught.value)


async def test_strangers_and_nothing(stage: Stage, call: Any) -> None:
    bad_key = consumer(stage.worker.url, TENANT, "shk_aaaa_" + "x" * 32, TOPIC, NAME, aio=call.aio, retry_total=0)
    other = consumer(stage.worker.url, TENANT, stage.key, TOPIC, "none", aio=call.aio, retry_total=0)
    topic = consumer(stage.worker.url, TENANT, stage.key, "none", NAME, aio=call.aio, retry_total=0)
    tenant = consumer(stage.worker.url, "globex", stage.key, TOPIC, NAME, aio=call.aio, retry_total=0)
    for client, error, text in (
        (bad_key, ClientAuthenticationError, "Unauthorized"),
        (other, ResourceNotFoundError, "The event subscription does not exist."),
        (topic, ResourceNotFoundError, "The topic does not exist."),
        (tenant, ResourceNotFoundError, "The tenant does not exist."),
    ):
        async with closing(client, call):
            with pytest.raises(error, match=text):
                await call(client.receive, max_events=1, max_wait_time=10)


async def test_what_the_client_sends_unfit_is_refused_whole(stage: Stage, call: Any) -> None:
    async with closing(stage.publisher(aio=call.aio), call) as sender:
        for events in (
            [event("a"), {"id": "b", "source": "x"}],
            [{"specversion": "1.0", "type": "t", "source": "x", "id": "c", "data": 1, "data_base64": "MQ=="}],
            [event("d", data=float("nan"))],
            [CloudEvent("", "t")],
        ):
            with pytest.raises((HttpResponseError, ValueError, AttributeError, TypeError)):
                await call(sender.send, events)
    assert stage.world.log.records("hub.facts") == []


async def test_the_single_event_content_type_with_the_batch_form(stage: Stage, call: Any) -> None:
    async with closing(stage.publisher(aio=call.aio), call) as sender:
        await call(sender.send, event("x"), content_type="application/cloudevents+json; charset=utf-8")
    assert len(stage.world.log.records("hub.facts")) == 1


# -- by hand -----------------------------------------------------------------------------------------------------------
EVENT = {"specversion": "1.0", "id": "1", "source": "/x", "type": "t"}


async def test_publish_by_hand_in_every_mode(stage: Stage) -> None:
    path = f"{TOPIC_PATH}:publish?API-Version=2023-11-01"
    structured = {"Content-Type": "application/cloudevents+json"}
    batched = {"Content-Type": "application/cloudevents-batch+json"}
    binary = {"ce-specversion": "1.0", "ce-id": "b", "ce-source": "/x", "ce-type": "t", "Content-Type": "text/plain"}
    for headers, data in (
        (structured, b'{"specversion":"1.0","id":"s","source":"/x","type":"t","data":{"a":1.0 }}'),
        (batched, b'[{"specversion":"1.0","id":"t","source":"/x","type":"t"}]'),
        (binary, b"hello"),
    ):
        reply = await stage.ask(path, data=data, headers=headers)
        assert (reply.status, reply.json) == (200, {}), reply
    facts = stage.world.log.records("hub.facts")
    assert [record.value for record in facts] == [b'{"a":1.0 }', b"", b"hello"]
    assert {dict(record.headers)["hub-topic"].decode() for record in facts} == {TOPIC}


async def test_one_request_is_one_batch_of_records(stage: Stage) -> None:
    stage.world.log.parts.clear()
    events = [EVENT | {"id": str(i), "data": "x" * 900} for i in range(1000)]
    reply = await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", events)
    assert reply.status == 200, reply
    assert stage.world.log.parts[0] == 1


@pytest.mark.parametrize(
    ("headers", "data", "status", "code"),
    [
        ({"Content-Type": "text/plain"}, b"{}", 415, "UnsupportedMediaType"),
        ({"Content-Type": "application/json"}, b"[]", 400, "BadRequest"),
        ({"Content-Type": "application/json"}, b"{}", 400, "BadRequest"),
        ({"Content-Type": "application/json"}, b"", 400, "BadRequest"),
        ({"Content-Type": "application/json"}, b"[" + b" " * (1 << 20) + b"]", 413, "PayloadTooLarge"),
        ({"ce-specversion": "1.0"}, b"", 400, "BadRequest"),
    ],
)
async def test_unfit_publishes(stage: Stage, headers: dict[str, str], data: bytes, status: int, code: str) -> None:
    reply = await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", data=io.BytesIO(data), headers=headers)
    assert (reply.status, reply.json["error"]["code"], reply.json["error"]["details"]) == (status, code, [])  # type: ignore[index]
    assert stage.world.log.records("hub.facts") == []


async def test_a_batch_too_large_with_its_attributes(stage: Stage) -> None:
    event = EVENT | {f"e{i}x": "" + "y" for i in range(40)}
    reply = await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", [event | {"id": str(i)} for i in range(1000)])
    assert reply.status in (200, 413)
    assert len(stage.world.log.records("hub.facts")) == (1000 if reply.status == 200 else 0)


@pytest.mark.parametrize(
    ("path", "status", "code", "text"),
    [
        (f"{QUEUE_PATH}:receive", 400, "BadRequest", "2023-11-01, 2024-06-01"),
        (f"{QUEUE_PATH}:receive?api-version=2022-01-01", 400, "BadRequest", "2023-11-01, 2024-06-01"),
        (f"{QUEUE_PATH}:receive?{VERSION}&MAXEVENTS=x", 400, "ArgumentInvalid", "1 to 100"),
        (f"{QUEUE_PATH}:eat?{VERSION}", 404, "NotFound", "operation"),
        (f"{QUEUE_PATH}?{VERSION}", 404, "NotFound", ""),
        (f"/t/acme%2F%C3%BC/queues/x:receive?{VERSION}", 404, "NotFound", "route"),
        (f"/t/acme%2F%C3%BC/topics/x/other/y:receive?{VERSION}", 404, "NotFound", "route"),
        (f"/t/acme%2F%C3%BC/topics/%zz:publish?{VERSION}", 404, "NotFound", "topic"),
        (f"/t/%FF/topics/x:publish?{VERSION}", 404, "NotFound", "tenant"),
        (f"/t/acme%2F%C3%BC/topics/{'x' * 257}:publish?{VERSION}", 404, "NotFound", "topic"),
        (f"/t/acme%2F%C3%BC/topics/a%1Fb:publish?{VERSION}", 404, "NotFound", "topic"),
    ],
)
async def test_paths_and_versions(stage: Stage, path: str, status: int, code: str, text: str) -> None:
    reply = await stage.ask(path, {})
    assert isinstance(reply.json, dict)
    assert (reply.status, reply.json["error"]["code"]) == (status, code)
    assert text in reply.json["error"]["message"]
    assert "Retry-After" not in reply.headers


async def test_only_post(stage: Stage) -> None:
    reply = await stage.ask(f"{QUEUE_PATH}:receive?{VERSION}", method="GET")
    assert (reply.status, reply.headers["Allow"]) == (405, "POST")


async def test_scopes(stage: Stage) -> None:
    receives = await stage.hub.key(stage.worker, TENANT, "receive")
    publishes = await stage.hub.key(stage.worker, TENANT, "publish")
    assert (await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", EVENT, key=receives)).status == 403
    assert (await stage.ask(f"{QUEUE_PATH}:acknowledge?{VERSION}", {"lockTokens": []}, key=publishes)).status == 403
    headers = {"Authorization": f"SharedAccessKey {publishes}"}
    assert (await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", EVENT, key=None, headers=headers)).status == 200
    for authorization in ("SharedAccessKey", "SharedAccessKey ", "Basic x", ""):
        reply = await stage.ask(
            f"{TOPIC_PATH}:publish?{VERSION}", EVENT, key=None, headers={"Authorization": authorization}
        )
        assert (reply.status, reply.json["error"]["code"]) == (401, "Unauthorized")  # type: ignore[index]


@pytest.mark.parametrize(
    "body", [None, [], {}, {"lockTokens": "x"}, {"lockTokens": None}, {"lockTokens": [1]}, {"locktokens": []}]
)
@pytest.mark.parametrize("operation", ["acknowledge", "release", "reject", "renewLock"])
async def test_lock_tokens_are_a_list_of_texts(stage: Stage, operation: str, body: object) -> None:
    reply = await stage.settle(operation, body)
    assert reply.status in (400, 415)
    assert isinstance(reply.json, dict) and set(reply.json["error"]) == {"code", "message", "details"}


@pytest.mark.parametrize("operation", ["acknowledge", "release", "reject", "renewLock"])
async def test_both_lists_are_always_there(stage: Stage, operation: str) -> None:
    reply = await stage.settle(operation, {"lockTokens": []})
    assert (reply.status, reply.json) == (200, {"succeededLockTokens": [], "failedLockTokens": []})


@pytest.mark.parametrize("delay", [0, 10, 60, 600, 3600])
async def test_every_release_delay(stage: Stage, delay: int) -> None:
    reply = await stage.settle("release", {"lockTokens": []}, f"&releaseDelayInSeconds={delay}")
    assert reply.status == 200


async def test_a_waiting_client_that_leaves_burns_no_delivery(stage: Stage) -> None:
    """Also one that asked a worker which does not own the shard."""
    other = await stage.hub.worker()
    for worker in (stage.worker, other):
        stage.hub.cluster.owner[0] = stage.worker
        key = stage.key
        asking = asyncio.create_task(
            stage.hub.ask(worker, "POST", f"{QUEUE_PATH}:receive?{VERSION}&maxWaitTime=60", key=key)
        )
        await asyncio.sleep(0.15)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await asyncio.sleep(0.1)
        await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", EVENT | {"id": worker.url})
        [queue_of] = stage.worker.subscriptions.queues(TENANT).values()
        [got] = await stage.world.queues.receive(0, queue_of, most=1, wait_ms=3_000, connected=lambda: True)
        assert got.row.deliveries == 1
        assert await stage.world.settle(queue_of, Operation.ACKNOWLEDGE, [got.token]) == [None]
        assert ids([got]) == [worker.url]


async def test_a_worker_that_does_not_own_the_shard_carries(stage: Stage) -> None:
    other = await stage.hub.worker()
    reply = await stage.hub.ask(other, "POST", f"{TOPIC_PATH}:publish?{VERSION}", key=stage.key, json=EVENT)
    assert reply.status == 200 or other.queue_world is None
    await stage.ask(f"{TOPIC_PATH}:publish?{VERSION}", EVENT)
    got = await stage.hub.ask(other, "POST", f"{QUEUE_PATH}:receive?{VERSION}", key=stage.key)
    assert isinstance(got.json, dict)
    [one] = got.json["value"]
    assert set(one["brokerProperties"]) == {"lockToken", "deliveryCount", "sequenceNumber", "lockedUntil"}
    body = {"lockTokens": [one["brokerProperties"]["lockToken"]]}
    done = await stage.hub.ask(other, "POST", f"{QUEUE_PATH}:acknowledge?{VERSION}", key=stage.key, json=body)
    assert done.json == {"succeededLockTokens": body["lockTokens"], "failedLockTokens": []}


async def test_polls_end_early_and_empty(stage: Stage) -> None:
    for end in (stage.world.queues.end_polls, lambda: stage.world.queues.close(0)):
        asking = asyncio.create_task(stage.ask(f"{QUEUE_PATH}:receive?{VERSION}&maxWaitTime=60"))
        await asyncio.sleep(0.1)
        end()
        reply = await asking
        assert (reply.status, reply.json) == (200, {"value": []})


async def test_nobody_owns_the_shard(stage: Stage) -> None:
    stage.hub.cluster.give(TENANT, None)
    reply = await stage.ask(f"{QUEUE_PATH}:receive?{VERSION}")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert reply.json["error"]["code"] == "ServiceUnavailable"  # type: ignore[index]


async def test_rate_caps(stage: Stage, tmp_path: Path) -> None:
    capped = await stage.hub.worker(PULL_RATE="1", PULL_BURST="1")
    capped.queue_world, stage.hub.cluster.owner[0] = stage.world, capped
    statuses = [
        (await stage.hub.ask(capped, "POST", f"{TOPIC_PATH}:publish?{VERSION}", key=stage.key, json=EVENT)).status
        for _ in range(2)
    ]
    assert statuses == [200, 429]


async def test_a_second_queue_of_the_same_name_is_refused(stage: Stage) -> None:
    reply = await stage.ask("/v1/subscriptions", queue(TOPIC, NAME))
    assert (reply.status, reply.json["type"]) == (409, "urn:streaming-hub:problem:queue-exists")  # type: ignore[index]
    assert (await stage.ask("/v1/subscriptions", queue(TOPIC, "another"))).status == 201
