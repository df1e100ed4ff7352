"""Delays that grow, are capped, and carry jitter."""

from __future__ import annotations


def delay_ms(failures: int, draw: float, *, first_ms: int = 100, cap_ms: int = 30_000) -> int:
    """Delay before the next try after `failures` (>= 1) failures in a row: doubling from `first_ms`, at most `cap_ms`,
    the upper half of it jittered by `draw` in [0, 1)."""
    ceiling = min(cap_ms, first_ms << min(failures - 1, 30))
    return ceiling // 2 + int(draw * (ceiling - ceiling // 2))
