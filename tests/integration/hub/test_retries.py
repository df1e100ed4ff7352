"""Tiers, round and round: what Kafka's own tools show of a retry, how it ends, and what it does not touch."""

from __future__ import annotations

import pytest
from aiokafka import ConsumerRecord

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Worker
from hub_app.domain.instants import parse_rfc3339
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment, header
from tests.support.sink import Behaviour, RecordingSink, Reply, Request, webhook_id
from tests.support.waiting import holds, until

CAPS_MS = (100, 150, 200, 250, 300, 350, 400)
TIERS = tuple(f"{cap}ms" for cap in CAPS_MS)


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    return make_shared(backoff=",".join(TIERS))


@pytest.fixture(scope="module")
def worker(hub: Deployment) -> Worker:
    return hub.started()


class Case:
    """One tenant with one source; each test has its own, so that nothing of another is counted."""

    def __init__(self, hub: Deployment, worker: Worker, sink: RecordingSink, name: str) -> None:
        self.hub, self.sink, self.source = hub, sink, hub.source(name)
        self.tenant = self.source
        self.api = hub.api(worker, self.tenant)

    def subscribe(self, behaviour: Behaviour, label: str = "") -> str:
        """The path of a subscription whose sink behaves so."""
        path = f"/{self.source}{label}"
        self.api.subscribe(self.sink.behave(path, behaviour))
        return path

    def send(self, **more: bytes) -> NewFact:
        fact = NewFact(id=self.source, tenant=self.tenant, source=self.source, **more)  # type: ignore[arg-type]
        self.hub.send([fact])
        return fact

    def records(self, topic: str) -> list[ConsumerRecord]:
        return [r for r in self.hub.records(topic) if dict(r.headers).get("hub-tenant") == self.tenant.encode()]

    def attempts(self, count: int) -> list[ConsumerRecord]:
        """Outcomes in their order, once there are `count`."""
        until(lambda: len(self.records("attempts")) >= count, lambda: self.records("attempts"))
        return self.records("attempts")


@pytest.fixture
def case(hub: Deployment, worker: Worker, sink: RecordingSink, request: pytest.FixtureRequest) -> Case:
    return Case(hub, worker, sink, request.node.name.split("[")[0].removeprefix("test_").replace("_", "-")[:40])


def failing(times: int, status: int = 503) -> Behaviour:
    return lambda request: Reply(status if request.nth <= times else 200)


def always(request: Request) -> Reply:
    return Reply(500, body=b"out of order")


def test_fails_thrice_then_delivered(case: Case) -> None:
    path = case.subscribe(failing(3))
    fact = case.send(body=b'{"a": 1.0, "a":1}\n')
    until(lambda: len(case.sink.requests(path)) == 4, "four requests")
    requests = case.sink.requests(path)
    assert [r.id for r in requests] == [webhook_id(fact)] * 4
    assert [r.header("x-lerian-attempt") for r in requests] == ["1", "2", "3", "4"]
    assert {r.body for r in requests} == {fact.body}
    outcomes = case.attempts(4)
    assert [header(r, "hub-outcome") for r in outcomes] == ["failed"] * 3 + ["delivered"]
    [delivery] = case.records("deliveries")
    for number, (tier, cap_ms) in enumerate(zip(TIERS[:3], CAPS_MS, strict=False)):
        [record] = case.records(f"retry.{tier}")
        assert header(record, "hub-attempt") == str(number + 2)
        assert record.value == fact.body
        assert record.key == delivery.key
        for kept in ("hub-received-at", "hub-delivery-id", "hub-seq", "hub-subscription", "hub-destination", "ce-id"):
            assert header(record, kept) == header(delivery, kept), kept
        failed_at = parse_rfc3339(header(outcomes[number], "hub-at")) + int(header(outcomes[number], "hub-duration-ms"))
        due = parse_rfc3339(header(record, "hub-not-before"))
        assert failed_at - 1 <= due < failed_at + cap_ms + 50, (failed_at, due)
        assert requests[number + 1].at_s > requests[number].at_s
        began = parse_rfc3339(header(outcomes[number + 1], "hub-at"))
        assert began >= due
    assert all(not case.records(f"retry.{tier}") for tier in TIERS[3:])
    assert not case.records("dlq")


def test_always_failing_ends_in_the_dead_letter_topic(case: Case) -> None:
    path = case.subscribe(always)
    fact = case.send()
    until(lambda: case.records("dlq"), "a dead letter")
    [dead] = case.records("dlq")
    assert (header(dead, "hub-reason"), header(dead, "hub-status")) == ("exhausted", "500")
    assert header(dead, "hub-error").startswith("http_500")
    assert header(dead, "hub-attempt") == "8"
    assert (dead.key, dead.value) == (case.tenant.encode(), fact.body)
    assert header(dead, "ce-id") == fact.id
    parse_rfc3339(header(dead, "hub-died-at"))
    outcomes = case.attempts(8)
    assert [header(r, "hub-attempt") for r in outcomes] == [str(n) for n in range(1, 9)]
    assert [header(r, "hub-outcome") for r in outcomes] == ["failed"] * 7 + ["dead"]
    assert {r.value for r in outcomes} == {b"out of order"}
    assert [header(r, "hub-attempt") for tier in TIERS for r in case.records(f"retry.{tier}")] == list("2345678")
    holds(lambda: len(case.sink.requests(path)) == 8, "no ninth attempt", seconds=1)


