"""`hub.dlq`: deliveries given up; always small enough to be written (faults, row 7)."""

from __future__ import annotations

import pytest

from hub_app.domain.delivery import Job
from hub_app.domain.limits import HEADERS_BYTES_MAX, PAYLOAD_BYTES_MAX, RECORD_BYTES_MAX
from hub_app.wire import dead_letters, jobs
from hub_app.wire.dead_letters import DeadLetter
from hub_app.wire.record import Unreadable, record_bytes

AT = 1_767_323_045_678
EVENT = (("ce-id", b"evt-1"), ("x", b"\xff"))
JOB = Job(b"\x01" * 16, 8, 0, "acme", "https://x/in", "sub_1", "", 7, "lender", AT - 1_000, 0, 5, 0)


def test_what_a_person_reads() -> None:
    made = dead_letters.write(JOB, EVENT, b"{}", reason="exhausted", at_ms=AT, status=503, error="http_503")
    assert made.key == b"acme"
    assert made.value == b"{}"
    assert made.headers == [
        ("hub-reason", b"exhausted"),
        ("hub-status", b"503"),
        ("hub-error", b"http_503"),
        ("hub-died-at", b"2026-01-02T03:04:05.678Z"),
        *jobs.write(JOB, EVENT),
    ]


@pytest.mark.parametrize("status", [None, 503])
def test_what_comes_back(status: int | None) -> None:
    made = dead_letters.write(JOB, EVENT, b"{}", reason="expired", at_ms=AT, status=status, error="timeout")
    expected = DeadLetter(JOB, "expired", AT, status, "timeout", EVENT, b"{}", 2)
    assert dead_letters.read(made.headers, made.value) == expected
    assert dead_letters.read(made.headers[::-1], made.value) == expected._replace(headers=EVENT[::-1])


def test_the_largest_delivery_fits_whole() -> None:
    headers = [("x", b"x" * (HEADERS_BYTES_MAX - 1))]
    made = dead_letters.write(JOB, headers, b"v" * PAYLOAD_BYTES_MAX, reason="poisoned", at_ms=AT, error="e" * 5_000)
    assert made.value == b"v" * PAYLOAD_BYTES_MAX
    assert record_bytes(made.key, made.value, made.headers) <= RECORD_BYTES_MAX


def test_what_would_not_fit_goes_without_its_payload_and_says_so() -> None:
    made = dead_letters.write(JOB, EVENT, b"v" * RECORD_BYTES_MAX, reason="exhausted", at_ms=AT)
    assert ("hub-payload-omitted", b"true") in made.headers
    assert record_bytes(made.key, made.value, made.headers) <= RECORD_BYTES_MAX
    read = dead_letters.read(made.headers, made.value)
    assert read == DeadLetter(JOB, "exhausted", AT, None, "", EVENT, None, RECORD_BYTES_MAX)


@pytest.mark.parametrize(
    ("name", "data"),
    [("hub-reason", b"\xff"), ("hub-status", b"x"), ("hub-error", b"\xff"), ("hub-died-at", b"x"), ("hub-seq", b"x")],
)
def test_records_that_make_no_sense(name: str, data: bytes) -> None:
    made = dead_letters.write(JOB, EVENT, b"{}", reason="expired", at_ms=AT)
    headers = [(n, data if n == name else d) for n, d in made.headers]
    assert isinstance(dead_letters.read(headers, b""), Unreadable)


@pytest.mark.parametrize("name", ["hub-reason", "hub-died-at", "hub-delivery-id"])
def test_records_that_lack_something(name: str) -> None:
    made = dead_letters.write(JOB, EVENT, b"{}", reason="expired", at_ms=AT)
    assert isinstance(dead_letters.read([(n, d) for n, d in made.headers if n != name], b""), Unreadable)


def test_a_null_payload_is_empty() -> None:
    made = dead_letters.write(JOB, EVENT, b"", reason="expired", at_ms=AT)
    read = dead_letters.read(made.headers, None)
    assert isinstance(read, DeadLetter)
    assert read.value == b""
