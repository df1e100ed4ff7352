"""Who waits for new facts, and who tells them. A long poll waits here; the inbox step calls `notify` after its rows are
written, the shard's closing calls `notify_all` so that polls end at once when their shard moves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

WAITERS_MAX: Final = 10_000


class Arrivals:
    """One per process, used from the event loop's thread only. `notify` costs a set look-up when nobody waits."""

    def __init__(self) -> None:
        self._waiters: dict[str, set[asyncio.Future[None]]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def notify(self, tenant: str) -> None:
        for waiter in self._waiters.get(tenant, ()):
            if not waiter.done():
                waiter.set_result(None)

    def notify_many(self, tenants: Iterable[str]) -> None:
        if self._count:
            for tenant in tenants:
                self.notify(tenant)

    def notify_all(self) -> None:
        for tenant in self._waiters:
            self.notify(tenant)

    def enter(self, tenant: str) -> Waiting | None:
        """Registers interest *before* the caller looks at the table, so that nothing arrives unseen in between. None:
        too many wait already. Use as a context manager."""
        return None if self._count >= WAITERS_MAX else Waiting(self, tenant)

    def _add(self, tenant: str, waiter: asyncio.Future[None]) -> None:
        self._waiters.setdefault(tenant, set()).add(waiter)
        self._count += 1

    def _remove(self, tenant: str, waiter: asyncio.Future[None]) -> None:
        waiters = self._waiters[tenant]
        waiters.remove(waiter)
        self._count -= 1
        if not waiters:
            del self._waiters[tenant]


class Waiting:
    """Interest in one tenant's arrivals, from `enter` of the context to its end."""

    def __init__(self, arrivals: Arrivals, tenant: str) -> None:
        self._arrivals, self._tenant = arrivals, tenant
        self._future: asyncio.Future[None] | None = None

    def __enter__(self) -> Waiting:
        self._arm()
        return self

    def __exit__(self, *_: object) -> None:
        self._disarm()

    async def wait(self, seconds: float) -> bool:
        """True when something arrived since entering or since the last True; False after `seconds`."""
        assert self._future is not None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._future)
        arrived = self._future.done()
        if arrived:
            self._disarm()
            self._arm()
        return arrived

    def _arm(self) -> None:
        self._future = asyncio.get_running_loop().create_future()
        self._arrivals._add(self._tenant, self._future)

    def _disarm(self) -> None:
        if self._future is not None:
            self._arrivals._remove(self._tenant, self._future)
            self._future = None
