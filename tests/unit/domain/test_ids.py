"""Identities: stable across versions (they are stored and sent), and never shared by two things."""

from __future__ import annotations

import pytest

from hub_app.domain.ids import (
    SEP,
    delivery_id,
    destination_key,
    event_id,
    identity_key,
    seq_of,
    split_seq,
    subscription_id,
    tenant_key,
)


def test_a_seq_is_epoch_and_offset() -> None:
    assert seq_of(0, 0) == 0
    assert seq_of(1, 7) == (1 << 40) + 7
    assert split_seq(seq_of(3, 123_456_789)) == (3, 123_456_789)
    assert seq_of(1, 0) > seq_of(0, (1 << 40) - 1)


def test_ids_stay_what_they_are() -> None:
    """They are in logs and in sinks: a change here is a change of the wire."""
    assert delivery_id("acme", 7, "sub_1").hex() == "48edb63054ab8d59457a66b24d946ec3"
    assert event_id("acme", "lender", "lender", "evt-1") == "evt_db8a15ad3bc99c5eeed317cba046f6a4"
    assert subscription_id("acme", "k") == "sub_b6dz7lb2ekxoxvwh4c7z27yczy"


@pytest.mark.parametrize(
    "other",
    [
        delivery_id("acmf", 7, "sub_1"),
        delivery_id("acme", 8, "sub_1"),
        delivery_id("acme", 7, "sub_2"),
        delivery_id("acme", 7, "sub_1", "op_1"),
    ],
)
def test_every_part_makes_another_delivery(other: bytes) -> None:
    assert other != delivery_id("acme", 7, "sub_1")
    assert len(other) == 16


def test_every_part_makes_another_event() -> None:
    parts = ("acme", "lender", "lender", "1")
    changed = {event_id(*parts[:i], parts[i] + "x", *parts[i + 1 :]) for i in range(4)}
    assert len(changed | {event_id(*parts)}) == 5
    # The same id from two applications of one tenant, and in two tenants.
    assert event_id("a", "x", "x", "1") != event_id("a", "y", "y", "1") != event_id("b", "y", "y", "1")


def test_an_id_may_hold_anything_for_it_stands_last() -> None:
    assert identity_key("a", "t", "s", f"x{SEP}y") != identity_key("a", "t", f"s{SEP}x", "z")
    assert identity_key("a", "t", "s", f"x{SEP}y").split(SEP.encode(), 3) == [b"a", b"t", b"s", f"x{SEP}y".encode()]


def test_keys() -> None:
    assert tenant_key("ação") == "ação".encode()
    assert destination_key("acme", "https://x/in") == b"acme\x1fhttps://x/in"


def test_a_subscription_id_is_its_creation_s() -> None:
    made = subscription_id("acme", "key-1")
    assert made == subscription_id("acme", "key-1") != subscription_id("acme", "key-2")
    assert made.startswith("sub_")
    assert len(made) == 30
    assert made[4:].isalnum()
    assert made == made.lower()