def test_row_11_two_destinations_retry_apart(case: Case) -> None:
    paths = [case.subscribe(failing(times), f"/{times}") for times in (0, 2, 5)]
    fact = case.send()
    until(
        lambda: [len(case.sink.requests(path)) for path in paths] == [1, 3, 6],
        lambda: [len(case.sink.requests(path)) for path in paths],
    )
    assert {r.id for path in paths for r in case.sink.requests(path)} == {webhook_id(fact)}
    assert len({r.header("x-lerian-delivery-id") for path in paths for r in case.sink.requests(path)}) == 3
    kinds = [header(r, "hub-outcome") for r in case.attempts(10)]
    assert (kinds.count("failed"), kinds.count("delivered")) == (7, 3)
    assert not case.records("dlq")


def test_row_19_retry_after_never_goes_past_the_cap(case: Case) -> None:
    texts = ("-5", "abc", "99999999", "Wed, 21 Oct 2015 07:28:00 GMT", "", "9" * 5_000, "0", "0.05")

    def asking(text: str) -> Behaviour:
        return lambda request: Reply(429, (("Retry-After", text),)) if request.nth == 1 else Reply()

    paths = [case.subscribe(asking(text), f"/{number}") for number, text in enumerate(texts)]
    case.send()
    until(lambda: {len(case.sink.requests(path)) for path in paths} == {2}, "second requests")
    outcomes = {header(r, "hub-delivery-id"): r for r in case.attempts(16) if header(r, "hub-outcome") == "failed"}
    retries = case.records(f"retry.{TIERS[0]}")
    assert len(retries) == len(outcomes) == len(texts)
    for record in retries:
        outcome = outcomes[header(record, "hub-delivery-id")]
        ended = parse_rfc3339(header(outcome, "hub-at")) + int(header(outcome, "hub-duration-ms"))
        assert parse_rfc3339(header(record, "hub-not-before")) - ended <= CAPS_MS[0] + 50


def test_only_2xx_is_delivered(case: Case) -> None:
    """A redirect is not followed, wherever it points (faults, 17)."""
    elsewhere = f"/{case.source}/elsewhere"
    location = (("Location", case.sink.url(elsewhere)),)

    def answering(status: int) -> Behaviour:
        return lambda request: Reply(status, location) if request.nth == 1 else Reply()

    tried = dict.fromkeys((301, 302, 303, 307, 308, 400, 401, 404, 410, 418, 429, 500, 502, 599), 2)
    tried |= dict.fromkeys((200, 201, 202, 204, 299), 1)
    paths = {status: case.subscribe(answering(status), f"/{status}") for status in tried}
    case.send()
    until(
        lambda: {status: len(case.sink.requests(path)) for status, path in paths.items()} == tried,
        lambda: {status: len(case.sink.requests(path)) for status, path in paths.items()},
    )
    outcomes = [(header(r, "hub-status"), header(r, "hub-outcome")) for r in case.attempts(sum(tried.values()))]
    assert sorted(status for status, kind in outcomes if kind == "failed") == [
        str(s) for s, n in tried.items() if n == 2
    ]
    assert sum(kind == "delivered" for _, kind in outcomes) == len(tried)
    assert not case.sink.requests(elsewhere)


def test_row_07_a_payload_of_a_mebibyte_goes_round_whole(case: Case) -> None:
    """With an error of a kibibyte beside it, through tiers and into the dead-letter topic (faults, 7)."""
    path = case.subscribe(lambda request: Reply(500, body=b"e" * 70_000))
    fact = case.send(body=bytes(range(256)) * 4_000)
    until(lambda: case.records("dlq"), "a dead letter")
    [dead] = case.records("dlq")
    assert dead.value == fact.body
    assert {r.body for r in case.sink.requests(path)} == {fact.body}
    assert {len(r.value) for r in case.attempts(8)} == {1024}


def test_row_24_jobs_of_a_deleted_subscription_end(case: Case) -> None:
    """Neither attempted nor retried for ever (faults, 24)."""
    path = f"/{case.source}"
    made = case.api.subscribe(case.sink.behave(path, lambda request: Reply(503)))
    case.send()
    until(lambda: case.sink.requests(path), "an attempt")
    case.api.call("DELETE", f"/v1/subscriptions/{made['id']}")
    tried = len(case.sink.requests(path))
    until(lambda: case.records("dlq"), "a dead letter")
    [dead] = case.records("dlq")
    assert header(dead, "hub-reason") == "subscription_deleted"
    assert len(case.sink.requests(path)) <= tried + 1  # one may have been on its way


def test_too_old_an_attempt_is_the_last(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    """MAX_AGE is counted from when the hub received the fact; the attempt that starts after it is the last."""
    hub = make_hub(max_age="2s", backoff="400ms,500ms,600ms,700ms,800ms,900ms,1s,2s,3s,4s")
    case = Case(hub, hub.started(), sink, "aged")
    path = case.subscribe(always)
    case.send()
    until(lambda: case.records("dlq"), "a dead letter")
    [dead] = case.records("dlq")
    assert header(dead, "hub-reason") == "expired"
    *before, last = case.attempts(len(case.sink.requests(path)))
    received = parse_rfc3339(header(dead, "hub-received-at"))
    assert all(parse_rfc3339(header(r, "hub-at")) - received < 2_000 for r in before)
    assert parse_rfc3339(header(last, "hub-at")) - received >= 2_000
    assert header(last, "hub-outcome") == "dead"
    assert 2 <= int(header(last, "hub-attempt")) < 11
