"""`hub.facts`: written from a verdict, read into a fact."""

from __future__ import annotations

import pytest

from hub_app.domain.cloudevents import Accept, judge
from hub_app.domain.fact import Fact
from hub_app.wire import facts
from hub_app.wire.record import Unreadable

AT = 1_767_323_045_678
EVENT = (
    ("ce-specversion", b"1.0"),
    ("ce-id", b"evt-1"),
    ("ce-source", b"lender"),
    ("ce-type", b"studio.lerian.lender.loan.approved"),
    ("ce-time", b"2026-01-02T03:04:05Z"),
    ("ce-schemaversion", b"1.0.0"),
    ("ce-resourcetype", b"loan"),
    ("ce-eventtype", b"approved"),
    ("ce-tenantid", "ação".encode()),
    ("x", b"\xff"),
    ("x", b"2"),
)


def accepted() -> Accept:
    found = judge("lerian.streaming.lender", EVENT, b"{}", default_tenant=None)
    assert isinstance(found, Accept)
    return found


def written() -> list[tuple[str, bytes]]:
    return facts.write(accepted(), received_at_ms=AT, origin=(3, 42))


def without(name: str) -> list[tuple[str, bytes]]:
    return [header for header in written() if header[0] != name]


def test_what_a_person_reads() -> None:
    assert written() == [
        ("hub-tenant", "ação".encode()),
        ("hub-topic", b"lender"),
        ("hub-received-at", b"2026-01-02T03:04:05.678Z"),
        ("hub-origin-partition", b"3"),
        ("hub-origin-offset", b"42"),
        ("hub-schema", b"1"),
        *EVENT,
    ]


def test_what_comes_back() -> None:
    read = facts.read(tuple(written()), b"{}", epoch=2, offset=7)
    assert read == Fact(
        seq=(2 << 40) | 7,
        tenant="ação",
        topic="lender",
        source="lender",
        id="evt-1",
        type="studio.lerian.lender.loan.approved",
        event_type="loan.approved",
        headers=EVENT,
        value=b"{}",
        received_at_ms=AT,
    )


def test_the_order_of_headers_does_not_matter() -> None:
    in_order = facts.read(written(), b"{}", epoch=0, offset=1)
    assert facts.read([*written()[6:], *reversed(written()[:6])], b"{}", epoch=0, offset=1) == in_order


def test_the_origin() -> None:
    assert facts.origin(written()) == ("lerian.streaming.lender", 3, 42)
    published = facts.write(accepted(), received_at_ms=AT, origin=None)
    assert facts.origin(published) is None
    assert isinstance(facts.read(published, b"", epoch=0, offset=0), Fact)
    assert facts.origin([("hub-origin-partition", b"-1"), *without("hub-origin-partition")]) is None
    assert facts.origin([]) is None


def test_a_published_event_without_a_resource_type_goes_by_its_type() -> None:
    for missing in ("ce-resourcetype", "ce-eventtype"):
        read = facts.read(without(missing), b"", epoch=0, offset=0)
        assert isinstance(read, Fact)
        assert read.event_type == read.type == "studio.lerian.lender.loan.approved"


def test_a_null_payload_is_empty() -> None:
    read = facts.read(written(), None, epoch=0, offset=0)
    assert isinstance(read, Fact)
    assert read.value == b""


def test_nulls_in_a_record_made_by_hand() -> None:
    read = facts.read([*written(), ("y", None)], b"", epoch=0, offset=0)
    assert isinstance(read, Fact)
    assert read.headers[-1] == ("y", b"")
    assert isinstance(facts.read([*written(), ("ce-id", None)], b"", epoch=0, offset=0), Unreadable)


@pytest.mark.parametrize(
    "name", ["hub-tenant", "hub-topic", "hub-received-at", "hub-schema", "ce-id", "ce-source", "ce-type"]
)
def test_records_that_make_no_sense(name: str) -> None:
    missing = facts.read(without(name), b"", epoch=0, offset=0)
    assert isinstance(missing, Unreadable)
    assert name in missing.reason
    broken = facts.read([(n, b"\xff" if n == name else d) for n, d in written()], b"", epoch=0, offset=0)
    assert isinstance(broken, Unreadable)


def test_another_schema_is_not_guessed_at() -> None:
    newer = [(name, b"2" if name == "hub-schema" else data) for name, data in written()]
    assert facts.read(newer, b"", epoch=0, offset=0) == Unreadable("fact: schema b'2'")


def test_empty_and_foreign_records() -> None:
    assert isinstance(facts.read((), None, epoch=0, offset=0), Unreadable)
    assert isinstance(facts.read(EVENT, b"", epoch=0, offset=0), Unreadable)
