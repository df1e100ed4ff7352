"""What all records share: sizes, small parsers, and text fit to be kept."""

from __future__ import annotations

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from hub_app.domain.limits import ERROR_BYTES_MAX
from hub_app.wire.record import (
    carried,
    cut,
    error_text,
    instant,
    instant_or_zero,
    instant_text,
    mask,
    number,
    number_or_zero,
    own_headers,
    record_bytes,
    small,
    text,
)

Pairs = list[tuple[str, bytes | None]]


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, b"", []),
        (b"k", None, [("a", b"1"), ("b", None)]),
        (b"k" * 300, b"v" * 100_000, [("ce-id", b"x" * 256)] * 40),
        ("ç".encode(), b"v", [("é" * 100, b"\xff")] * 1_000),
    ],
)
def test_the_size_is_an_upper_bound_of_what_kafka_writes(
    key: bytes | None, value: bytes | None, headers: Pairs
) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    empty = builder.size()
    assert builder.append(0, 1, key, value, headers) is not None
    taken, said = builder.size() - empty, record_bytes(key, value, headers)
    assert taken <= said <= taken + 40 + 10 * len(headers)


def test_own_and_carried_headers_part_a_record() -> None:
    headers: Pairs = [("hub-a", b"1"), ("ce-id", b"x"), ("hub-a", b"2"), ("y", None), ("Hub-b", b""), ("hub-n", None)]
    assert own_headers(headers) == {"hub-a": b"2", "hub-n": b""}
    assert carried(headers) == (("ce-id", b"x"), ("y", b""), ("Hub-b", b""))
    assert carried(headers[1:2]) == (("ce-id", b"x"),)
    assert carried([("x", None)]) == (("x", b""),)
    assert carried([("xhub-x", b"1")]) == (("xhub-x", b"1"),)
    assert carried(()) == ()


@pytest.mark.parametrize(("data", "value"), [(b"0", 0), (b"7", 7), (b"007", 7), (b"9" * 18, 10**18 - 1)])
def test_counts(data: bytes, value: int) -> None:
    assert number(data) == small(data) == number_or_zero(data) == value


@pytest.mark.parametrize("data", [b"-1", b"+1", b" 1", b"1 ", b"1_0", b"1.0", b"x", "٣".encode(), b"9" * 19])
def test_what_is_no_count(data: bytes) -> None:
    for reader in (number, small, number_or_zero):
        with pytest.raises(ValueError, match="count"):
            reader(data)


def test_empty_is_zero_only_where_that_is_asked_for() -> None:
    assert number_or_zero(b"") == instant_or_zero(b"") == 0
    assert instant_text(0) == b""
    for reader in (number, small, instant):
        with pytest.raises(ValueError, match=r"count|instant"):
            reader(b"")


def test_instants() -> None:
    assert instant_text(1_767_323_045_678) == b"2026-01-02T03:04:05.678Z"
    assert instant(b"2026-01-02T03:04:05.678Z") == instant_or_zero(b"2026-01-02T03:04:05.678Z") == 1_767_323_045_678


def test_texts_are_utf_8_and_short() -> None:
    assert text("ação".encode()) == "ação"
    assert text(b"x" * 4096) == "x" * 4096
    for data in (b"\xff", b"x" * 4097):
        with pytest.raises(ValueError, match=r"utf-8|too long"):
            text(data)


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("connect to https://crm.example.com/in failed", "connect to https://crm.example.com/in failed"),
        ("https://user:pw@crm.example.com/in", "https://***@crm.example.com/in"),
        ("https://token@crm.example.com", "https://***@crm.example.com"),
        ("https://a@b@crm.example.com/x", "https://***@crm.example.com/x"),
        ("amqp://u:p@mq:5672/v", "amqp://***@mq:5672/v"),
        ("https://crm.example.com/a@b", "https://crm.example.com/a@b"),
        ("GET https://x/in?key=abc&b=1 gave 500", "GET https://x/in?*** gave 500"),
        ("path /in?sv=1&sig=abc%3D refused", "path /in?*** refused"),
        ("'https://x/in?a=b' \"y?c=d\"", "'https://x/in?***' \"y?***\""),
        ("https://x/in#access_token=abc", "https://x/in#***"),
        ("really? yes", "really? yes"),
        ("Authorization: Bearer eyJhbGciOi.x.y", "Authorization: *** ***"),
        ("header bearer abc123, next", "header bearer ***, next"),
        ("Basic dXNlcjpwYXNz refused", "Basic *** refused"),
        ("basic auth failed", "basic auth failed"),
        ("secret whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw is bad", "secret whsec_*** is bad"),
        ("shk_abc_DEF-ghi", "shk_***"),
        ('{"password":"hunter2","a":1}', '{"password":"***","a":1}'),
        ("access_token=abc&x=1", "access_token=***&x=1"),
        ("API-Key: 123 456", "API-Key: *** 456"),
        ("", ""),
    ],
)
def test_secrets_are_masked(said: str, kept: str) -> None:
    assert mask(said) == kept


def test_a_secret_at_the_bound_is_not_half_kept() -> None:
    said = "x" * 4000 + " https://user:" + "p" * 200 + "@host/"
    assert "user" not in mask(said)


@pytest.mark.parametrize(
    "piece",
    ["/", "://", "?", "#", "=", "a@", "://a@", "basic ", "token ", "token", "password\t=", "'", " ", "api_key:"],
)
def test_masking_costs_no_time(piece: str) -> None:
    """Bounded work whatever a sink answers; a quadratic expression would take minutes here."""
    for _ in range(20):
        mask(piece * (1_000_000 // len(piece)))


def test_errors_are_one_short_line() -> None:
    assert error_text("a\r\nb\x00\x1b[31mc\u2028d\n") == b"a b [31mc d"
    assert error_text("") == b""
    assert len(error_text("é" * 2_000)) == ERROR_BYTES_MAX
    assert error_text("x" + "é" * 2_000).decode() == "x" + "é" * 511  # never cut inside a character
    assert error_text("\ud800") == b""


def test_cutting() -> None:
    assert cut("abc", 3) == b"abc"
    assert cut("abcd", 3) == b"abc"
    assert cut("日本", 5) == "日".encode()
    assert cut("日本", 2) == b""
