"""A Kafka of three nodes, parts of which fail while facts keep coming: leaders and coordinators die, partitions have no
leader, nodes sleep, a topic has a limit, all restart in turn. Nothing is lost; readiness says what is the matter.

One cluster, one worker; each test leaves both as it found them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from hub_app.dev.facts import topic_of
from hub_app.dev.kafka import Cluster
from hub_app.dev.worker import Worker
from tests.support.background import Background
from tests.support.deployment import Deployment, facts, header
from tests.support.sink import RecordingSink, Reply, webhook_id
from tests.support.stream import Stream, repeats
from tests.support.waiting import holds, until

TENANTS = [f"tenant-{i}" for i in range(6)]
PATH = "/broker-faults"
NODES = (1, 2, 3)
SLEEP_S = 4.0


class Place:
    """Where the cluster has things now."""

    def __init__(self, cluster: Cluster, hub: Deployment) -> None:
        self._cluster, self._hub = cluster, hub

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; -1 for none."""

        async def look(admin: AIOKafkaAdminClient) -> int:
            [described] = await admin.describe_topics([topic])
            return next(p["leader"] for p in described["partitions"] if p["partition"] == partition)

        return int(self._ask(look))

    def coordinator(self, group: str) -> int:
        async def look(admin: AIOKafkaAdminClient) -> int:
            return int(await admin.find_coordinator(group))

        return int(self._ask(look))

    def create(self, topic: str) -> None:
        async def make(admin: AIOKafkaAdminClient) -> None:
            answer = await admin.create_topics([NewTopic(topic, 4, 3)])
            assert not any(error[1] for error in answer.topic_errors), answer

        self._ask(make)

    def limit(self, topic: str, bytes_max: int) -> None:
        """Sets how large a topic's batches may be, as somebody might by hand."""

        async def alter(admin: AIOKafkaAdminClient) -> None:
            wanted = {"max.message.bytes": str(bytes_max), "message.timestamp.type": "LogAppendTime"}
            for answer in await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, wanted)]):
                assert not any(code for code, *_ in answer.resources), answer

        self._ask(alter)

    def _ask(self, question: Callable[[AIOKafkaAdminClient], Any]) -> Any:
        """An admin client asks any node that it knows of, also one that is dead: it is asked again."""

        async def ask() -> list[Any]:
            admin = AIOKafkaAdminClient(bootstrap_servers=self._cluster.bootstrap)
            try:
                await admin.start()
                return [await question(admin)]
            except KafkaError:
                return []
            finally:
                await admin.close()

        [answer] = until(lambda: self._hub.run(ask()), "an answer of the cluster") or [None]
        return answer


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("kafka") / "three", nodes=3, heap_mib=256)
    yield made.start()
    made.wipe()


@pytest.fixture(scope="module")
def hub(cluster: Cluster, background: Background, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    made = Deployment(
        background,
        cluster.bootstrap,
        tmp_path_factory.mktemp("hub"),
        topic_replication="3",
        instance_id="one",
        backoff="300ms,400ms,500ms",
    )
    yield made
    cluster.start()
    made.close()


@pytest.fixture(scope="module")
def place(cluster: Cluster, hub: Deployment) -> Place:
    return Place(cluster, hub)


@pytest.fixture(scope="module")
def worker(hub: Deployment, sink: RecordingSink) -> Worker:
    made = hub.started()
    for tenant in TENANTS:
        hub.api(made, tenant).subscribe(sink.url(PATH), "loan_application.*")
    return made


@pytest.fixture(scope="module")
def source(hub: Deployment, place: Place, worker: Worker) -> str:
    """A producer whose topic is as safe as the hub's own."""
    made = hub.source("sick", create=False)
    place.create(topic_of(made))
    return made


_starts = iter(range(0, 10_000_000, 100_000))


@contextmanager
def under_load(hub: Deployment, source: str, worker: Worker, sink: RecordingSink) -> Iterator[Stream]:
    """Facts keep coming, before, meanwhile and after. All are delivered, none by another process than this one."""
    pid, began = worker.pid, next(_starts)
    stream = Stream(hub, source, TENANTS, per_s=100, start=began)
    with stream:
        until(lambda: len(stream.sent) > 50, "load")
        yield stream
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 100, "load goes on", seconds=60)
    sink.wait_for(PATH, stream.ids(), seconds=60)
    assert repeats(sink, PATH, stream.ids()) <= 20
    until(lambda: not unready(worker), lambda: unready(worker), seconds=60)
    assert (worker.alive(), worker.pid) == (True, pid)


