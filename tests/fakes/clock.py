"""A clock that a test moves."""

from __future__ import annotations


class FakeClock:
    """`hub_app.ports.Clock`. `advance` moves both clocks; `step` moves the wall clock alone, as an operator would."""

    def __init__(self, now_ms: int = 1_767_323_045_000) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = 1_000_000

    def now_ms(self) -> int:
        return self._now_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def advance(self, by_ms: int) -> None:
        if by_ms < 0:
            raise ValueError("time only grows; use step() to move the wall clock back")
        self._now_ms += by_ms
        self._monotonic_ms += by_ms

    def step(self, by_ms: int) -> None:
        self._now_ms += by_ms
