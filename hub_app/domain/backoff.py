"""The back-off curve: full jitter under a cap per failed attempt, and what `Retry-After` may do to it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

_DATE: Final = re.compile(
    r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<d>\d{2}) (?P<m>[A-Z][a-z]{2}) (?P<y>\d{4}) (?P<t>\d{2}:\d{2}:\d{2}) GMT"
    r"|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<d2>\d{2})-(?P<m2>[A-Z][a-z]{2})-(?P<y2>\d{2})"
    r" (?P<t2>\d{2}:\d{2}:\d{2}) GMT"
    r"|(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) (?P<m3>[A-Z][a-z]{2}) (?P<d3>[ \d]\d) (?P<t3>\d{2}:\d{2}:\d{2}) (?P<y3>\d{4})",
    re.ASCII,
)
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SECONDS_DIGITS_MAX: Final = 10
_UNITS: Final = ((3_600_000, "h"), (60_000, "m"), (1_000, "s"))
RETRY_AFTER_CHARS_MAX: Final = 64


class Curve:
    """Caps in ms by number of failed attempts: the cap after the n-th failure is `caps_ms[n - 1]`. Immutable."""

    __slots__ = ("attempts_max", "caps_ms", "tiers")

    caps_ms: tuple[int, ...]
    attempts_max: int
    tiers: tuple[str, ...]
    """One name per cap (`10s`, `5m`, `2h`, `1500ms`): the last part of its topic."""

    def __init__(self, caps_ms: tuple[int, ...]) -> None:
        if not caps_ms or any(cap <= 0 for cap in caps_ms):
            raise ValueError("a back-off curve needs one cap or more, each above zero")
        self.caps_ms = caps_ms
        self.attempts_max = len(caps_ms) + 1
        self.tiers = tuple(tier_name(cap) for cap in caps_ms)

    def __repr__(self) -> str:
        return f"Curve({','.join(self.tiers)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Curve) and other.caps_ms == self.caps_ms

    def __hash__(self) -> int:
        return hash(self.caps_ms)

    def delay_ms(self, failed: int, *, draw: float, asked_ms: int | None = None) -> int:
        """Milliseconds to wait after the `failed`-th failure (1-based): uniform in [0, cap) by `draw` in [0, 1).
        What the sink asked for may only lengthen it, never past the cap."""
        cap = self.caps_ms[failed - 1]
        drawn = int(draw * cap)
        if asked_ms is None:
            return drawn
        return max(drawn, min(asked_ms, cap))


def tier_name(cap_ms: int) -> str:
    """`10s`, `1m`, `2h`: in the largest unit that divides it."""
    for unit_ms, letter in _UNITS:
        if cap_ms % unit_ms == 0:
            return f"{cap_ms // unit_ms}{letter}"
    return f"{cap_ms}ms"


def retry_after_ms(text: str | None, *, now_ms: int) -> int | None:
    """What a `Retry-After` header asks for, in ms from `now_ms`; None when absent, garbage, negative, or past.
    Takes whole seconds and the three HTTP date forms (RFC 9110, 5.6.7), nothing else."""
    if text is None or len(text) > RETRY_AFTER_CHARS_MAX:
        return None
    text = text.strip(" \t")
    if text.isascii() and text.isdigit():
        digits = text.lstrip("0")
        if not digits:
            return None
        # A number too long to be meant is still "later than any cap".
        return (int(digits) if len(digits) <= _SECONDS_DIGITS_MAX else 10**_SECONDS_DIGITS_MAX) * 1000
    at_ms = _http_date_ms(text, now_ms)
    return at_ms - now_ms if at_ms is not None and at_ms > now_ms else None


def _http_date_ms(text: str, now_ms: int) -> int | None:
    found = _DATE.fullmatch(text)
    if found is None:
        return None
    part = found.groupdict()
    day = part["d"] or part["d2"] or part["d3"]
    month = part["m"] or part["m2"] or part["m3"]
    year = part["y"] or part["y2"] or part["y3"]
    hour, minute, second = (int(x) for x in (part["t"] or part["t2"] or part["t3"]).split(":"))
    if month not in _MONTHS:
        return None
    number = int(year)
    if part["y2"]:  # RFC 850: a year that would lie more than 50 years ahead is of the last century
        this_year = datetime.fromtimestamp(now_ms / 1000, UTC).year
        number += this_year - this_year % 100
        if number > this_year + 50:
            number -= 100
    try:
        at = datetime(number, _MONTHS.index(month) + 1, int(day), hour, minute, min(second, 59), tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp()) * 1000


DEFAULT_CURVE: Final = Curve((10_000, 60_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000))