def unready(worker: Worker) -> Mapping[str, str]:
    """What /readyz gives as reasons, if it answers 503."""
    status, text = worker.get("/readyz")
    return {reason["name"]: reason["detail"] for reason in json.loads(text)["reasons"]} if status == 503 else {}


def test_partitions_whose_leader_dies_move(
    cluster: Cluster, hub: Deployment, place: Place, worker: Worker, source: str, sink: RecordingSink
) -> None:
    topic = f"{hub.prefix}deliveries"
    leader = place.leader(topic)
    with under_load(hub, source, worker, sink) as stream:
        cluster.kill(leader)
        until(lambda: place.leader(topic) not in (-1, leader), lambda: place.leader(topic))
        reached = len(stream.sent)
        until(lambda: len(stream.sent) > reached + 100, "two nodes are enough", seconds=40)
    cluster.start(leader)


def test_a_group_whose_coordinator_dies_goes_on(
    cluster: Cluster, hub: Deployment, place: Place, worker: Worker, source: str, sink: RecordingSink
) -> None:
    group = f"streaming-hub-inbox.{hub.env}"
    node = place.coordinator(group)
    with under_load(hub, source, worker, sink):
        cluster.kill(node)
        until(lambda: place.coordinator(group) != node, lambda: place.coordinator(group))
    cluster.start(node)


def test_partitions_without_enough_nodes_are_named_and_go_on_when_those_are_back(
    cluster: Cluster, hub: Deployment, place: Place, worker: Worker, source: str, sink: RecordingSink
) -> None:
    with under_load(hub, source, worker, sink):
        for node in NODES[1:]:
            cluster.kill(node)
        reasons = until(lambda: unready(worker), "says that it is not ready", seconds=40)
        assert all(reasons.values()), reasons
        holds(worker.alive, worker.log_tail, seconds=1)
        for node in NODES[1:]:
            cluster.start(node)


def test_a_node_that_sleeps_holds_up_and_loses_nothing(
    cluster: Cluster, hub: Deployment, place: Place, worker: Worker, source: str, sink: RecordingSink
) -> None:
    node = place.leader(f"{hub.prefix}facts")
    with under_load(hub, source, worker, sink):
        cluster.pause(node)
        slept = time.monotonic()
        until(lambda: time.monotonic() - slept > SLEEP_S, "a while", seconds=2 * SLEEP_S)
        cluster.resume(node)


def test_one_node_after_another_restarts(
    cluster: Cluster, hub: Deployment, worker: Worker, source: str, sink: RecordingSink
) -> None:
    with under_load(hub, source, worker, sink):
        for node in NODES:
            cluster.restart(node)


def test_row_07_a_dead_letter_that_is_too_large_for_its_topic_goes_without_its_payload(
    hub: Deployment, place: Place, worker: Worker, source: str, sink: RecordingSink
) -> None:
    """Near a mebibyte, with headers; the topic takes a tenth of it. What comes after it is not held up."""
    place.limit(f"{hub.prefix}dlq", 100_000)
    path, tenant = f"{PATH}/large", TENANTS[0]
    hub.api(worker, tenant).subscribe(sink.behave(path, lambda request: Reply(500, body=b"e" * 70_000)), "account.*")
    [large] = facts(source, 1, tenants=[tenant], start=next(_starts), resource="account", body=os.urandom(1_000_000))
    hub.send([large])
    [dead] = hub.wait_records("dlq", 1, ("ce-id", large.id))
    assert (header(dead, "hub-payload-omitted"), header(dead, "hub-payload-bytes")) == ("true", "1000000")
    assert (dead.value or b"", header(dead, "hub-reason")) == (b"", "exhausted")
    assert {request.body for request in sink.requests(path)} == {large.body}
    [after] = facts(source, 1, tenants=[tenant], start=next(_starts))
    hub.send([after])
    sink.wait_for(PATH, [webhook_id(after)])
    until(lambda: not unready(worker), lambda: unready(worker))
