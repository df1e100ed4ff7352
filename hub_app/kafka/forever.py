"""Loops that never end, and logs that do not flood."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from hub_app.kafka.standing import Standing
from hub_app.ports import Entropy


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
    raise NotImplementedError


class RateLimit(logging.Filter):
    """Lets at most `burst` records of one logger and template pass per `period_ms`; the next one that passes says how
    many were left out."""

    def __init__(self, *, burst: int = 3, period_ms: int = 10_000) -> None:
        super().__init__()
        raise NotImplementedError


def quiet_libraries(*, burst: int = 3, period_ms: int = 10_000) -> None:
    """aiokafka, faust and mode: level WARNING, rate-limited. Called once by the composition."""
    raise NotImplementedError
