"""Queues on a real Kafka, through real workers, with the public clients of Event Grid."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from azure.core.messaging import CloudEvent

from hub_app.dev.worker import Worker
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment, facts, header
from tests.support.event_grid import consumer, publisher, queue
from tests.support.queue_storm import Storm
from tests.support.waiting import until

KILLS = 3
SHORT = {"receiveLockDurationInSeconds": 1, "maxDeliveryCount": 2}


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    return make_shared(queue_lock_min="1s")


@pytest.fixture(scope="module")
def worker(hub: Deployment) -> Worker:
    return hub.started()


class Caller:
    """Calls a client's methods, whichever kind it is, one after the other."""

    def __init__(self, hub: Deployment, *, aio: bool) -> None:
        self.aio, self._hub = aio, hub

    def __call__(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if not self.aio:
            return method(*arguments, **named)

        async def call() -> Any:
            return await method(*arguments, **named)

        return self._hub.run(call())

    def make(self, make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Clients of the aio kind are made where they live."""

        async def made() -> Any:
            return make(*arguments, aio=True, **named)

        return self._hub.run(made()) if self.aio else make(*arguments, **named)


@pytest.fixture(params=["sync", "aio"])
def call(request: pytest.FixtureRequest, hub: Deployment) -> Caller:
    return Caller(hub, aio=request.param == "aio")


def receive(call: Caller, client: Any, count: int) -> list[Any]:
    got: list[Any] = []
    ends = time.monotonic() + 40
    while len(got) < count and time.monotonic() < ends:
        got += call(client.receive, max_events=count - len(got), max_wait_time=10)
    assert len(got) == count
    return got


def test_every_operation_and_the_dead(hub: Deployment, worker: Worker, call: Caller) -> None:
    tenant = f"all-{call.aio}"
    api = hub.api(worker, tenant)
    made = api.call("POST", "/v1/subscriptions", queue("orders", "all", **SHORT))
    sender = call.make(publisher, worker.url, tenant, api.key, "orders")
    receiver = call.make(consumer, worker.url, tenant, api.key, "orders", "all")
    call(sender.send, [CloudEvent("/shop", "made", id=f"e{i}", data={"n": i}) for i in range(4)])
    got = receive(call, receiver, 4)
    assert [one.event.data for one in got] == [{"n": i} for i in range(4)]
    a, b, c, d = [one.broker_properties.lock_token for one in got]
    assert call(receiver.acknowledge, lock_tokens=[a]).succeeded_lock_tokens == [a]
    assert call(receiver.reject, lock_tokens=[b]).succeeded_lock_tokens == [b]
    assert call(receiver.release, lock_tokens=[c]).succeeded_lock_tokens == [c]
    assert call(receiver.renew_locks, lock_tokens=[d]).succeeded_lock_tokens == [d]
    [released] = receive(call, receiver, 1)
    assert (released.event.id, released.broker_properties.delivery_count) == ("e2", 2)
    token = released.broker_properties.lock_token
    assert call(receiver.acknowledge, lock_tokens=[token]).succeeded_lock_tokens == [token]
    [expired] = receive(call, receiver, 1)
    assert (expired.event.id, expired.broker_properties.delivery_count) == ("e3", 2)
    lost = call(receiver.acknowledge, lock_tokens=[a, d, "x"])
    assert [one.error.code for one in lost.failed_lock_tokens] == ["TokenLost", "TokenLost", "BadToken"]
    dead = hub.wait_records("dlq", 2, ("hub-subscription", made["id"]))
    assert sorted((header(one, "hub-reason"), header(one, "ce-id"), one.value) for one in dead) == [
        ("MaxDeliveryAttemptsExceeded", "e3", b'{"n": 3}'),
        ("Rejected", "e1", b'{"n": 1}'),
    ]
    call(sender.close), call(receiver.close)


def test_the_dead_are_redriven_over_http(hub: Deployment, worker: Worker) -> None:
    """One, then the rest; acknowledged they are gone."""
    tenant, call = "redrive", Caller(hub, aio=False)
    api = hub.api(worker, tenant)
    made = api.call("POST", "/v1/subscriptions", queue("orders", "all"))
    sender = publisher(worker.url, tenant, api.key, "orders")
    receiver = consumer(worker.url, tenant, api.key, "orders", "all")
    sender.send([CloudEvent("/shop", "made", id=f"e{i}", data={"n": i}) for i in range(3)])
    got = receive(call, receiver, 3)
    receiver.reject(lock_tokens=[one.broker_properties.lock_token for one in got])

    def dead() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = api.call("GET", "/v1/dead-letters", None)["dead_letters"]
        return found

    letters = until(lambda: dead() if len(dead()) == 3 else None, dead)
    assert letters is not None
    assert {row["reason"] for row in letters} == {"Rejected"}
    api.call("POST", f"/v1/dead-letters/{letters[0]['id']}/redrive", None)
    [again] = receive(call, receiver, 1)
    assert (again.event.id, again.broker_properties.delivery_count) == (letters[0]["event_id"], 1)
    receiver.acknowledge(lock_tokens=[again.broker_properties.lock_token])
    begun = api.call("POST", "/v1/dead-letters/redrive", {"subscription": made["id"]})

    def over() -> bool:
        return bool(api.call("GET", f"/v1/operations/{begun['id']}", None)["state"] == "done")

    until(over, begun)
    assert dead() == []
    rest = receive(call, receiver, 2)
    assert {one.event.id for one in rest} == {row["event_id"] for row in letters[1:]}
    receiver.acknowledge(lock_tokens=[one.broker_properties.lock_token for one in rest])
    assert receiver.receive(max_events=10, max_wait_time=10) == []


def test_old_events_die_unread(hub: Deployment, worker: Worker) -> None:
    api = hub.api(worker, "old")
    made = api.call("POST", "/v1/subscriptions", queue("o", "n", eventTimeToLive="PT1S", **SHORT))
    with publisher(worker.url, "old", api.key, "o") as sender:
        sender.send([CloudEvent("/x", "t", id=f"e{i}") for i in range(3)])
    dead = hub.wait_records("dlq", 3, ("hub-subscription", made["id"]))
    assert {header(one, "hub-reason") for one in dead} == {"TimeToLiveExceeded"}


def test_facts_from_kafka_wait_in_a_queue_of_their_source(hub: Deployment, worker: Worker) -> None:
    source, api = hub.source("shop"), hub.api(worker, "acme")
    api.call("POST", "/v1/subscriptions", queue(source, "mine"))
    made = facts(source, 30)
    hub.send(made)
    with consumer(worker.url, "acme", api.key, source, "mine") as receiver:
        got: list[Any] = []
        while len(got) < 30:
            got += receiver.receive(max_events=100, max_wait_time=10)
        assert {one.event.id for one in got} == {fact.id for fact in made}
        places = [one.broker_properties["sequenceNumber"] for one in got]
        assert places == sorted(places)
        tokens = [one.broker_properties.lock_token for one in got]
        assert len(receiver.acknowledge(lock_tokens=tokens).succeeded_lock_tokens) == 30


def test_publishing_twice_is_publishing_once(hub: Deployment, worker: Worker) -> None:
    api = hub.api(worker, "twice")
    api.call("POST", "/v1/subscriptions", queue("o", "n"))
    with (
        publisher(worker.url, "twice", api.key, "o") as sender,
        consumer(worker.url, "twice", api.key, "o", "n") as receiver,
    ):
        for _ in range(3):
            sender.send([CloudEvent("/x", "t", id=f"e{i}", data=i) for i in range(5)])
        sender.send(CloudEvent("/x", "t", id="last"))
        got: list[Any] = []
        while "last" not in [one.event.id for one in got]:
            got += receiver.receive(max_events=100, max_wait_time=10)
    assert [one.event.id for one in got] == ["e0", "e1", "e2", "e3", "e4", "last"]


def test_any_worker_answers_and_polls_outlive_a_rebalance(make_hub: MakeDeployment) -> None:
    hub = make_hub(queue_lock_min="1s")
    first = hub.started()
    tenants = [f"tenant-{i}" for i in range(6)]
    keys = {tenant: hub.api(first, tenant) for tenant in tenants}
    for tenant in tenants:
        keys[tenant].call("POST", "/v1/subscriptions", queue("o", "n"))
    answers: list[Any] = []
    stop = threading.Event()

    def poll(tenant: str) -> None:
        with consumer(first.url, tenant, keys[tenant].key, "o", "n", retry_total=0) as receiver:
            while not stop.is_set():
                try:
                    got = receiver.receive(max_events=10, max_wait_time=10)
                    answers.append((tenant, [one.event.id for one in got]))
                    if got:
                        receiver.acknowledge(lock_tokens=[one.broker_properties.lock_token for one in got])
                except Exception as error:
                    answers.append((tenant, getattr(error, "status_code", None)))

    threads = [threading.Thread(target=poll, args=(tenant,), daemon=True) for tenant in tenants]
    for thread in threads:
        thread.start()
    second = hub.started()
    hub.wait_owners(first, second)
    for tenant in tenants:
        with publisher(second.url, tenant, keys[tenant].key, "o") as sender:
            sender.send([CloudEvent("/x", "t", id=f"{tenant}-{i}") for i in range(5)])

    def received() -> set[str]:
        return {id for _, ids in list(answers) if isinstance(ids, list) for id in ids}

    until(lambda: len(received()) == 30, received, seconds=60)
    stop.set()
    for thread in threads:
        thread.join(15)
    # 503 is an answer before anything was locked; nothing else went wrong.
    assert {answer for _, answer in answers if not isinstance(answer, list)} <= {503}


def test_kills_during_publish_receive_and_acknowledge(make_hub: MakeDeployment) -> None:
    hub = make_hub(queue_lock_min="1s", instance_id="one", pull_rate="100000", pull_burst="100000")
    worker = hub.started()
    api = hub.api(worker, "acme")
    sink = {"receiveLockDurationInSeconds": 1, "maxDeliveryCount": 10}
    api.call("POST", "/v1/subscriptions", queue("orders", "storm", **sink))
    storm = Storm(worker.url, "acme", api.key, "orders", "storm", total=2_000)
    storm.pause_s = 0.05
    draw = random.Random(KILLS)
    storm.start()
    for number in range(KILLS):
        until(
            lambda want=(number + 1) * 300: len(storm.acknowledged) >= want, lambda: len(storm.acknowledged), seconds=90
        )
        time.sleep(draw.uniform(0, 0.2))
        worker.kill()
        worker.start().wait_ready()
    assert storm.finish(120)
    assert (storm.lost, storm.repeated) == (set(), [])
