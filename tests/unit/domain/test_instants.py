"""Instants: RFC 3339 at its edges, both ways."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hub_app.domain.instants import is_rfc3339, parse_rfc3339, rfc3339, rfc3339_bytes

BASE = 1_767_323_045_000  # 2026-01-02T03:04:05Z

GOOD = [
    ("2026-01-02T03:04:05Z", BASE),
    ("2026-01-02T03:04:05.678Z", BASE + 678),
    ("2026-01-02T03:04:05.6Z", BASE + 600),
    ("2026-01-02T03:04:05.67Z", BASE + 670),
    ("2026-01-02t03:04:05.678z", BASE + 678),
    ("2026-01-02T03:04:05.678999999Z", BASE + 678),  # nanoseconds are cut, not rounded
    ("2026-01-02T03:04:05.000000001Z", BASE),
    ("2026-01-02T03:04:05+00:00", BASE),
    ("2026-01-02T03:04:05-00:00", BASE),
    ("2026-01-02T05:34:05.5+02:30", BASE + 500),
    ("2026-01-01T20:04:05-07:00", BASE),
    ("2026-01-03T03:03:05+23:59", BASE),
    ("1970-01-01T00:00:00Z", 0),
    ("1969-12-31T23:59:59.999Z", -1),
    ("0000-01-01T00:00:00Z", -62_167_219_200_000),
    ("9999-12-31T23:59:59.999Z", 253_402_300_799_999),
    ("2024-02-29T00:00:00Z", 1_709_164_800_000),
    ("2000-02-29T00:00:00Z", 951_782_400_000),
    ("2016-12-31T23:59:60Z", 1_483_228_800_000),  # a leap second counts as the second after
    ("2016-12-31T23:59:60.5Z", 1_483_228_800_500),
    ("2017-01-01T00:59:60+01:00", 1_483_228_800_000),
    ("2015-06-30T23:59:60Z", 1_435_708_800_000),
]
BAD = [
    "",
    "2026-01-02",
    "2026-01-02T03:04:05",  # no offset
    "2026-01-02 03:04:05Z",
    "2026-1-2T03:04:05Z",
    "2026-01-02T03:04Z",
    "2026-01-02T24:00:00Z",
    "2026-01-02T03:60:05Z",
    "2026-01-02T03:04:61Z",
    "2026-01-02T03:04:60Z",  # no leap second can be there
    "2026-01-02T23:59:60Z",
    "2016-12-31T23:59:60+01:00",
    "2026-13-02T03:04:05Z",
    "2026-00-02T03:04:05Z",
    "2026-01-00T03:04:05Z",
    "2026-01-32T03:04:05Z",
    "2026-02-29T03:04:05Z",
    "1900-02-29T03:04:05Z",
    "2026-04-31T03:04:05Z",
    "2026-01-02T03:04:05.Z",
    "2026-01-02T03:04:05,5Z",
    "2026-01-02T03:04:05.1234567890Z",
    "2026-01-02T03:04:05+0100",
    "2026-01-02T03:04:05+24:00",
    "2026-01-02T03:04:05+01:60",
    "2026-01-02T03:04:05Z\n",
    " 2026-01-02T03:04:05Z",
    "2026-01-02T03:04:05.\u0663\u0664\u0665Z",  # digits, but not ASCII
    "\u0662\u0660\u0662\u0666-01-02T03:04:05.345Z",
    "2026-01-02T03:04:05.+12Z",
    "2026-01-02T03:04:05.1_2Z",
    "-026-01-02T03:04:05.678Z",
    "20260102T030405Z",
    "x" * 100_000,
]


@pytest.mark.parametrize(("text", "ms"), GOOD)
def test_instants_that_are(text: str, ms: int) -> None:
    assert parse_rfc3339(text) == ms
    assert is_rfc3339(text)


@pytest.mark.parametrize("text", BAD, ids=lambda text: ascii(text[:40]))
def test_instants_that_are_not(text: str) -> None:
    assert not is_rfc3339(text)
    with pytest.raises(ValueError, match=r"instant|day|second"):
        parse_rfc3339(text)


@pytest.mark.parametrize("ms", [0, 1, 999, 1_000, BASE + 7, -1, -86_400_000, 951_782_400_000, 4_102_444_800_000])
def test_what_is_written_is_what_datetime_writes(ms: int) -> None:
    expected = datetime.fromtimestamp(ms // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms % 1000:03d}Z"
    assert rfc3339(ms) == expected
    assert rfc3339_bytes(ms) == expected.encode()
    assert parse_rfc3339(expected) == ms


@pytest.mark.parametrize("ms", [-62_167_219_200_001, 253_402_300_800_000])
def test_years_that_rfc_3339_cannot_say(ms: int) -> None:
    with pytest.raises(ValueError, match="0000 to 9999"):
        rfc3339(ms)


def test_every_day_of_a_century_agrees_with_datetime() -> None:
    day_ms = 86_400_000
    for day in range(-3_000, 33_000):
        text = rfc3339(day * day_ms)
        assert text[:10] == datetime.fromtimestamp(day * 86_400, UTC).date().isoformat()
        assert parse_rfc3339(text) == day * day_ms
