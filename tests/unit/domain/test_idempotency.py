"""Answers that are repeated: for whom, for how long, and how many."""

from __future__ import annotations

import pytest

from hub_app.domain.idempotency import (
    ANSWER_BYTES_MAX,
    ANSWERS_BYTES_MAX,
    ANSWERS_MAX,
    Answer,
    Claim,
    Clash,
    find,
    key_digest,
    remember,
)

NOW_MS, TTL_MS = 1_767_323_045_000, 24 * 3_600_000


def answer(key: str, digest: str = "d", at_ms: int = NOW_MS, text: str = "201") -> Answer:
    return Answer(key_digest("acme", key), digest, at_ms, text)


@pytest.mark.parametrize(
    ("claim", "now_ms", "expected"),
    [
        (Claim("k1", "d"), NOW_MS, answer("k1")),
        (Claim("k1", "other"), NOW_MS, Clash.OTHER_REQUEST),
        (Claim("k2", "d"), NOW_MS, None),
        (Claim("k1", "d"), NOW_MS + TTL_MS - 1, answer("k1")),
        (Claim("k1", "d"), NOW_MS + TTL_MS, None),
        (Claim("k1", "other"), NOW_MS + TTL_MS, None),
    ],
)
def test_find(claim: Claim, now_ms: int, expected: object) -> None:
    assert find((answer("k0"), answer("k1")), "acme", claim, now_ms=now_ms, ttl_ms=TTL_MS) == expected


def test_a_key_is_one_tenants_own() -> None:
    assert find((answer("k1"),), "other", Claim("k1", "d"), now_ms=NOW_MS, ttl_ms=TTL_MS) is None
    assert "k1" not in key_digest("acme", "k1")


def test_the_newest_stand_first_and_the_old_ones_go() -> None:
    kept = remember((answer("a"), answer("b", at_ms=NOW_MS - TTL_MS), answer("c")), answer("new"), ttl_ms=TTL_MS)
    assert kept == (answer("new"), answer("a"), answer("c"))


def test_an_answer_replaces_the_one_of_the_same_key() -> None:
    old = answer("a", at_ms=NOW_MS - TTL_MS + 1)
    assert remember((old, answer("b")), answer("a", "d2"), ttl_ms=TTL_MS) == (answer("a", "d2"), answer("b"))


def test_answers_are_bounded_in_number_and_size() -> None:
    many = tuple(answer(f"k{n}") for n in range(20))
    assert remember(many, answer("new"), ttl_ms=TTL_MS) == (answer("new"), *many[: ANSWERS_MAX - 1])
    large = tuple(answer(f"k{n}", text="x" * 50_000) for n in range(5))
    kept = remember(large, answer("new", text="x" * ANSWER_BYTES_MAX), ttl_ms=TTL_MS)
    assert sum(len(row.text) for row in kept[1:]) <= ANSWERS_BYTES_MAX
    assert len(kept) == 3
    with pytest.raises(ValueError, match="too large"):
        remember((), answer("new", text="ü" * ANSWER_BYTES_MAX), ttl_ms=TTL_MS)
