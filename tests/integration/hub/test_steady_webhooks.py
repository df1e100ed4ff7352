"""What a sink gets, byte for byte, and what its answers do."""

from __future__ import annotations

from urllib.parse import unquote

from standardwebhooks import Webhook

from hub_app import __version__
from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Worker
from tests.support.deployment import Deployment, header
from tests.support.sink import RecordingSink, Reply, Request, webhook_id
from tests.support.waiting import holds, until

BODIES = (
    b'{"b":1,"a":2,"b":3}',
    b'{"n":1.0,"m":1,"e":1e2}',
    b'  {"spaces" : true}  \r\n',
    b'{"text":"caf\\u00e9 \xc3\xa9"}',
    b"not json at all",
    b"\xff\xfe\x00\x01",
    b"",
    b"[" * 10_000 + b"]" * 10_000,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    bytes(range(256)) * 1_000,
)


def test_row_14_the_bytes_of_a_fact_arrive_as_they_were(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    """Faults, 14."""
    source = hub.source("bytes")
    hub.api(worker, source).subscribe(sink.url(f"/{source}"))
    made = [NewFact(id=f"{source}-{i}", tenant=source, source=source, body=body) for i, body in enumerate(BODIES)]
    hub.send(made)
    sink.wait_for(f"/{source}", map(webhook_id, made))
    got = {request.id: request.body for request in sink.requests(f"/{source}")}
    assert [got[webhook_id(fact)] for fact in made] == list(BODIES)


def test_a_request_says_everything_and_is_signed(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    source = hub.source("whole")
    path = f"/{source}"
    made = hub.api(worker, source).call(
        "POST",
        "/v1/subscriptions",
        {
            "name": "whole",
            "event_types": ["loan_application.*"],
            "sink": {"type": "webhook", "url": sink.url(path), "headers": {"X-Env": "test"}, "timeout_ms": 5_000},
        },
    )
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    extra = (
        ("ce-subject", 'Łódź "50%"'.encode()),
        ("ce-dataschema", b"https://example.com/schemas/loan?v=1"),
        ("ce-region", b"eu"),
        ("ce-datacontenttype", b"application/cloudevents; charset=utf-8"),
        ("traceparent", trace.encode()),
        ("tracestate", b"vendor=1"),
        ("x-internal", b"not for sinks"),
    )
    fact = NewFact(id=f"{source}/ö-1", tenant=source, source=source, body=b'{"a":1.0}', headers=extra)
    hub.send([fact])
    sink.wait_for(path, [webhook_id(fact)])
    [request] = sink.requests(path)
    assert request.header("content-type") == "application/cloudevents; charset=utf-8"
    assert request.header("content-length") == "9"
    assert request.header("user-agent") == f"streaming-hub/{__version__}"
    assert request.header("x-env") == "test"
    assert request.header("x-lerian-event-type") == "loan_application.approved"
    assert request.header("x-lerian-attempt") == "1"
    assert (request.header("traceparent"), request.header("tracestate")) == (trace, "vendor=1")
    sent = {name: unquote(value) for name, value in request.headers if name.startswith("ce-")}
    assert sent.pop("ce-time").endswith("Z")
    assert sent == {
        "ce-specversion": "1.0",
        "ce-id": fact.id,
        "ce-source": source,
        "ce-type": f"studio.lerian.{source}.loan_application.approved",
        "ce-schemaversion": "1.0.0",
        "ce-resourcetype": "loan_application",
        "ce-eventtype": "approved",
        "ce-tenantid": source,
        "ce-subject": 'Łódź "50%"',
        "ce-dataschema": "https://example.com/schemas/loan?v=1",
        "ce-region": "eu",
    }
    assert all(value.isascii() and value.isprintable() for _, value in request.headers)
    assert not [name for name, _ in request.headers if name.lower().startswith(("hub-", "x-internal"))]
    assert request.id == webhook_id(fact)
    [delivery] = [r for r in hub.records("deliveries") if header(r, "hub-tenant") == source]
    assert request.header("x-lerian-delivery-id") == header(delivery, "hub-delivery-id")
    assert verified(made["secret"], request)


def verified(secret: str, request: Request) -> bool:
    """By a library that is not ours; raises when it does not verify."""
    given = {name.lower(): value for name, value in request.headers}
    Webhook(secret).verify(request.body, given, json_parse=False)
    return True


def test_retries_carry_the_same_id_and_a_signature_of_their_own(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    source = hub.source("signed")
    path = f"/{source}"
    url = sink.behave(path, lambda request: Reply(500 if request.nth < 4 else 200, delay_ms=400))
    secret = hub.api(worker, source).subscribe(url)["secret"]
    fact = NewFact(id=source, tenant=source, source=source)
    hub.send([fact])
    until(lambda: len(sink.requests(path)) == 4, "four requests")
    requests = sink.requests(path)
    assert {request.id for request in requests} == {webhook_id(fact)}
    assert len({request.header("webhook-signature") for request in requests}) > 1
    assert all(verified(secret, request) for request in requests)


def test_only_what_was_subscribed_to(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    lender, bank = hub.source("lender"), hub.source("bank")
    tenant, wanted = f"of-{lender}", {}
    facts = {
        (source, resource, event): NewFact(
            id=f"{source}-{resource}-{event}", tenant=tenant, source=source, resource=resource, event=event
        )
        for source in (lender, bank)
        for resource in ("loan", "account")
        for event in ("opened", "closed")
    }
    api = hub.api(worker, tenant)
    for label, types, origin, kept in (
        ("all", ["*"], None, lambda s, r, e: True),
        ("loans", ["loan.*"], None, lambda s, r, e: r == "loan"),
        ("closed", ["*.closed"], None, lambda s, r, e: e == "closed"),
        ("exact", ["loan.opened", "account.closed"], None, lambda s, r, e: (r == "loan") == (e == "opened")),
        ("banks", ["*"], [bank], lambda s, r, e: s == bank),
        ("none", ["nothing.*"], None, lambda s, r, e: False),
    ):
        more = {} if origin is None else {"origin": origin}
        api.subscribe(sink.url(f"/{tenant}/{label}"), *types, **more)
        wanted[label] = {webhook_id(fact) for key, fact in facts.items() if kept(*key)}
    off = api.subscribe(sink.url(f"/{tenant}/off"), "*", enabled=False)
    assert off["enabled"] is False
    unverified = api.subscribe(sink.url(f"/{tenant}/unverified"), "*", verify=False)
    assert unverified["verification_state"] == "pending"
    hub.send(list(facts.values()))
    for label, ids in wanted.items():
        sink.wait_for(f"/{tenant}/{label}", ids)
    assert {label: sink.counts(f"/{tenant}/{label}") for label in (*wanted, "off", "unverified")} == {
        **{label: dict.fromkeys(ids, 1) for label, ids in wanted.items()},
        "off": {},
        "unverified": {},
    }


def test_row_15_an_answer_just_in_time_counts_and_one_too_late_does_not(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    """Faults, 15, with a time-out of two seconds instead of ten."""
    source = hub.source("late")
    for label, delay_ms in (("in-time", 1_000), ("late", 2_600)):
        url = sink.behave(
            f"/{source}/{label}", lambda request, delay=delay_ms: Reply(delay_ms=delay if request.nth == 1 else 0)
        )
        hub.api(worker, source).call(
            "POST",
            "/v1/subscriptions",
            {"name": label, "event_types": ["*"], "sink": {"type": "webhook", "url": url, "timeout_ms": 2_000}},
        )
    fact = NewFact(id=source, tenant=source, source=source)
    hub.send([fact])
    until(lambda: len(sink.requests(f"/{source}/late")) == 2, "a second attempt")

    def outcomes() -> list[tuple[str, str, str]]:
        mine = [r for r in hub.records("attempts") if dict(r.headers).get("hub-tenant") == source.encode()]
        return sorted((header(r, "hub-outcome"), header(r, "hub-attempt"), header(r, "hub-error")[:7]) for r in mine)

    until(lambda: len(outcomes()) == 3, outcomes)
    assert outcomes() == [("delivered", "1", ""), ("delivered", "2", ""), ("failed", "1", "timeout")]
    first, second = sink.requests(f"/{source}/late")
    assert first.id == second.id
    assert second.at_s - first.at_s >= 2.0
    assert len(sink.requests(f"/{source}/in-time")) == 1
    # The sink answers the first one meanwhile.
    holds(lambda: len(outcomes()) == 3, outcomes, seconds=1.0)


def test_row_25_a_change_that_was_answered_holds_for_the_next_fact(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    source = hub.source("changed")
    path, api, wanted = f"/{source}", hub.api(worker, source), []
    made = api.subscribe(sink.url(path), "*")
    for number in range(8):
        takes = number % 2 == 1
        api.call("PATCH", f"/v1/subscriptions/{made['id']}", {"event_types": ["*" if takes else "nothing.*"]})
        fact = NewFact(id=f"{source}-{number}", tenant=source, source=source)
        hub.send([fact])
        if takes:
            wanted.append(webhook_id(fact))
        # It is matched when it is admitted; only then the next change.
        until(lambda n=number: len(api.call("GET", "/v1/events?after=start")["events"]) == n + 1, f"fact {number}")
    sink.wait_for(path, wanted)
    holds(lambda: sink.counts(path) == dict.fromkeys(wanted, 1), lambda: sink.counts(path), seconds=1.0)
