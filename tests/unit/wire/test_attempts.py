"""`hub.attempts`: outcomes, and the list of claims."""

from __future__ import annotations

import pytest

from hub_app.domain.delivery import Job, OutcomeKind
from hub_app.domain.limits import ANSWER_START_BYTES_MAX, CLAIMS_PER_RECORD_MAX, ERROR_BYTES_MAX, RECORD_BYTES_MAX
from hub_app.wire import attempts
from hub_app.wire.attempts import Claim, Claimed, Outcome
from hub_app.wire.record import Unreadable, record_bytes

AT = 1_767_323_045_678
EVENT = (("ce-id", b"evt-1"),)
JOB = Job(b"\x01" * 16, 3, 1, "acme", "https://x/in", "sub_1", "", 7, "lender", AT - 1_000, 0, 5, 0)
FAILED = Outcome(OutcomeKind.FAILED, JOB, AT, 250, 503, "http_503: try later", "", b"busy")
CLAIMS = [Claim(b"\x01" * 16, 1, 0, 0, AT), Claim(b"\xff" * 16, 8, 2, 4, AT + 12_000)]


def test_what_a_person_reads() -> None:
    assert attempts.write(FAILED, EVENT)[:6] == [
        ("hub-outcome", b"failed"),
        ("hub-status", b"503"),
        ("hub-error", b"http_503: try later"),
        ("hub-reason", b""),
        ("hub-at", b"2026-01-02T03:04:05.678Z"),
        ("hub-duration-ms", b"250"),
    ]
    own = dict(attempts.write(FAILED, EVENT))
    assert own["hub-delivery-id"] == b"01" * 16
    assert own["hub-attempt"] == b"3"
    assert own["ce-id"] == b"evt-1"
    assert own["hub-schema"] == b"1"


@pytest.mark.parametrize("kind", [kind for kind in OutcomeKind if kind is not OutcomeKind.CLAIMED])
@pytest.mark.parametrize("status", [None, 200, 503])
def test_what_comes_back(kind: OutcomeKind, status: int | None) -> None:
    outcome = FAILED._replace(kind=kind, status=status, reason="exhausted" if kind == "dead" else "")
    headers = attempts.write(outcome, EVENT)
    assert attempts.read(headers, attempts.value(outcome)) == outcome
    assert attempts.read([*reversed(headers)], attempts.value(outcome)) == outcome


def test_only_the_start_of_an_answer_is_kept() -> None:
    assert attempts.value(FAILED._replace(answer=b"x" * 5_000)) == b"x" * ANSWER_START_BYTES_MAX
    assert attempts.value(FAILED._replace(answer=b"x" * ANSWER_START_BYTES_MAX)) == b"x" * ANSWER_START_BYTES_MAX


def test_errors_are_masked_and_cut() -> None:
    error = "https://user:pw@x/in?token=abc \r\n" + "y" * 5_000
    written = dict(attempts.write(FAILED._replace(error=error)))["hub-error"]
    assert b"pw" not in written
    assert b"abc" not in written
    assert b"\n" not in written
    assert len(written) <= ERROR_BYTES_MAX


def test_claims_as_a_person_reads_them() -> None:
    (record,) = attempts.write_claimed(CLAIMS, AT)
    assert record.value == (
        b"01010101010101010101010101010101 1 0 0 2026-01-02T03:04:05.678Z\n"
        b"ffffffffffffffffffffffffffffffff 8 2 4 2026-01-02T03:04:17.678Z\n"
    )
    assert dict(record.headers)["hub-outcome"] == b"claimed"
    assert attempts.read(record.headers, record.value) == Claimed(tuple(CLAIMS))


def test_no_claims_make_no_record() -> None:
    assert list(attempts.write_claimed([], AT)) == []


def test_very_many_claims_make_several_records_that_fit() -> None:
    many = [CLAIMS[0]._replace(attempt=i + 1) for i in range(CLAIMS_PER_RECORD_MAX + 1)]
    records = list(attempts.write_claimed(iter(many), AT))
    assert len(records) == 2
    assert all(record_bytes(record.key, record.value, record.headers) < RECORD_BYTES_MAX for record in records)
    read = [attempts.read(record.headers, record.value) for record in records]
    assert [claim for claimed in read if isinstance(claimed, Claimed) for claim in claimed.claims] == many


@pytest.mark.parametrize(
    "value",
    [
        b"x",
        b"01 1 0 0 2026-01-02T03:04:05.678Z\n",
        b"z" * 32 + b" 1 0 0 2026-01-02T03:04:05.678Z\n",
        b"01" * 16 + b" 1 0 2026-01-02T03:04:05.678Z\n",
        b"01" * 16 + b" -1 0 0 2026-01-02T03:04:05.678Z\n",
        b"01" * 16 + b" 1 0 0 soon\n",
        b"01" * 16 + b" 1 0 0 \xff\n",
        b"01" * 16 + b"  1 0 0 2026-01-02T03:04:05.678Z\n",
        b"\n",
    ],
)
def test_claims_that_make_no_sense(value: bytes) -> None:
    (record,) = attempts.write_claimed(CLAIMS, AT)
    assert isinstance(attempts.read(record.headers, value), Unreadable)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("hub-outcome", b"won"),
        ("hub-outcome", b"claimed"),
        ("hub-outcome", None),
        ("hub-status", b"ok"),
        ("hub-error", b"\xff"),
        ("hub-at", b""),
        ("hub-duration-ms", b"-1"),
        ("hub-delivery-id", b"1"),
        ("hub-schema", b"2"),
    ],
)
def test_outcomes_that_make_no_sense(name: str, data: bytes | None) -> None:
    headers: list[tuple[str, bytes | None]] = [(n, data if n == name else d) for n, d in attempts.write(FAILED, EVENT)]
    assert isinstance(attempts.read(headers, b""), Unreadable)
    assert isinstance(attempts.read([(n, d) for n, d in headers if n != name], b""), Unreadable)


def test_foreign_records() -> None:
    assert isinstance(attempts.read((), None), Unreadable)
    assert isinstance(attempts.read(EVENT, b"x"), Unreadable)
    assert isinstance(attempts.read([("hub-outcome", b"claimed")], b""), Unreadable)
