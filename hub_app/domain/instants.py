"""Instants: integer milliseconds since the epoch inside, RFC 3339 text outside.

Durations on the wire of settings (`250ms`, `10s`) are no business of this file.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hub_app.domain.limits import SECONDS_MAX

_DAY_S = 86_400

# Every range but the length of a month and the place of a leap second is in the expression. ASCII digits only.
_RFC3339 = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):([0-5][0-9]):([0-5][0-9]|60)"
    r"(?:\.([0-9]{1,9}))?(?:[Zz]|([+-])([01][0-9]|2[0-3]):([0-5][0-9]))"
)
_MONTH_DAYS = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def rfc3339(ms: int) -> str:
    """`2026-01-02T03:04:05.678Z`: UTC, always three digits. ValueError outside the years 0000 to 9999."""
    second, rest = divmod(ms, 1000)
    return f"{_second_text(second)}.{rest:03d}Z"


def rfc3339_bytes(ms: int) -> bytes:
    """The same as `rfc3339`, for headers."""
    second, rest = divmod(ms, 1000)
    return b"%b.%03dZ" % (_second_bytes(second), rest)


def parse_rfc3339(text: str) -> int:
    """Milliseconds of an RFC 3339 instant: any offset, up to nine digits of fraction (cut, not rounded), `t` and `z` in
    either case, a leap second where one can be (23:59:60 UTC at the end of a month; it counts as the second after).
    ValueError for anything else."""
    if len(text) == 24 and text[19] == "." and text[23] == "Z" and text[20:23].isdigit() and text.isascii():
        return _second_of(text[:19]) * 1000 + int(text[20:23])
    return _parse(text)


def is_rfc3339(text: str) -> bool:
    """Whether `parse_rfc3339` would take the text; cheaper, and raises nothing."""
    found = _RFC3339.fullmatch(text)
    if found is None:
        return False
    if text[8] < "3" and text[8:10] != "29" and text[17] != "6":  # every month has 28 days
        return True
    try:
        _milliseconds(found)
    except ValueError:
        return False
    return True


@lru_cache(maxsize=SECONDS_MAX)
def _second_of(text: str) -> int:
    return _parse(text + "Z") // 1000


@lru_cache(maxsize=SECONDS_MAX)
def _second_text(second: int) -> str:
    days, rest = divmod(second, _DAY_S)
    year, month, day = _civil(days)
    if not 0 <= year <= 9999:
        raise ValueError("an instant outside the years 0000 to 9999")
    return f"{year:04d}-{month:02d}-{day:02d}T{rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"


@lru_cache(maxsize=SECONDS_MAX)
def _second_bytes(second: int) -> bytes:
    return _second_text(second).encode()


def _parse(text: str) -> int:
    found = _RFC3339.fullmatch(text)
    if found is None:
        raise ValueError("not an RFC 3339 instant")
    return _milliseconds(found)


def _milliseconds(found: re.Match[str]) -> int:
    year, month, day, hour, minute, second, fraction, sign, offset_hours, offset_minutes = found.groups()
    y, m, d = int(year), int(month), int(day)
    if d > _month_days(y, m):
        raise ValueError("no such day")
    offset = (int(offset_hours) * 3600 + int(offset_minutes) * 60) * (-1 if sign == "-" else 1) if sign else 0
    total = _days(y, m, d) * _DAY_S + int(hour) * 3600 + int(minute) * 60 + int(second) - offset
    if second == "60" and (total % _DAY_S or _civil(total // _DAY_S)[2] != 1):
        raise ValueError("no leap second can be there")
    return total * 1000 + int((fraction or "0").ljust(3, "0")[:3])


def _month_days(year: int, month: int) -> int:
    leap = month == 2 and year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    return _MONTH_DAYS[month] + leap


# Days <-> civil date in the proleptic Gregorian calendar, by eras of 400 years (Howard Hinnant, "chrono-compatible
# low-level date algorithms"): `datetime` knows no year 0, RFC 3339 does.
def _days(year: int, month: int, day: int) -> int:
    year -= month <= 2
    era, year_of_era = divmod(year, 400)
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + year_of_era * 365 + year_of_era // 4 - year_of_era // 100 + day_of_year - 719_468


def _civil(days: int) -> tuple[int, int, int]:
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return year_of_era + era * 400 + (month <= 2), month, day_of_year - (153 * shifted + 2) // 5 + 1
