"""Facts by seq over HTTP: pages, a long poll that wakes, nothing of other tenants."""

from __future__ import annotations

import base64
import threading
import time
from typing import Any

import pytest

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api, Worker
from tests.support.deployment import Deployment, facts
from tests.support.waiting import holds, until


def pages(api: Api, after: str, limit: int) -> list[list[dict[str, Any]]]:
    """Every page from a cursor on, until an empty one."""
    found = []
    while True:
        page = api.call("GET", f"/v1/events?after={after}&limit={limit}")
        if not page["events"]:
            return found
        found.append(page["events"])
        after = page["next"]


def test_facts_come_by_seq_in_pages(hub: Deployment, worker: Worker) -> None:
    source = hub.source("pull")
    api = hub.api(worker, source)
    made = facts(source, 250, tenants=[source])
    hub.send(made)
    until(lambda: len(api.call("GET", "/v1/events?after=start&limit=1000")["events"]) == len(made), "all facts")
    in_pages = pages(api, "start", 60)
    assert [len(page) for page in in_pages] == [60, 60, 60, 60, 10]
    events = [event for page in in_pages for event in page]
    seqs = [event["seq"] for event in events]
    assert seqs == sorted(set(seqs))
    assert sorted(event["id"] for event in events) == sorted(fact.id for fact in made)
    assert all(event["data"] == {"amount": 1250} and event["source"] == source for event in events)
    [after_half] = pages(api, str(seqs[124]), 1_000)
    assert [event["seq"] for event in after_half] == seqs[125:]
    assert api.call("GET", f"/v1/events/{seqs[7]}")["id"] == events[7]["id"]
    other = hub.api(worker, f"{source}-other")
    assert other.call("GET", "/v1/events?after=start")["events"] == []
    with pytest.raises(RuntimeError, match="404"):
        other.call("GET", f"/v1/events/{seqs[7]}")


def test_payloads_are_data_only_when_they_are_json(hub: Deployment, worker: Worker) -> None:
    source = hub.source("kinds")
    api = hub.api(worker, source)
    bodies = {"json": b'{"a":1.0,"a":1}', "broken": b'{"a":', "binary": b"\xff\x00", "empty": b""}
    hub.send([NewFact(id=label, tenant=source, source=source, body=body) for label, body in bodies.items()])
    until(lambda: len(api.call("GET", "/v1/events?after=start")["events"]) == len(bodies), "all facts")
    events = {event["id"]: event for event in api.call("GET", "/v1/events?after=start")["events"]}
    assert events["json"]["data"] == {"a": 1}
    assert {label: base64.b64decode(events[label]["data_base64"]) for label in ("broken", "binary")} == {
        label: bodies[label] for label in ("broken", "binary")
    }
    assert not {"data", "data_base64"} & events["empty"].keys()


def test_a_long_poll_wakes_when_a_fact_comes(hub: Deployment, worker: Worker) -> None:
    source = hub.source("poll")
    api = hub.api(worker, source)
    began = time.monotonic()
    nothing = api.call("GET", "/v1/events?after=start&wait=1")
    assert nothing["events"] == []
    assert 0.9 < time.monotonic() - began < 5
    answers: list[tuple[float, dict[str, Any]]] = []

    def poll() -> None:
        answer = api.call("GET", f"/v1/events?after={nothing['next']}&wait=25")
        answers.append((time.monotonic(), answer))

    polling = threading.Thread(target=poll)
    polling.start()
    holds(polling.is_alive, lambda: answers, seconds=0.5)
    [fact] = facts(source, 1, tenants=[source])
    sent = time.monotonic()
    hub.send([fact])
    polling.join(timeout=30)
    [(answered, answer)] = answers
    assert [event["id"] for event in answer["events"]] == [fact.id]
    assert answered - sent < 5
    assert int(answer["next"]) == answer["events"][0]["seq"]
