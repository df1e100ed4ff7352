"""`hub.quarantine`: what cannot be admitted, as it came, whatever it was (faults, rows 7 and 28)."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hub_app.domain.cloudevents import Accept, judge
from hub_app.domain.limits import DETAIL_BYTES_MAX, RECORD_BYTES_MAX
from hub_app.wire import facts, quarantine
from hub_app.wire.quarantine import Original, Quarantined
from hub_app.wire.record import Unreadable, record_bytes

Pairs = tuple[tuple[str, bytes | None], ...]
TOPIC = "lerian.streaming.lender"


class Came(NamedTuple):
    """A record as a consumer gives it."""

    topic: str = TOPIC
    partition: int = 3
    offset: int = 42
    key: bytes | None = b"k"
    value: bytes | None = b"{}"
    headers: Pairs = (("ce-id", b"\xff"), ("hub-reason", b"spoofed"), ("x", b"1"), ("x", b"1"))


def written(record: Came) -> Quarantined:
    made = quarantine.write(record, reason="not_utf8", detail="ce-id")
    assert record_bytes(made.key, made.value, made.headers) <= RECORD_BYTES_MAX
    assert made.partition_key == record.topic.encode()
    return made


def read_back(made: Quarantined) -> Original:
    read = quarantine.read(made.headers, made.key, made.value)
    assert isinstance(read, Original)
    return read


def test_what_a_person_reads() -> None:
    made = written(Came())
    assert (made.key, made.value) == (b"k", b"{}")
    assert made.headers == [
        ("hub-reason", b"not_utf8"),
        ("hub-detail", b"ce-id"),
        ("hub-origin-topic", TOPIC.encode()),
        ("hub-origin-partition", b"3"),
        ("hub-origin-offset", b"42"),
        ("hub-schema", b"1"),
        *Came().headers,
    ]


@pytest.mark.parametrize(
    "record",
    [
        Came(),
        Came(headers=()),
        Came(key=None),
        Came(key=b""),
        Came(value=None),
        Came(value=b""),
        Came(key=None, value=None),
        Came(headers=(("a", None), ("b", b""), ("a", None))),
        Came(headers=tuple((f"h{i}", b"") for i in range(1_000))),
        Came(headers=(("hub-schema", b"9"), ("hub-origin-offset", b"x"), ("hub-payload-omitted", b"true"))),
        Came(headers=(("hub-nulls", b"0"), ("x" * 65_536, b"y" * 65_536))),
        Came(value=b"v" * (2 << 20)),
        Came(headers=(("x-\udcff", b"1"), (r"\xff", b"2"), ("é\udc80\\", None), (r"\\xff" + "\udcfe", b"3"))),
    ],
    ids=lambda record: f"{len(record.headers)} headers",
)
def test_what_comes_back_is_what_came(record: Came) -> None:
    read = read_back(written(record))
    assert (read.key, read.value, read.headers) == (record.key, record.value, record.headers)
    assert (read.topic, read.partition, read.offset) == (record.topic, record.partition, record.offset)
    assert (read.reason, read.detail, read.payload_bytes) == ("not_utf8", "ce-id", 0)


def test_a_name_that_is_not_utf8_is_written_so_that_people_read_it() -> None:
    made = written(Came(headers=(("ok", b"1"), ("x-\udcff\udcfe", b"2"))))
    assert [name.encode() for name, _ in made.headers[-2:]] == [b"ok", rb"x-\xff\xfe"]
    assert ("hub-names", b"1") in made.headers


def test_too_large_a_value_is_left_out() -> None:
    made = written(Came(value=b"v" * RECORD_BYTES_MAX))
    read = read_back(made)
    assert (read.value, read.payload_bytes, read.headers) == (None, RECORD_BYTES_MAX, Came().headers)
    assert ("hub-payload-omitted", b"true") in made.headers


def test_too_large_headers_are_left_out() -> None:
    record = Came(headers=tuple((f"x-{i}", b"x" * 65_536) for i in range(50)))
    made = written(record)
    read = read_back(made)
    assert (read.headers, read.key) == ((), b"k")
    assert ("hub-headers-omitted", b"50") in made.headers


def test_too_large_a_key_is_left_out() -> None:
    made = written(Came(key=b"k" * RECORD_BYTES_MAX, value=None))
    assert made.key == b""
    assert ("hub-key-omitted", b"true") in made.headers
    assert read_back(made).topic == TOPIC


def test_leaving_the_value_out_on_request() -> None:
    """When a broker takes less than it was set to."""
    made = quarantine.without_value(written(Came(headers=(("hub-schema", b"9"), ("x", b"1")))))
    read = read_back(made)
    assert (made.value, read.value, read.payload_bytes) == (b"", None, 2)
    assert read.headers == (("hub-schema", b"9"), ("x", b"1"))


def test_a_collision_keeps_the_origin_of_its_fact() -> None:
    event: Pairs = (
        ("ce-specversion", b"1.0"),
        ("ce-id", b"1"),
        ("ce-source", b"lender"),
        ("ce-type", b"studio.lerian.lender.loan.made"),
        ("ce-time", b"2026-01-02T03:04:05Z"),
        ("ce-schemaversion", b"1"),
        ("ce-resourcetype", b"loan"),
        ("ce-eventtype", b"made"),
        ("ce-tenantid", b"acme"),
    )
    accept = judge(TOPIC, event, b"", default_tenant=None)
    assert isinstance(accept, Accept)
    fact = Came("hub.facts", 0, 1, b"acme", b"", tuple(facts.write(accept, received_at_ms=1, origin=(3, 42))))
    read = read_back(quarantine.write(fact, reason="id_collision", detail="seq 1"))
    assert (read.topic, read.partition, read.offset) == (TOPIC, 3, 42)
    published = fact._replace(headers=tuple(facts.write(accept, received_at_ms=1, origin=None)))
    read = read_back(quarantine.write(published, reason="id_collision", detail=""))
    assert (read.topic, read.partition, read.offset) == ("hub.facts", 0, 1)


def test_a_producer_cannot_say_where_its_record_came_from() -> None:
    forged = (("hub-topic", b"other"), ("hub-origin-partition", b"9"), ("hub-origin-offset", b"9"))
    read = read_back(written(Came(headers=forged)))
    assert (read.topic, read.partition, read.offset) == (TOPIC, 3, 42)


def test_details_are_cut() -> None:
    made = quarantine.write(Came(), reason="not_utf8", detail="é" * 1_000)
    assert len(dict(made.headers[:6])["hub-detail"]) <= DETAIL_BYTES_MAX


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("hub-reason", b"\xff"),
        ("hub-detail", b"\xff"),
        ("hub-origin-topic", b"\xff"),
        ("hub-origin-partition", b"-1"),
        ("hub-origin-offset", b""),
        ("hub-schema", b"2"),
    ],
)
def test_records_that_make_no_sense(name: str, data: bytes) -> None:
    headers = written(Came(headers=())).headers
    assert isinstance(quarantine.read([(n, data if n == name else d) for n, d in headers], b"", b""), Unreadable)
    assert isinstance(quarantine.read([(n, d) for n, d in headers if n != name], b"", b""), Unreadable)


def test_a_record_made_by_hand_in_another_order() -> None:
    headers = written(Came(headers=(("x", b"1"),))).headers
    read = quarantine.read(headers[::-1], b"k", b"{}")
    assert isinstance(read, Original)
    assert read.headers == (("x", b"1"),)
    assert isinstance(quarantine.read((), None, None), Unreadable)
