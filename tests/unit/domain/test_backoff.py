"""The curve, its names, and Retry-After."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.backoff import DEFAULT_CURVE, Curve, retry_after_ms, tier_name

NOW = 1_767_323_045_678  # 2026-01-02T03:04:05.678Z


def test_the_default_curve() -> None:
    assert DEFAULT_CURVE.tiers == ("10s", "1m", "5m", "30m", "2h", "5h", "10h")
    assert DEFAULT_CURVE.attempts_max == 8
    assert repr(DEFAULT_CURVE) == "Curve(10s,1m,5m,30m,2h,5h,10h)"
    assert Curve(DEFAULT_CURVE.caps_ms) == DEFAULT_CURVE and hash(Curve((1,))) == hash(Curve((1,)))
    assert Curve((1,)) != Curve((2,))


@pytest.mark.parametrize(
    ("cap_ms", "name"),
    [
        (1, "1ms"),
        (250, "250ms"),
        (1_000, "1s"),
        (1_500, "1500ms"),
        (90_000, "90s"),
        (60_000, "1m"),
        (86_400_000, "24h"),
    ],
)
def test_tier_names(cap_ms: int, name: str) -> None:
    assert tier_name(cap_ms) == name


@pytest.mark.parametrize("caps", [(), (0,), (10, -1)])
def test_no_curve_without_caps(caps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="cap"):
        Curve(caps)


caps = st.lists(st.integers(1, 10**9), min_size=1, max_size=10)
draws = st.floats(0, 1, exclude_max=True)


@given(caps, st.data(), draws)
def test_full_jitter_stays_below_the_cap(caps_ms: list[int], data: st.DataObject, draw: float) -> None:
    failed = data.draw(st.integers(1, len(caps_ms)))
    delay = Curve(tuple(caps_ms)).delay_ms(failed, draw=draw)
    assert 0 <= delay < caps_ms[failed - 1]


@given(caps, st.data(), draws, st.integers(0, 10**12))
def test_what_is_asked_only_lengthens_and_never_past_the_cap(
    caps_ms: list[int], data: st.DataObject, draw: float, asked: int
) -> None:
    curve = Curve(tuple(caps_ms))
    failed = data.draw(st.integers(1, len(caps_ms)))
    drawn, with_asked = (curve.delay_ms(failed, draw=draw, asked_ms=a) for a in (None, asked))
    assert drawn <= with_asked <= caps_ms[failed - 1]
    assert with_asked in (drawn, asked, caps_ms[failed - 1])


def test_jitter_is_uniform_at_its_ends() -> None:
    curve = Curve((1_000,))
    assert curve.delay_ms(1, draw=0.0) == 0
    assert curve.delay_ms(1, draw=0.9999) == 999


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("", None),
        ("0", None),
        ("000", None),
        ("1", 1_000),
        (" 120\t", 120_000),
        ("0120", 120_000),
        ("99999999", 99_999_999_000),
        ("9" * 60, 10**13),
        ("9" * 65, None),
        ("-5", None),
        ("+5", None),
        ("1.5", None),
        ("1e3", None),
        ("١٢", None),  # digits, but not ASCII's
        ("abc", None),
        ("10 s", None),
        # The three forms of a date, in the future, now and past.
        ("Fri, 02 Jan 2026 03:05:05 GMT", 59_322),
        ("Friday, 02-Jan-26 03:05:05 GMT", 59_322),
        ("Fri Jan  2 03:05:05 2026", 59_322),
        ("Fri, 02 Jan 2026 03:04:06 GMT", 322),
        ("Fri, 02 Jan 2026 03:04:05 GMT", None),
        ("Thu, 01 Jan 1970 00:00:00 GMT", None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None),
        ("Fri, 02 Jan 2026 03:05:60 GMT", 113_322),  # a leap second is the one before
        # Almost dates.
        ("Fri, 2 Jan 2026 03:05:05 GMT", None),
        ("Fri, 02 Jan 2026 03:05:05 UTC", None),
        ("Fri, 02 Jan 2026 03:05:05 +0000", None),
        ("Fri, 32 Jan 2026 03:05:05 GMT", None),
        ("Fri, 30 Feb 2026 03:05:05 GMT", None),
        ("Fri, 02 Foo 2026 03:05:05 GMT", None),
        ("Fri, 02 Jan 2026 24:05:05 GMT", None),
        ("Fri, 02 Jan 0000 03:05:05 GMT", None),
        ("2026-01-02T03:05:05Z", None),
    ],
)
def test_row_19_retry_after(text: str | None, expected: int | None) -> None:
    assert retry_after_ms(text, now_ms=NOW) == expected


def test_a_year_of_two_digits_far_ahead_is_of_the_last_century() -> None:
    assert retry_after_ms("Friday, 02-Jan-76 03:05:05 GMT", now_ms=NOW) is not None
    assert retry_after_ms("Saturday, 02-Jan-77 03:05:05 GMT", now_ms=NOW) is None


@given(st.text())
def test_any_text_is_harmless(text: str) -> None:
    asked = retry_after_ms(text, now_ms=NOW)
    assert asked is None or asked > 0
