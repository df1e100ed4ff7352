"""Inputs that broke other systems of this kind, at our doors: facts from Kafka, and the API over real HTTP. Row 28 is
in `tests/integration/hub/test_steady_quarantine.py`, row 31 in `tests/contract/test_sender_faults.py`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agents.ingest import Ingest
from hub_app.domain.fact import Fact
from hub_app.domain.limits import TENANT_BYTES_MAX
from hub_app.kafka.batch import Batch
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names
from hub_app.wire import facts as wire_facts
from hub_app.wire import quarantine as wire_quarantine
from hub_app.wire.quarantine import Original
from tests.fakes.clock import FakeClock
from tests.fakes.log import FakeLog
from tests.fakes.workers import ADMIN_KEY, Deployment, Reply, Worker
from tests.simulation.broker import Rec

NAMES, TOPIC = names("hub."), "lerian.streaming.lender"
ROUTE = "/v1/subscriptions"


@pytest.fixture
async def hub() -> AsyncIterator[Deployment]:
    deployment = Deployment()
    yield deployment
    await deployment.close()


@pytest.fixture
async def worker(hub: Deployment) -> Worker:
    return await hub.worker()


# -- row 29 ------------------------------------------------------------------------------------------------------------
def record(offset: int, **changes: bytes) -> Rec:
    attributes = {
        "specversion": b"1.0",
        "id": b"%d" % offset,
        "source": b"lender",
        "type": b"studio.lerian.lender.loan.paid",
        "time": b"2026-01-02T03:04:05Z",
        "schemaversion": b"1",
        "resourcetype": b"loan",
        "eventtype": b"paid",
        "tenantid": b"acme",
        **changes,
    }
    headers = tuple((f"ce-{name}", value) for name, value in attributes.items())
    return Rec(TOPIC, 0, offset, 0, b"k", b"{}", headers)


async def ingested(*records: Rec) -> tuple[list[Fact], list[Original]]:
    """What became of them: every record is one of the two, and the batch is settled."""
    clock, settled = FakeClock(), list[BaseException | None]()
    log: Any = FakeLog(clock.now_ms)
    ingest = Ingest(producer=log, names=NAMES, shards=1, clock=clock, metrics=Metrics(), default_tenant=None)
    given: Any = records
    batch = Batch(
        shard=-1,
        topic=TOPIC,
        partition=0,
        records=given,
        next_offset=len(records),
        settled=lambda _, error: settled.append(error),
    )
    await ingest.handle([batch])
    read = [wire_facts.read(e.headers, e.value, epoch=0, offset=e.offset) for e in log.records(NAMES.facts)]
    held = [wire_quarantine.read(e.headers, e.key, e.value) for e in log.records(NAMES.quarantine)]
    facts, originals = [f for f in read if isinstance(f, Fact)], [o for o in held if isinstance(o, Original)]
    assert len(facts) + len(originals) == len(records)
    assert settled == [None]
    return facts, originals


@pytest.mark.parametrize(
    "time",
    [
        b"2026-01-02T03:04:05+05:30",
        b"2026-01-02T03:04:05-23:59",
        b"2026-01-02T03:04:05.123456789Z",
        b"2026-01-02t03:04:05z",
        b"2016-12-31T23:59:60Z",
        b"2017-01-01T00:59:60.5+01:00",
    ],
)
async def test_row_29_times_that_are(time: bytes) -> None:
    """Carried as they were written."""
    [fact], [] = await ingested(record(0, time=time))
    assert dict(fact.headers)["ce-time"] == time


@pytest.mark.parametrize(
    ("changes", "attribute"),
    [
        ({"time": b"2026-01-02T03:04:60Z"}, "time"),  # no leap second can be there
        ({"time": b"2026-01-02T03:04:05"}, "time"),
        ({"time": b"2026-01-02T03:04:05.1234567890Z"}, "time"),
        ({"time": b"2026-01-02T25:04:05Z"}, "time"),
        ({"tenantid": b"acme\x00"}, "tenantid"),
        ({"tenantid": b"acme\n"}, "tenantid"),
        ({"tenantid": b"acme\x1fother"}, "tenantid"),
        ({"tenantid": b"acme\x7f"}, "tenantid"),
        ({"tenantid": b"a" * (TENANT_BYTES_MAX + 1)}, "tenantid"),
        ({"tenantid": "ä".encode() * (TENANT_BYTES_MAX // 2) + b"a"}, "tenantid"),
    ],
)
async def test_row_29_what_is_not_stands_in_quarantine_and_says_which(
    changes: dict[str, bytes], attribute: str
) -> None:
    [fact], [original] = await ingested(record(0, **changes), record(1))
    assert (fact.id, original.offset) == ("1", 0)
    assert attribute in original.detail
    assert dict(original.headers)[f"ce-{attribute}"] == changes[attribute]


async def test_row_29_tenants_that_look_alike_are_others(hub: Deployment, worker: Worker) -> None:
    """Byte for byte: with a space, in capitals, composed otherwise, of 256 bytes."""
    alike = ["acme", "acme ", " acme", "Acme", "acme\u200b", "ﬁ", "fi", "é", "e\u0301", "a" * TENANT_BYTES_MAX]
    facts, originals = await ingested(*(record(n, tenantid=name.encode()) for n, name in enumerate(alike)))
    assert originals == []
    assert [fact.tenant for fact in facts] == alike
    for fact in facts:
        hub.cluster.inboxes[hub.cluster.shard_of(fact.tenant)].add(fact._replace(seq=alike.index(fact.tenant) + 1))
    for number, tenant in enumerate(alike):
        key = await hub.key(worker, tenant, "receive")
        reply = await hub.ask(worker, "GET", "/v1/events", key=key)
        assert isinstance(reply.json, dict)
        assert [event["seq"] for event in reply.json["events"]] == [number + 1], tenant


# -- row 30 ------------------------------------------------------------------------------------------------------------
NOWHERE = [
    "https://127.1/",
    "https://0x7f000001/",
    "https://2130706433/",
    "https://0177.0.0.1/",
    "https://user:pw@crm.example.com/",
    "https://127。0。0。1/",
    "https://１２７.0.0.1/",  # noqa: RUF001
    "https://crm．example．com/",  # noqa: RUF001
    "https://crm.example.com:0/",
    "https://crm.example.com:70000/",
    "https://",
    "https:///in",
    "https://crm.example.com/" + "a" * 9_000,
    "ftp://crm.example.com/",
    "crm.example.com",
    "",
]
INSIDE = [
    "http://crm.example.com/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::1]/",
    "https://localhost./",
    "https://LOCALHOST/",
    "https://x.internal/",
    "https://x.local/",
    "https://svc.ns.svc.cluster.local/",
    "https://metadata.google.internal/",
    "https://169.254.169.254/latest/meta-data/",
    "https://10.0.0.1/",
    "https://[fd00::1]/",
]


@pytest.mark.parametrize("url", [*NOWHERE, *INSIDE], ids=lambda url: ascii(url[:40]))
async def test_row_30_urls_that_no_sink_may_have(hub: Deployment, worker: Worker, url: str) -> None:
    """At creation, at a change and in a preview alike; the field is named, and what to do; nothing is sent."""
    key = await hub.key(worker, "t", "manage")
    sink = {"type": "webhook", "url": url}
    made = await hub.ask(worker, "POST", ROUTE, key=key, json={**WISH, "sink": GOOD})
    assert isinstance(made.json, dict)
    sent = len(worker.sender.requests)
    draft = {"subscription": {"event_types": ["*"], "sink": sink}, "event": {"type": "a.b"}}
    for method, path, wish, pointer in (
        ("POST", ROUTE, {**WISH, "sink": sink}, "/sink/url"),
        ("PATCH", f"{ROUTE}/{made.json['id']}", {"sink": sink}, "/sink/url"),
        ("POST", f"{ROUTE}:preview", draft, "/subscription/sink/url"),
    ):
        reply = await hub.ask(worker, method, path, key=key, json=wish)
        assert reply.status == 422, (method, path, reply)
        assert isinstance(reply.json, dict)
        assert [error["pointer"] for error in reply.json["errors"]] == [pointer]
        assert len(reply.json["errors"][0]["detail"]) > 8
    assert len(worker.sender.requests) == sent


@pytest.mark.parametrize("url", NOWHERE, ids=lambda url: ascii(url[:40]))
async def test_row_30_most_of_them_not_even_where_private_sinks_are_allowed(hub: Deployment, url: str) -> None:
    worker = await hub.worker(ALLOW_PRIVATE_SINKS="true")
    key = await hub.key(worker, "t", "manage")
    reply = await hub.ask(worker, "POST", ROUTE, key=key, json={**WISH, "sink": {"type": "webhook", "url": url}})
    assert reply.status == 422


GOOD = {"type": "webhook", "url": "https://crm.example.com/in"}
WISH = {"name": "n", "event_types": ["*"]}


# -- row 32 ------------------------------------------------------------------------------------------------------------
async def test_row_32_two_at_once_at_two_workers_are_one_subscription(hub: Deployment, worker: Worker) -> None:
    key, other = await hub.key(worker, "t", "manage"), await hub.worker()
    headers, wish = {"Idempotency-Key": "k"}, {**WISH, "sink": GOOD}

    async def post(asked: Worker) -> Reply:
        return await hub.ask(asked, "POST", ROUTE, key=key, json=wish, headers=headers)

    replies = await asyncio.gather(*(post(asked) for asked in (worker, other) * 5))
    assert {reply.status for reply in replies} == {201}
    assert len({(reply.json["id"], reply.json["secret"]) for reply in replies}) == 1  # type: ignore[call-overload,index]
    assert worker.subscriptions.count("t") == 1


# -- row 33 ------------------------------------------------------------------------------------------------------------
PATH = "/admin/tenants/t/keys"
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nContent-Type: application/json\r\n"
SENT_BYTES_MAX = 8 << 20
"""What may lie in buffers of sockets when the answer comes."""


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"[" * 10_000 + b"]" * 10_000, "depth"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, ""),
        (b'{"scopes": ["manage"], "name": NaN}', "not JSON"),
        (b'{"scopes": ["manage"], "name": -Infinity}', "not JSON"),
        (b'{"scopes": ["manage"], "scopes": ["receive"]}', "stands twice"),
        (b"\xef\xbb\xbf" + b'{"scopes": ["manage"]}', "not JSON"),
        (b'{"scopes": ["manage"]', "not JSON"),
    ],
    ids=lambda part: ascii(part[:24]),
)
async def test_row_33_bodies_without_one_meaning(hub: Deployment, worker: Worker, body: bytes, word: str) -> None:
    began = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    reply = await hub.ask(worker, "POST", PATH, key=ADMIN_KEY, data=body, headers=headers)
    assert reply.status == 400
    assert isinstance(reply.json, dict)
    assert word in reply.json["detail"]
    assert time.perf_counter() - began < 1
    assert len(worker.keys.of_tenant("t")) == 0


@pytest.mark.parametrize("announced", [True, False], ids=["70 MB announced", "chunks without end"])
async def test_row_33_bodies_without_bounds(worker: Worker, announced: bool) -> None:
    """Refused before they are read: the writer is answered while it has hardly begun."""
    how = "Content-Length: 73400320\r\n\r\n" if announced else "Transfer-Encoding: chunked\r\n\r\n"
    piece = b" " * 0x10000 if announced else b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.settings.http_port)
    began, sent = time.perf_counter(), 0
    writer.write((HEAD + how).encode())
    answer = asyncio.ensure_future(reader.readuntil(b"\r\n"))
    try:
        while not answer.done() and sent < 73_400_320:
            writer.write(piece)
            sent += len(piece)
            try:
                async with asyncio.timeout(5):
                    await writer.drain()
            except ConnectionError:
                break
            await asyncio.sleep(0)
        assert b" 413 " in await answer
    finally:
        writer.close()
    assert sent <= SENT_BYTES_MAX
    assert time.perf_counter() - began < 5
