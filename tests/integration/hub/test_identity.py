"""A fact is admitted once, whatever its producer, the broker or the worker repeats; other facts are not held for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from hub_app.dev.facts import NewFact, topic_of
from hub_app.dev.worker import Worker
from hub_app.wire import quarantine
from hub_app.wire.quarantine import Original
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment, facts
from tests.support.sink import RecordingSink, webhook_id
from tests.support.waiting import until

TENANTS = ("acme", "bolt", "cargo")


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    # A static member gets its shards back at once, also after kill -9.
    return make_shared(instance_id="one")


@pytest.fixture(scope="module")
def worker(hub: Deployment, sink: RecordingSink) -> Worker:
    made = hub.started()
    for tenant in TENANTS:
        hub.api(made, tenant).subscribe(sink.url(f"/{tenant}"))
    return made


def at_least(hub: Deployment, duplicates: float) -> bool:
    return hub.metric("hub_duplicates_total") >= duplicates


def test_a_fact_that_comes_again_is_admitted_once(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    """In one batch, after a restart, after a kill."""
    source = hub.source("again")
    made = facts(source, 300, tenants=TENANTS)
    ends: list[Callable[[], object]] = [lambda: None, worker.stop, worker.kill]
    for number, end in enumerate(ends):
        end()
        if not worker.alive():
            worker.start().wait_ready()
        mark = NewFact(id=f"{source}-mark-{number}", tenant="acme", source=source)
        counted = hub.metric("hub_duplicates_total") + len(made) * (1 if number == 0 else 2)
        hub.send([*made, *made, mark])
        until(partial(at_least, hub, counted), "duplicates are counted")
        sink.wait_for("/acme", [webhook_id(mark)])
    for tenant in TENANTS:
        mine = [webhook_id(fact) for fact in made if fact.tenant == tenant]
        sink.wait_for(f"/{tenant}", mine)
        assert sink.counts(f"/{tenant}", mine) == dict.fromkeys(mine, 1)
    listed = hub.api(worker, "bolt").call("GET", f"/v1/events?after=start&limit=1000&origin={source}")["events"]
    assert sorted(event["id"] for event in listed) == sorted(fact.id for fact in made if fact.tenant == "bolt")


def test_an_id_with_another_payload_is_no_duplicate(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    source = hub.source("collide")
    first = NewFact(id=f"{source}-1", tenant="acme", source=source, body=b'{"amount":1}')
    other = first._replace(body=b'{"amount":2}')
    typed = first._replace(event="denied")
    for fact in (first, other, typed, first):
        hub.send([fact])
    last = first._replace(id=f"{source}-last")
    hub.send([last])
    sink.wait_for("/acme", [webhook_id(first), webhook_id(last)])
    assert [request.body for request in sink.requests("/acme", webhook_id(first))] == [first.body]

    def collided() -> list[Original]:
        read = [quarantine.read(r.headers, r.key, r.value) for r in hub.records("quarantine")]
        return [o for o in read if isinstance(o, Original) and o.topic == topic_of(source)]

    until(lambda: len(collided()) == 2, "both stand in quarantine")
    assert [(o.reason, o.value, dict(o.headers)["ce-eventtype"]) for o in collided()] == [
        ("id_collision", other.body, b"approved"),
        ("id_collision", typed.body, b"denied"),
    ]


def test_row_10_the_same_id_of_others_is_another_fact(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    """Of another tenant; of another application of the same tenant; at the same offset of another partition."""
    one, two = hub.source("one"), hub.source("two")
    made = [NewFact(id=f"{one}-shared", tenant=tenant, source=source) for tenant in TENANTS for source in (one, two)]
    hub.send(made)
    for tenant in TENANTS:
        mine = [webhook_id(fact) for fact in made if fact.tenant == tenant]
        assert len(set(mine)) == 2
        sink.wait_for(f"/{tenant}", mine)
        assert sink.counts(f"/{tenant}", mine) == dict.fromkeys(mine, 1)
