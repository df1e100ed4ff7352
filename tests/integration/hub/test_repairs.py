"""Given up, looked at, sent once more: dead letters and replay through the API of real workers."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api, Worker
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment
from tests.support.sink import RecordingSink, Reply, Request, webhook_id
from tests.support.waiting import until


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    return make_shared(backoff="50ms")


@pytest.fixture(scope="module")
def worker(hub: Deployment) -> Worker:
    return hub.started()


def test_row_12_a_dead_letter_is_redriven_and_its_table_made_again_from_the_log(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    source = hub.source("dead")
    path, works = f"/{source}", [False]

    def behave(_request: Request) -> Reply:
        return Reply(200 if works[0] else 500)

    api = hub.api(worker, source)
    made = api.call("POST", "/v1/subscriptions", wish(sink.behave(path, behave)))
    facts = [NewFact(id=f"{source}-{i}", tenant=source, source=source, body=b'{"n": %d}' % i) for i in range(3)]
    hub.send(facts)
    letters = until(lambda: dead(api, 3), lambda: dead(api, 0))
    assert {(row["reason"], row["status"], row["attempts"]) for row in letters} == {("exhausted", 500, 2)}
    assert api.call("GET", f"/v1/dead-letters/{letters[0]['id']}", None)["event"]["data"] in (
        {"n": i} for i in range(3)
    )

    works[0] = True
    before = len(sink.requests(path))
    api.call("POST", f"/v1/dead-letters/{letters[0]['id']}/redrive", None)
    until(lambda: len(sink.requests(path)) > before, lambda: sink.requests(path))
    assert sink.requests(path)[-1].id in set(map(webhook_id, facts))

    begun = api.call("POST", "/v1/dead-letters/redrive", {"subscription": made["id"]})
    over = until(lambda: finished(api, begun["id"]), lambda: api.call("GET", f"/v1/operations/{begun['id']}", None))
    assert (over["state"], over["made"]) == ("done", 2)
    until(lambda: len(sink.requests(path)) >= before + 3, lambda: sink.requests(path))
    assert {request.id for request in sink.requests(path)[before:]} == set(map(webhook_id, facts))
    assert dead(api, 0) == []

    worker.stop()
    again = hub.started()  # with an empty folder
    api = hub.api(again, source)
    redriven = until(
        lambda: len(api.call("GET", "/v1/dead-letters?state=redriven", None)["dead_letters"]) == 3,
        lambda: api.call("GET", "/v1/dead-letters", None),
    )
    assert redriven
    assert dead(api, 0) == []

    before = len(sink.requests(path))
    begun = api.call("POST", f"/v1/subscriptions/{made['id']}/replay", {"from_seq": 0})
    over = until(lambda: finished(api, begun["id"]), lambda: api.call("GET", f"/v1/operations/{begun['id']}", None))
    assert (over["state"], over["made"]) == ("done", 3)
    until(lambda: len(sink.requests(path)) >= before + 3, lambda: sink.requests(path))
    assert {request.id for request in sink.requests(path)[before:]} == set(map(webhook_id, facts))


def wish(url: str) -> dict[str, Any]:
    return {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": url}}


def dead(api: Any, count: int) -> list[dict[str, Any]]:
    """What is dead, once there are `count` of it."""
    found: list[dict[str, Any]] = api.call("GET", "/v1/dead-letters", None)["dead_letters"]
    return found if len(found) >= count else []


def finished(api: Any, id: str) -> dict[str, Any] | None:
    found: dict[str, Any] = api.call("GET", f"/v1/operations/{id}", None)
    return None if found["state"] == "running" else found


def test_attempts_health_and_why_also_after_the_disk_was_lost(hub: Deployment, sink: RecordingSink) -> None:
    worker = hub.started()
    source = hub.source("seen")
    api = hub.api(worker, source)
    made = api.call("POST", "/v1/subscriptions", wish(sink.behave(f"/{source}", lambda _request: Reply(503))))
    hub.send([NewFact(id=source, tenant=source, source=source)])
    path = f"/v1/subscriptions/{made['id']}"

    def attempts(of: Any) -> list[tuple[int, str, int]]:
        rows = of.call("GET", f"{path}/attempts", None)["attempts"]
        return [(row["attempt"], row["outcome"], row["status"]) for row in rows]

    ends = [(2, "dead", 503), (1, "failed", 503)]
    until(lambda: attempts(api) == ends, lambda: attempts(api))
    assert api.call("GET", f"{path}/health", None)["counts"] == {"delivered": 0, "failed": 1, "dead": 1}
    [event] = api.call("GET", "/v1/events", None)["events"]
    [row] = api.call("GET", f"/v1/events/{event['seq']}/why", None)["subscriptions"]
    assert (row["matched"], row["delivery"]["state"]) == (True, "dead")
    for one in hub.workers:
        if one.alive():
            one.stop()
    again = hub.api(hub.started(), source)
    until(lambda: attempts(again) == ends, lambda: attempts(again))


def test_producers_dead_letters_are_observed_and_never_delivered(hub: Deployment, sink: RecordingSink) -> None:
    worker = next((one for one in hub.workers if one.alive()), None) or hub.started()
    source = hub.source("broken")
    topic = f"lerian.streaming.{source}.dlq"
    hub.run(hub.make_topic(topic, {}, partitions=1))
    api = hub.api(worker, source)
    api.call("POST", "/v1/subscriptions", wish(sink.url(f"/{source}")))
    headers = [
        ("x-lerian-dlq-source-topic", f"lerian.streaming.{source}".encode()),
        ("x-lerian-dlq-error-class", b"validation_error"),
        ("ce-tenantid", source.encode()),
    ]

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=hub.bootstrap) as producer:
            await producer.send_and_wait(topic, b"payload", headers=headers)

    hub.run(produce())
    admin = Api(worker.url)
    found = until(
        lambda: admin.call("GET", f"/admin/dlq?source={source}", None)["dead_letters"],
        lambda: worker.get("/readyz"),
    )
    assert [(row["error_class"], row["topic"], row["tenant"]) for row in found] == [("validation_error", topic, source)]
    assert sink.requests(f"/{source}") == []
    hub.run(hub.delete_topic(topic))
