"""`hub.deliveries` and `hub.retry.*`: jobs as records."""

from __future__ import annotations

import pytest

from hub_app.domain.delivery import Job
from hub_app.domain.fact import Fact
from hub_app.domain.ids import delivery_id
from hub_app.wire import jobs
from hub_app.wire.record import Unreadable

AT = 1_767_323_045_678
EVENT = (("ce-id", b"evt-1"), ("ce-source", b"lender"), ("traceparent", b"00-1-2-3"), ("x", b"\xff"))
JOB = Job(
    delivery_id=delivery_id("ação", 7, "sub_1", "op_1"),
    attempt=3,
    moves=2,
    tenant="ação",
    destination="https://crm.example.com:443/in",
    subscription="sub_1",
    series="op_1",
    seq=(1 << 40) | 7,
    topic="lender",
    received_at_ms=AT,
    not_before_ms=AT + 10_000,
    subscriptions_offset=99,
    reclaims=1,
)
FIRST = JOB._replace(attempt=1, moves=0, series="", not_before_ms=0, reclaims=0)


def test_what_a_person_reads() -> None:
    assert jobs.write(JOB, EVENT) == [
        ("hub-delivery-id", JOB.delivery_id.hex().encode()),
        ("hub-subscription", b"sub_1"),
        ("hub-subscriptions-offset", b"99"),
        ("hub-destination", b"https://crm.example.com:443/in"),
        ("hub-series", b"op_1"),
        ("hub-attempt", b"3"),
        ("hub-moves", b"2"),
        ("hub-not-before", b"2026-01-02T03:04:15.678Z"),
        ("hub-reclaims", b"1"),
        ("hub-tenant", "ação".encode()),
        ("hub-topic", b"lender"),
        ("hub-seq", b"1099511627783"),
        ("hub-received-at", b"2026-01-02T03:04:05.678Z"),
        ("hub-schema", b"1"),
        *EVENT,
    ]


@pytest.mark.parametrize("job", [JOB, FIRST])
def test_what_comes_back(job: Job) -> None:
    headers = tuple(jobs.write(job, EVENT))
    assert jobs.read(headers) == job
    assert jobs.read_record(headers) == (job, EVENT)
    assert jobs.carried(headers) == EVENT


def test_at_once_and_ordinary_are_empty() -> None:
    own = dict(jobs.write(FIRST))
    assert own["hub-not-before"] == own["hub-series"] == b""


def test_the_short_way_writes_the_same() -> None:
    fact = Fact(JOB.seq, JOB.tenant, JOB.topic, "lender", "evt-1", "t", "e", EVENT, b"{}", JOB.received_at_ms)
    shared = jobs.shared(fact)
    before = list(shared)
    assert jobs.write_shared(FIRST, shared) == jobs.write(FIRST, EVENT)
    assert jobs.write_shared(JOB, shared) == jobs.write(JOB, EVENT)
    assert shared == before


def test_the_order_of_headers_does_not_matter() -> None:
    headers = jobs.write(JOB, EVENT)
    mixed = [*headers[14:], ("hub-outcome", b"failed"), *reversed(headers[:14])]
    assert jobs.read(mixed) == JOB
    assert jobs.read_record(mixed) == (JOB, EVENT)


def test_a_stray_header_of_the_hub_is_not_carried_on() -> None:
    headers = [*jobs.write(JOB, EVENT), ("hub-attempt", b"1"), ("hub-x", b"y")]
    assert jobs.read_record(headers) == (JOB, EVENT)


@pytest.mark.parametrize("name", jobs.LAYOUT)
def test_every_header_is_needed(name: str) -> None:
    found = jobs.read([header for header in jobs.write(JOB, EVENT) if header[0] != name])
    assert found == Unreadable(f"job: no {name}")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("hub-delivery-id", b""),
        ("hub-delivery-id", b"ab"),
        ("hub-delivery-id", b"z" * 32),
        ("hub-delivery-id", b"a" * 34),
        ("hub-attempt", b"0"),
        ("hub-attempt", b"00"),
        ("hub-attempt", b"-1"),
        ("hub-attempt", b""),
        ("hub-attempt", None),
        ("hub-moves", b"x"),
        ("hub-seq", b"1" * 19),
        ("hub-reclaims", b"1.0"),
        ("hub-subscriptions-offset", b" 1"),
        ("hub-received-at", b""),
        ("hub-received-at", b"1767323045678"),
        ("hub-not-before", b"soon"),
        ("hub-tenant", b"\xff"),
        ("hub-destination", b"x" * 4097),
        ("hub-schema", b"2"),
        ("hub-schema", b""),
    ],
)
@pytest.mark.parametrize("mixed", [False, True], ids=["in order", "mixed"])
def test_records_that_make_no_sense(name: str, data: bytes | None, mixed: bool) -> None:
    headers: list[tuple[str, bytes | None]] = [(n, data if n == name else d) for n, d in jobs.write(JOB, EVENT)]
    if mixed:
        headers.reverse()
    for reader in (jobs.read, jobs.read_record):
        found = reader(headers)
        assert isinstance(found, Unreadable)
        assert found.reason.startswith("job: ")
        assert "\x00" not in found.reason


def test_foreign_records() -> None:
    assert isinstance(jobs.read(()), Unreadable)
    assert isinstance(jobs.read_record(EVENT), Unreadable)
