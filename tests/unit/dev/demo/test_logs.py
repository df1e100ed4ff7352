"""What the demo reads from Kafka's logs: records as the hub writes them, and none of other runs."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from hub_app.dev.demo.logs import Clerk, Place
from hub_app.dev.demo.plan import webhook_id
from hub_app.dev.facts import NewFact, headers, topic_of
from hub_app.domain.cloudevents import Accept, judge
from hub_app.domain.delivery import Job
from hub_app.topics import names
from hub_app.wire import dead_letters, facts, quarantine

NAMES = names("hub.")
FACT = NewFact(id="f-1", tenant="aurora", source="ledger")
TOPIC = topic_of("ledger")
JOB = Job(b"d" * 16, 5, 0, "aurora", "http://127.0.0.1:9/dead/aurora", "sub_1", "", 7, "ledger", 1_000, 0, 3, 0)


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Any


@pytest.fixture
def clerk() -> Clerk:
    return Clerk(NAMES, [TOPIC], {"sub_1": "/dead/aurora"})


def _produced(fact: NewFact = FACT, topic: str = TOPIC) -> Record:
    return Record(topic, 2, 41, b"key", fact.body, tuple(headers(fact)))


def _admitted(produced: Record) -> Record:
    verdict = judge(produced.topic, produced.headers, produced.value, default_tenant=None)
    assert isinstance(verdict, Accept)
    written = facts.write(verdict, received_at_ms=1_000, origin=(produced.partition, produced.offset))
    return Record(NAMES.facts, 0, 7, verdict.key, produced.value, tuple(written))


def _given_up(job: Job = JOB) -> Record:
    written = dead_letters.write(
        job, headers(FACT), FACT.body, reason="exhausted", at_ms=2_000, status=500, error="http_500"
    )
    return Record(NAMES.dlq, 0, 0, written.key, written.value, tuple(written.headers))


def test_produced_and_system_events(clerk: Clerk) -> None:
    clerk.take(TOPIC, _produced())
    marked = FACT._replace(headers=(("ce-systemevent", b"true"),))
    clerk.take(TOPIC, _produced(marked)._replace(offset=42))
    assert clerk.ledger.produced == {Place(TOPIC, 2, 41), Place(TOPIC, 2, 42)}
    assert clerk.ledger.system == {Place(TOPIC, 2, 42)}


def test_admitted_by_where_it_came_from(clerk: Clerk) -> None:
    clerk.take(NAMES.facts, _admitted(_produced()))
    assert clerk.ledger.admitted == {Place(TOPIC, 2, 41): webhook_id(FACT)}


def test_quarantined_by_where_it_came_from(clerk: Clerk) -> None:
    made = quarantine.write(_produced(), reason="no_tenant", detail="ce-tenantid")
    clerk.take(NAMES.quarantine, Record(NAMES.quarantine, 0, 0, made.key, made.value, tuple(made.headers)))
    collided = quarantine.write(_admitted(_produced()._replace(offset=50)), reason="id_collision", detail="seq 7")
    clerk.take(NAMES.quarantine, Record(NAMES.quarantine, 0, 1, collided.key, collided.value, tuple(collided.headers)))
    assert clerk.ledger.quarantined == {Place(TOPIC, 2, 41): "no_tenant", Place(TOPIC, 2, 50): "id_collision"}


def test_given_up_by_endpoint(clerk: Clerk) -> None:
    clerk.take(NAMES.dlq, _given_up())
    clerk.take(NAMES.dlq, _given_up())  # again: a repeat after a crash
    assert clerk.ledger.dead == {"/dead/aurora": {webhook_id(FACT)}}
    assert clerk.ledger.dead_count() == 1
    assert clerk.ledger.dead_why == {"exhausted after 5 attempts, last 500": 2}


def test_what_belongs_to_other_runs_is_passed_over(clerk: Clerk) -> None:
    foreign = FACT._replace(source="lender")
    clerk.take(NAMES.facts, _admitted(_produced(foreign, topic_of("lender"))))
    made = quarantine.write(_produced(foreign, topic_of("lender")), reason="no_tenant", detail="")
    clerk.take(NAMES.quarantine, Record(NAMES.quarantine, 0, 0, made.key, made.value, tuple(made.headers)))
    clerk.take(NAMES.dlq, _given_up(JOB._replace(subscription="sub_2")))
    ledger = clerk.ledger
    assert (ledger.admitted, ledger.quarantined, ledger.dead, ledger.unreadable) == ({}, {}, {}, 0)


@pytest.mark.parametrize("topic", [NAMES.facts, NAMES.quarantine, NAMES.dlq])
def test_what_cannot_be_read_is_counted(clerk: Clerk, topic: str) -> None:
    clerk.take(topic, Record(topic, 0, 0, None, b"", ()))
    assert clerk.ledger.unreadable == 1
