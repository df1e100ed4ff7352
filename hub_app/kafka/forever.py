"""Loops that never end, and logs that do not flood."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.standing import Standing
from hub_app.ports import Entropy

log = logging.getLogger(__name__)


async def run_forever(
    name: str,
    step: Callable[[], Awaitable[None]],
    *,
    standing: Standing,
    entropy: Entropy,
    first_ms: int = 100,
    cap_ms: int = 30_000,
) -> None:
    """Calls `step` again and again. An exception is logged (rate-limited), reported to `standing` under `name`, and
    followed by a growing, capped, jittered delay; the next success clears it. Only cancellation ends it."""
    failures = 0
    while True:
        try:
            await step()
        except Exception as exc:  # the loop outlives whatever its step meets
            failures += 1
            standing.report(name, describe(exc))
            log.warning("%s failed and is tried again: %s", name, describe(exc), exc_info=failures == 1)
            await asyncio.sleep(delay_ms(failures, entropy.draw(), first_ms=first_ms, cap_ms=cap_ms) / 1000)
        else:
            if failures:
                failures = 0
                standing.clear(name)


def describe(exc: BaseException) -> str:
    """One line for people: the class and what it says."""
    said = " ".join(str(exc).split())
    return f"{type(exc).__name__}: {said[:300]}" if said else type(exc).__name__


class RateLimit(logging.Filter):
    """Lets at most `burst` records of one logger and template pass per `period_ms`; the next one that passes says how
    many were left out. At most `templates_max` templates are remembered (then all are forgotten)."""

    def __init__(self, *, burst: int = 3, period_ms: int = 10_000, templates_max: int = 1_000) -> None:
        super().__init__()
        self._burst = burst
        self._period_s = period_ms / 1000
        self._templates_max = templates_max
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Uses the record's own creation time."""
        key = (record.name, str(record.msg))
        start, count = self._seen.get(key, (record.created, 0))
        if record.created - start >= self._period_s:
            if count > self._burst:
                record.msg = f"{record.msg} [{count - self._burst} like it left out]"
            start, count = record.created, 0
        if len(self._seen) >= self._templates_max:
            self._seen.clear()
        self._seen[key] = (start, count + 1)
        return count < self._burst


def quiet_libraries(*, burst: int = 3, period_ms: int = 10_000) -> RateLimit:
    """aiokafka, faust and mode: level WARNING, rate-limited. Called once by the composition.

    A logger's filter does not see its children's records, so every existing logger below those names gets it, and the
    names that do the talking in an outage are made here if they do not exist yet."""
    limit = RateLimit(burst=burst, period_ms=period_ms)
    talkers: tuple[str, ...] = (
        "aiokafka",
        "aiokafka.conn",
        "aiokafka.client",
        "aiokafka.consumer.fetcher",
        "faust",
        "mode",
    )
    talkers += ("aiokafka.consumer.group_coordinator", "aiokafka.producer.sender", "aiokafka.cluster")
    known = [n for n in logging.root.manager.loggerDict if n.partition(".")[0] in ("aiokafka", "faust", "mode")]
    for name in {*talkers, *known}:
        logger = logging.getLogger(name)
        logger.addFilter(limit)
        if logger.level < logging.WARNING:
            logger.setLevel(logging.WARNING)
    return limit
