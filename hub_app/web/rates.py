"""Rate caps per key: token buckets in the worker that serves the tenant's shard. They start full when the shard moves,
and an admin has one in each worker, so a cap is approximate."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from aiohttp import web

from hub_app.ports import Clock
from hub_app.settings import RateLimit, Settings
from hub_app.web.problems import Problem

PULL, READ, WRITE, STANDARD = "pull", "read", "write", "standard"
BUCKETS_MAX: Final = 10_000  # keys remembered; the longest unused goes first, and starts full when it comes back


class Granted(NamedTuple):
    """What the `RateLimit-*` fields say. `limit` 0: no cap applies."""

    limit: int
    remaining: int
    reset_s: int


class _Bucket:
    __slots__ = ("at_ms", "tokens")

    def __init__(self, tokens: float, at_ms: int) -> None:
        self.tokens, self.at_ms = tokens, at_ms


class RateCaps:
    """Pull has a rate and a burst; management routes have windows, one for reads, one for writes and one for the rest,
    and the settings can turn those off."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._clock = clock
        self._caps: dict[str, tuple[float, int]] = {PULL: (settings.pull_rate / 1000, settings.pull_burst)}
        if settings.rate_limit_enabled:
            self._caps[READ] = _window(settings.rate_limit_reads)
            self._caps[WRITE] = _window(settings.rate_limit_writes)
            self._caps[STANDARD] = _window(settings.rate_limit)
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def take(self, rate: str, key_id: str) -> Granted | Problem:
        cap = self._caps.get(rate)
        if cap is None:
            return Granted(0, 0, 0)
        per_ms, burst = cap
        bucket = self._bucket((rate, key_id), burst)
        now_ms = self._clock.monotonic_ms()
        bucket.tokens = min(float(burst), bucket.tokens + (now_ms - bucket.at_ms) * per_ms)
        bucket.at_ms = now_ms
        if bucket.tokens < 1:
            wait_s = _seconds((1 - bucket.tokens) / per_ms)
            return _too_many(burst, wait_s)
        bucket.tokens -= 1
        return Granted(burst, int(bucket.tokens), _seconds((burst - bucket.tokens) / per_ms))

    def _bucket(self, name: tuple[str, str], burst: int) -> _Bucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            bucket = self._buckets[name] = _Bucket(burst, self._clock.monotonic_ms())
            if len(self._buckets) > BUCKETS_MAX:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(name)
        return bucket


def with_rate_headers(answer: web.StreamResponse | Problem, granted: Granted) -> web.StreamResponse | Problem:
    """Adds the fields to an answer."""
    if isinstance(answer, web.StreamResponse) and granted.limit:
        answer.headers.update(_fields(granted))
    return answer


def _window(limit: RateLimit) -> tuple[float, int]:
    return limit.requests_max / (limit.window_s * 1000), limit.requests_max


def _seconds(ms: float) -> int:
    return max(1, -int(-ms // 1000))


def _fields(granted: Granted) -> dict[str, str]:
    return {
        "RateLimit-Limit": str(granted.limit),
        "RateLimit-Remaining": str(granted.remaining),
        "RateLimit-Reset": str(granted.reset_s),
    }


def _too_many(limit: int, wait_s: int) -> Problem:
    headers = {"Retry-After": str(wait_s), **_fields(Granted(limit, 0, wait_s))}
    detail = f"this key has used up its requests; come again in {wait_s} s"
    return Problem(429, "rate", "Too many requests", detail, headers=headers)
