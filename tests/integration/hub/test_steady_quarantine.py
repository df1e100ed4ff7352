"""Bytes that are no fact: each stands in quarantine, as it came, with a reason; its partition goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from hub_app.dev.facts import NewFact, headers, topic_of
from hub_app.dev.worker import Worker
from hub_app.wire import quarantine
from hub_app.wire.quarantine import Original
from tests.support.deployment import Deployment
from tests.support.raw import RawName, RawRecord, write
from tests.support.sink import RecordingSink, webhook_id
from tests.support.waiting import until

Pairs = Sequence[tuple[str, bytes | None]]

TENANT, PATH = "quarantine", "/quarantine"


@pytest.fixture(scope="module", autouse=True)
def subscribed(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    """Everything of the tenant goes to one path."""
    hub.api(worker, TENANT).subscribe(sink.url(PATH))


def odd_records(source: str) -> dict[str, tuple[RawRecord, str]]:
    """By name: a record, and the reason it must get ("" where it is a fact like any other)."""

    def like(name: str, *more: tuple[str, bytes | None], **changed: bytes | None) -> Pairs:
        changes = tuple((f"ce-{key}", value) for key, value in changed.items())
        return [*headers(NewFact(id=f"{source}-{name}", tenant=TENANT, source=source, headers=changes)), *more]

    def record(pairs: Pairs, *, key: bytes | None = b"k", value: bytes | None = b"{}") -> RawRecord:
        return RawRecord(key, value, pairs)

    return {
        "nothing": (RawRecord(None, None, []), "missing_attribute"),
        "bytes": (RawRecord(b"\xff\x00", bytes(range(256)), []), "missing_attribute"),
        "null-id": (record([("ce-id", None), *like("null-id")[2:]]), "missing_attribute"),
        "no-id": (record(like("no-id", id=None)), "missing_attribute"),
        "empty-id": (record(like("empty-id", id=b"")), "empty_attribute"),
        "long-id": (record(like("long-id", id=b"i" * 257)), "attribute_too_long"),
        "odd-time": (record(like("odd-time", time=b"yesterday")), "malformed_attribute"),
        "nul-tenant": (record(like("nul-tenant", tenantid=b"ac\x00me")), "malformed_attribute"),
        "odd-bytes": (record(like("odd-bytes", subject=b"\xff\xfe")), "not_utf8"),
        "odd-name": (record(like("odd-name", (RawName(b"x-\xff\\"), b"1"))), "not_utf8"),
        "old-spec": (record(like("old-spec", specversion=b"0.3")), "wrong_specversion"),
        "two-ids": (record(like("two-ids", ("ce-id", b"another"))), "conflicting_headers"),
        "two-spellings": (record(like("two-spellings", ("ce_id", b"another"))), "conflicting_headers"),
        "foreign": (record(like("foreign", source=b"elsewhere")), "topic_mismatch"),
        "mistyped": (record(like("mistyped", type=b"studio.lerian.x.y.z")), "type_mismatch"),
        "nobodys": (record(like("nobodys", tenantid=None)), "no_tenant"),
        "wide": (record(like("wide", *[("x", b"y" * 60_000)] * 5)), "headers_too_large"),
        "many": (record(like("many", *[("x", b"")] * 8_200)), "headers_too_large"),
        "null-value": (record(like("null-value"), value=None), ""),
        "null-key": (record(like("null-key"), key=None), ""),
        "empty-key": (record(like("empty-key"), key=b""), ""),
        "empty-name": (record(like("empty-name", ("", b"x"))), ""),
        "said-twice": (record(like("said-twice", ("ce-specversion", b"1.0"), ("ce-specversion", b"1.0"))), ""),
        "nul-id": (record(like("nul-id", subject=b"a\x00b")), "malformed_attribute"),
        "both-null": (record(like("both-null"), key=None, value=None), ""),
        "long-header": (record(like("long-header", ("x-long", b"h" * 65_536))), ""),
        "nul-header": (record(like("nul-header", ("x-nul", b"a\x00b"), ("x-null", None))), ""),
        "capitals": (record(like("capitals", ("CE-ID", b"another"))), ""),
        "thousand": (record(like("thousand", *[(f"x-{i}", b"v") for i in range(1_000)])), ""),
    }


def read_back(hub: Deployment, source: str, count: int) -> dict[int, Original]:
    """By origin offset, once there are `count`."""

    def found() -> dict[int, Original] | None:
        read = [quarantine.read(r.headers, r.key, r.value) for r in hub.records("quarantine")]
        mine = {o.offset: o for o in read if isinstance(o, Original) and o.topic == topic_of(source)}
        return mine if len(mine) >= count else None

    result = until(found, f"{count} records of {source} in quarantine")
    assert result is not None
    return result


def test_row_28_each_kind_has_its_reason_and_its_bytes(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    source = hub.source("odd")
    odd = odd_records(source)
    last = NewFact(id=f"{source}-last", tenant=TENANT, source=source)
    records = [*(record for record, _ in odd.values()), RawRecord(b"k", last.body, headers(last))]
    hub.run(write(hub.bootstrap, topic_of(source), 1, records))
    good = [NewFact(id=f"{source}-{name}", tenant=TENANT, source=source) for name, (_, why) in odd.items() if not why]
    sink.wait_for(PATH, map(webhook_id, [*good, last]))
    quarantined = read_back(hub, source, len(odd) - len(good))
    for offset, (name, (record, reason)) in enumerate(odd.items()):
        if not reason:
            assert offset not in quarantined, name
            continue
        came = quarantined[offset]
        assert (came.reason, came.partition, came.key, came.value) == (reason, 1, record.key, record.value), name
        assert [(_bytes(n), data) for n, data in came.headers] == [(n.encode(), data) for n, data in record.headers], (
            name
        )
    assert len(quarantined) == len(odd) - len(good)
    assert hub.metric("hub_facts_total") >= len(records)
    assert worker.get("/readyz")[0] == 200


def _bytes(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def test_a_null_payload_is_delivered_empty(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    source = hub.source("null")
    fact = NewFact(id=source, tenant=TENANT, source=source)
    hub.run(write(hub.bootstrap, topic_of(source), 0, [RawRecord(None, None, headers(fact))]))
    sink.wait_for(PATH, [webhook_id(fact)])
    [request] = sink.requests(PATH, webhook_id(fact))
    assert request.body == b""
    assert request.header("content-length") == "0"


def test_the_largest_payload_passes_and_one_byte_more_does_not(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    """A producer's topic that takes more than the hub does."""
    source = hub.source("large", create=False)
    hub.run(hub.make_topic(topic_of(source), {"max.message.bytes": str(4 << 20)}))
    fits = NewFact(id=f"{source}-fits", tenant=TENANT, source=source, body=b"f" * (1 << 20))
    over = NewFact(id=f"{source}-over", tenant=TENANT, source=source, body=b"o" * ((1 << 20) + 1))
    for fact in (over, fits):
        hub.run(write(hub.bootstrap, topic_of(source), 0, [RawRecord(b"k", fact.body, headers(fact))]))
    sink.wait_for(PATH, [webhook_id(fits)])
    [request] = sink.requests(PATH, webhook_id(fits))
    assert request.body == fits.body
    [refused] = read_back(hub, source, 1).values()
    assert (refused.reason, refused.value) == ("payload_too_large", over.body)
