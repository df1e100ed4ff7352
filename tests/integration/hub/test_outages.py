"""The broker is away: at the start, for a moment, for a while (faults, 8). The worker lives, says why, goes on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime

import pytest

from hub_app.dev.kafka import Cluster
from hub_app.dev.worker import Worker
from tests.support.background import Background
from tests.support.deployment import SHARDS, Deployment, facts
from tests.support.sink import RecordingSink, webhook_id
from tests.support.stream import Stream, repeats
from tests.support.waiting import holds, until

TENANTS = [f"tenant-{i}" for i in range(6)]
PATH = "/outages"
OUTAGE_S = 15.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Kafka of this module's own, to stop and kill."""
    made = Cluster(tmp_path_factory.mktemp("kafka") / "own")
    yield made.start()
    made.wipe()


@pytest.fixture(scope="module")
def own(cluster: Cluster, background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(background, cluster.bootstrap, tmp_path_factory.mktemp("hub"))
    yield made
    cluster.start()  # its topics cannot be removed otherwise
    made.close()


@pytest.fixture(scope="module")
def only(own: Deployment) -> Worker:
    return own.worker()


def unready(worker: Worker) -> dict[str, str]:
    """What /readyz gives as reasons, if it answers 503."""
    status, text = worker.get("/readyz")
    return {reason["name"]: reason["detail"] for reason in json.loads(text)["reasons"]} if status == 503 else {}


def test_a_worker_waits_for_its_broker_and_says_so(cluster: Cluster, own: Deployment, only: Worker) -> None:
    cluster.stop()
    only.start()
    until(lambda: "broker" in unready(only), only.log_tail)
    assert own.bootstrap in unready(only)["broker"]
    assert only.get("/healthz")[0] == 200

    def told() -> list[datetime]:
        found = re.findall(
            r"^([0-9:.]+) warning worker +broker_unreachable .*", only.log_path.read_text(), re.MULTILINE
        )
        return [datetime.strptime(text, "%H:%M:%S.%f") for text in found]  # noqa: DTZ007  # only their distance counts

    until(lambda: len(told()) == 2, only.log_tail)
    assert 9.5 <= (told()[1] - told()[0]).total_seconds() % 86_400 <= 16
    cluster.start()
    only.wait_ready()
    assert unready(only) == {}


def test_row_08_a_broker_that_restarts_costs_nothing(
    cluster: Cluster, own: Deployment, only: Worker, sink: RecordingSink
) -> None:
    for tenant in TENANTS:
        own.api(only, tenant).subscribe(sink.url(PATH))
    with Stream(own, own.source("restart"), TENANTS, per_s=200) as stream:
        until(lambda: len(stream.sent) > 200, "load")
        cluster.restart()
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 200, "load goes on")
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) <= 50
    only.wait_ready()


def test_row_09_a_log_that_is_made_anew_does_not_turn_time_back(
    cluster: Cluster, own: Deployment, only: Worker, sink: RecordingSink
) -> None:
    """`facts` is deleted and created under the running worker: offsets start at 0, seqs go on (faults, 9)."""
    source, tenant = own.source("anew"), "anew"
    api = own.api(only, tenant)
    api.subscribe(sink.url(f"{PATH}/anew"))
    old, new = facts(source, 200, tenants=[tenant]), facts(source, 200, tenants=[tenant], start=200)
    own.send(old)
    sink.wait_for(f"{PATH}/anew", map(webhook_id, old))
    before = api.call("GET", "/v1/events?after=start&limit=1000")["events"]
    assert {event["id"] for event in before} == {fact.id for fact in old}
    topic = f"{own.prefix}facts"
    own.run(own.delete_topic(topic))
    own.run(own.make_topic(topic, {"message.timestamp.type": "LogAppendTime"}, partitions=SHARDS))
    own.send(new)
    sink.wait_for(f"{PATH}/anew", map(webhook_id, new), seconds=60)
    assert repeats(sink, f"{PATH}/anew", [webhook_id(fact) for fact in [*old, *new]]) == 0
    until(lambda: unready(only) == {}, lambda: unready(only))
    with pytest.raises(RuntimeError, match="410"):  # never a silent skip
        api.call("GET", f"/v1/events?after={before[0]['seq']}")
    after = api.call("GET", "/v1/events?limit=1000")["events"]
    assert {event["id"] for event in after} == {fact.id for fact in new}
    assert min(event["seq"] for event in after) > max(event["seq"] for event in before)


def test_row_08_a_broker_that_is_away_for_long_costs_nothing(
    cluster: Cluster, own: Deployment, only: Worker, sink: RecordingSink
) -> None:
    """Killed, at that. The worker says that it is not ready, and comes back by itself."""
    pid = only.pid
    with Stream(own, own.source("outage"), TENANTS, per_s=200) as stream:
        until(lambda: len(stream.sent) > 200, "load")
        cluster.kill()
        until(lambda: unready(only), "says that it is not ready", seconds=OUTAGE_S)
        holds(only.alive, only.log_tail, seconds=OUTAGE_S)
        cluster.start()
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 200, "load goes on", seconds=60)
    sink.wait_for(PATH, stream.ids(), seconds=60)
    assert repeats(sink, PATH, stream.ids()) <= 50
    only.wait_ready()
    assert only.pid == pid
    assert only.stop() == 0
