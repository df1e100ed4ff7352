"""What dispatch looks after beside its attempts, about once a second."""

from __future__ import annotations

import asyncio

from agents.health import SinkHealth
from agents.lasts import LastAttempts
from agents.parking import Parking

EVERY_S = 1.0


class Upkeep:
    def __init__(self, health: SinkHealth, lasts: LastAttempts, parking: Parking) -> None:
        self._health, self._lasts, self._parking = health, lasts, parking

    async def step(self) -> None:
        """One round, after a while."""
        await asyncio.sleep(EVERY_S)
        self._health.check()
        self._lasts.look()
        await self._parking.look()
