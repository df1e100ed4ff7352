"""Loops that never end."""

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
    """Calls `step` again and again. An exception is logged, reported to `standing` under `name`, and
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
