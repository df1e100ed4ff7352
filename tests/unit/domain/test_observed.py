"""Every rule of producers' dead-letter headers (docs/wire.md)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.limits import RECORD_BYTES_MAX
from hub_app.domain.observed import CLASSES, Observed, Origin, observation_id, read
from hub_app.wire import observations
from hub_app.wire.record import Unreadable, record_bytes

P = "x-lerian-dlq-"
ALWAYS: list[tuple[str, bytes | None]] = [
    (P + "source-topic", b"lerian.streaming.lender"),
    (P + "error-class", b"validation_error"),
    (P + "error-message", b"no such field"),
    (P + "retry-count", b"3"),
    (P + "first-failure-at", b"2026-01-02T03:04:05Z"),
    (P + "producer-id", b"lender-7"),
]
CONSUMER: list[tuple[str, bytes | None]] = [
    (P + "source-partition", b"4"),
    (P + "source-offset", b"99"),
    (P + "cause-kind", b"brand_new_kind"),
]


def test_what_is_always_there() -> None:
    seen = read(ALWAYS)
    assert seen == Observed(
        "lerian.streaming.lender",
        "validation_error",
        "no such field",
        3,
        1_767_323_045_000,
        "lender-7",
        None,
        "",
        False,
        None,
        "",
        "",
        "",
    )


def test_what_a_consumer_adds_and_unknown_kinds_are_kept() -> None:
    seen = read([*ALWAYS, *CONSUMER])
    assert (seen.origin, seen.cause_kind) == (Origin("lerian.streaming.lender", 4, 99), "brand_new_kind")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("source-partition", b"-1"),
        ("source-partition", b"x"),
        ("source-partition", b"4294967296"),
        ("source-partition", None),
        ("source-offset", b"-1"),
        ("source-offset", b""),
        ("source-offset", b"9" * 30),
        ("source-offset", b"1.0"),
        ("source-topic", b""),
    ],
)
def test_the_origin_is_void_as_a_whole(name: str, value: bytes | None) -> None:
    assert read([*ALWAYS, *CONSUMER, (P + name, value)]).origin is None


@pytest.mark.parametrize("left_out", range(2))
def test_a_part_that_is_absent_leaves_no_origin(left_out: int) -> None:
    assert read([*ALWAYS, *CONSUMER[:left_out], *CONSUMER[left_out + 1 :]]).origin is None


def test_the_last_repeated_header_wins() -> None:
    seen = read([*ALWAYS, (P + "error-class", b"auth_error"), (P + "retry-count", b"x")])
    assert (seen.error_class, seen.retries) == ("auth_error", None)


def test_an_omitted_payload() -> None:
    seen = read([*ALWAYS, (P + "payload-omitted", b"true"), (P + "payload-bytes", b"2000000")])
    assert (seen.payload_omitted, seen.payload_bytes) == (True, 2_000_000)
    assert read([*ALWAYS, (P + "payload-omitted", b"TRUE")]).payload_omitted is False


def test_broken_attributes_and_another_source_are_normal() -> None:
    seen = read([*ALWAYS, ("ce-id", b"\xff\xfe"), ("ce-tenantid", b"a\x00b"), ("ce-source", b"someone-else")])
    assert (seen.event_id, seen.tenant) == ("\ufffd\ufffd", "a\x00b")


def test_every_class_and_unknown_ones() -> None:
    assert len(CLASSES) == 8
    for name in (*CLASSES, "brand_new_error"):
        assert read([(P + "error-class", name.encode())]).error_class == name


def test_duplicates_are_told_by_the_origin_not_by_the_event() -> None:
    one, two = read([*ALWAYS, *CONSUMER]), read([*ALWAYS, *CONSUMER, ("ce-id", b"other")])
    assert observation_id(one, "a.dlq", 0, 1) == observation_id(two, "b.dlq", 5, 6)
    bare = read([*ALWAYS, ("ce-id", b"same")])
    assert observation_id(bare, "a.dlq", 0, 1) != observation_id(bare, "a.dlq", 0, 2)
    other = read([*ALWAYS, *CONSUMER, (P + "source-offset", b"100")])
    assert observation_id(one, "a.dlq", 0, 1) != observation_id(other, "a.dlq", 0, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([n for n, _ in [*ALWAYS, *CONSUMER]]) | st.text(max_size=8),
            st.none() | st.binary(max_size=40),
        )
    ),
    st.none() | st.binary(max_size=64),
)
def test_reading_never_fails(headers: list[tuple[str, bytes | None]], value: bytes | None) -> None:
    made = observations.write("lerian.streaming.x.dlq", 0, 1, 5, headers, value)
    assert not isinstance(observations.read_value(made.value), Unreadable)


def test_a_record_is_cut_and_always_fits() -> None:
    headers = [(P + "error-message", b"\xff" * 300_000), ("ce-id", b"i" * 100_000)]
    made = observations.write("lerian.streaming.x.dlq", 0, 1, 5, headers, b"p" * (1 << 20))
    body = observations.read_value(made.value)
    assert not isinstance(body, Unreadable)
    assert (body["payload_bytes"], body["payload_cut"], len(body["payload_base64"])) == (1 << 20, True, 21_848)
    assert record_bytes(made.key, made.value, made.headers) < RECORD_BYTES_MAX


@pytest.mark.parametrize("value", [None, b"", b"x", b"[]", b"{}", b"\xff"])
def test_other_records_are_unreadable(value: bytes | None) -> None:
    assert isinstance(observations.read_value(value), Unreadable)
