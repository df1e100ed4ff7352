"""The system's clocks."""

from __future__ import annotations

import time


class SystemClock:
    """`hub_app.ports.Clock`."""

    __slots__ = ()

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        # Includes no suspend on Linux, like the timers of the event loop, so that both agree on how long a pause was.
        return time.monotonic_ns() // 1_000_000
