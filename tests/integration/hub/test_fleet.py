"""Two workers: they share, hand over, take over, forward. Facts keep coming all the while; none is lost."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from hub_app.dev.worker import Api, Worker
from hub_app.domain.ids import tenant_key
from hub_app.topics import partition_for
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment, facts
from tests.support.sink import RecordingSink, Reply, webhook_id
from tests.support.stream import Stream, repeats
from tests.support.waiting import holds, until

SHARDS = 8
TENANTS = [f"tenant-{i}" for i in range(12)]
WORKERS = 8  # attempts at once in each process
PATH, DEAD = "/fleet", "/fleet/dead"
ATTEMPTS = 4


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    return make_shared(
        shards=str(SHARDS), dispatch_timeout="1s", dispatch_connect_timeout="1s", backoff="300ms,600ms,900ms"
    )


@pytest.fixture(scope="module")
def first(hub: Deployment, sink: RecordingSink) -> Worker:
    made = hub.started()
    for number, tenant in enumerate(TENANTS):
        hub.api(made, tenant).subscribe(sink.url(f"{PATH}?{number}"))
    hub.api(made, TENANTS[0]).subscribe(sink.behave(DEAD, lambda request: Reply(500)))
    return made


@pytest.fixture(scope="module")
def second(hub: Deployment) -> Worker:
    return hub.worker()


@pytest.fixture
def pair(hub: Deployment, first: Worker, second: Worker) -> tuple[Worker, Worker]:
    """Both, running and settled, whatever the test before did to them."""
    for worker in (first, second):
        if not worker.alive():
            worker.start()
    for worker in (first, second):
        worker.wait_ready()
    hub.wait_owners(first, second)
    return first, second


def tried_as_often_as_allowed(sink: RecordingSink, stream: Stream) -> None:
    """Retries in progress keep their count over a rebalance (faults, 1)."""
    ids = [webhook_id(fact) for fact in stream.sent if fact.tenant == TENANTS[0]]
    wanted = dict.fromkeys(ids, ATTEMPTS)
    until(lambda: sink.counts(DEAD, ids) == wanted, lambda: Counter(sink.counts(DEAD, ids).values()))


def test_row_01_a_second_worker_joins_and_retries_keep_their_count(
    hub: Deployment, first: Worker, second: Worker, sink: RecordingSink
) -> None:
    hub.wait_owners(first)
    with Stream(hub, hub.source("join"), TENANTS, per_s=300) as stream:
        until(lambda: len(stream.sent) > 300, "load")
        second.start().wait_ready()
        hub.wait_owners(first, second)
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 300, "load goes on")
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) == 0
    tried_as_often_as_allowed(sink, stream)
    assert first.metric("hub_admitted_total") + second.metric("hub_admitted_total") == len(stream.sent)
    assert second.metric("hub_attempts_total") > 0


def test_any_worker_answers_any_request(hub: Deployment, pair: tuple[Worker, Worker]) -> None:
    owners = hub.owners("inbox")
    owner_of = {tenant: owners[partition_for(tenant_key(tenant), SHARDS)] for tenant in TENANTS}
    assert len(set(owner_of.values())) == 2
    for tenant, owner in owner_of.items():
        [other] = [worker for worker in pair if worker.url != owner]
        api = Api(other.url).tenant(tenant)
        made = api.subscribe("http://127.0.0.1:9/never", verify=False)
        assert [s["id"] for s in api.call("GET", "/v1/subscriptions")["subscriptions"]].count(made["id"]) == 1
        here = Api(owner, api.key)
        assert here.call("GET", f"/v1/subscriptions/{made['id']}")["id"] == made["id"]
        assert here.call("GET", "/v1/events?after=start") == api.call("GET", "/v1/events?after=start")
        api.call("DELETE", f"/v1/subscriptions/{made['id']}")
    assert sum(worker.metric("hub_http_forwards_total") for worker in pair) >= 4 * len(TENANTS)


def test_a_worker_that_stops_hands_over(hub: Deployment, pair: tuple[Worker, Worker], sink: RecordingSink) -> None:
    first, second = pair
    owners = hub.owners("inbox")
    quiet = next(t for t in map(str, range(100)) if owners[partition_for(tenant_key(t), SHARDS)] == first.url)
    with Stream(hub, hub.source("stop"), TENANTS, per_s=300) as stream, ThreadPoolExecutor() as beside:
        until(lambda: len(stream.sent) > 300, "load")
        polling = beside.submit(hub.api(second, quiet).call, "GET", "/v1/events?after=start&wait=25")
        holds(lambda: not polling.done(), "the poll waits", seconds=0.3)
        began = time.monotonic()
        assert first.stop() == 0
        polled = polling.result(30)
        assert (polled["events"], polled["next"]) == ([], "start")  # its shard moved: nothing lost, ask again
        assert time.monotonic() - began < 15
        hub.wait_owners(second)
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 300, "load goes on")
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) == 0
    tried_as_often_as_allowed(sink, stream)


def test_a_worker_that_is_killed_is_replaced(hub: Deployment, pair: tuple[Worker, Worker], sink: RecordingSink) -> None:
    first, second = pair
    with Stream(hub, hub.source("kill"), TENANTS, per_s=300) as stream:
        until(lambda: len(stream.sent) > 300, "load")
        second.kill()
        hub.wait_owners(first)
    sink.wait_for(PATH, stream.ids())
    # At most what it had in hand, and what it had not yet recorded.
    assert repeats(sink, PATH, stream.ids()) <= 10 * WORKERS


def test_a_worker_that_is_paused_lets_go(hub: Deployment, pair: tuple[Worker, Worker], sink: RecordingSink) -> None:
    """Its shards are another's by the time it goes on: it must not act as if they were its own."""
    first, second = pair
    with Stream(hub, hub.source("pause"), TENANTS, per_s=300) as stream:
        until(lambda: len(stream.sent) > 300, "load")
        os.kill(second.pid, signal.SIGSTOP)
        paused = time.monotonic()
        try:
            hub.wait_owners(first)
            until(lambda: time.monotonic() - paused > 15, "15 seconds", seconds=20)
            known = repeats(sink, PATH, stream.ids())
        finally:
            os.kill(second.pid, signal.SIGCONT)
        hub.wait_owners(first, second)
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) <= 10 * WORKERS, known
    holds(second.alive, second.log_tail, seconds=0.5)


def test_a_source_that_appears_while_a_static_worker_restarts_is_read(
    make_hub: MakeDeployment, sink: RecordingSink
) -> None:
    """It comes back to its old assignment, in which the source is nobody's."""
    hub = make_hub(instance_id="one", metadata_max_age="2s")
    worker = hub.started()
    path = f"/{hub.run_id}"
    hub.api(worker, "acme").subscribe(sink.url(path))
    before = facts(hub.source("before"), 1)
    hub.send(before)
    sink.wait_for(path, map(webhook_id, before), seconds=30)
    assert worker.stop() == 0
    made = facts(hub.source("meanwhile"), 20)
    hub.send(made)
    worker.start().wait_ready()
    sink.wait_for(path, map(webhook_id, made), seconds=8)
    until(lambda: worker.get("/readyz")[0] == 200, lambda: worker.get("/readyz"))
