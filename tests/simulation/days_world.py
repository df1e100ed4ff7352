"""Days of sinks that fail, hang and come back, on one seed: the hub's own rules for breakers, last attempts, disabling
and fairness to one destination, under a clock that is set forward and back, in workers that die.

Time passes in two ways: by seconds, as everywhere, and by leaps of the wall clock, up to twenty hours forward, which is
how days go by, or an hour back. When the storm is over every job must be delivered or dead.

    make sim WORLD=days SEEDS=1000
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.limits import HOUR_MS, MINUTE_MS
from hub_app.ports import Answer, Failure
from tests.fakes.store import Disk
from tests.simulation import clockwork
from tests.simulation.days_checks import Checks
from tests.support.dispatch_bench import Worker, World
from tests.support.dispatching import job

Plant = Callable[[Worker], None]

MODES = ("well", "well", "failing", "failing", "hanging", "moody")
LEAPS = ((30_000, 10 * MINUTE_MS, 5 * HOUR_MS, 20 * HOUR_MS), (30_000, 10 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS))
LENIENT = BreakerPolicy(failures=1 << 30)
"""Never opens: jobs come to their eighth attempt within a day."""
QUIET_S = 25
"""Twice as long as the hub takes to look at its streaks again."""


class DaysWorld:
    def __init__(self, seed: int, bench: World, plant: Plant) -> None:
        self.random, self.bench, self._plant = Random(seed), bench, plant
        choose = self.random.choice
        self.workers = choose((1, 2, 8, 64))
        self.steps = choose((20, 40, 80))
        self.places = [(f"t{i // 2}", f"https://d{i}.example/") for i in range(choose((1, 2, 5)))]
        self.stubborn = self.random.random() < 0.4  # sinks stay as they are
        self.modes = {destination: choose(MODES) for _, destination in self.places}
        self.leaps = choose(LEAPS)
        self.deadly, self.stepping = self.random.random() < 0.5, self.random.random() < 0.7
        self.problems: list[str] = []
        self.breakers = choose((BreakerPolicy(), BreakerPolicy(), LENIENT))
        half = max(1, self.workers // 2)
        self.checks = Checks(bench, self.problems.append, half=half, breakers=self.breakers)
        self.seq = 0
        bench.sender.sink = self._sink

    async def _sink(self, request: Any) -> Answer | Failure:
        self.checks.sent(request)
        mode = self.modes[f"https://{request.target.host}/"]
        if mode == "moody":
            mode = self.random.choice(("well", "failing", "hanging"))
        if mode == "hanging":
            await asyncio.sleep(10)
            return Failure("timeout", "no answer", True)
        await asyncio.sleep(self.random.choice((0.005, 0.2)))
        return Answer(204 if mode == "well" else 503, None, b"", False)

    # -- the story -----------------------------------------------------------------------------------------------------
    async def story(self) -> None:
        await self._begin_life()
        for number, (tenant, destination) in enumerate(self.places):
            self.worker.put(self.bench.subscription(id=f"sub{number}", tenant=tenant, destination=destination))
        for _ in range(self.steps):
            await self._something()
            self._look()
            if self.problems:
                return
        await self._heal()
        self.worker.kill()

    def _look(self) -> None:
        for task in self.worker._tasks:
            if task.done() and not task.cancelled():
                self.problems.append(f"a loop of the worker ended: {task.exception()!r}")

    async def _begin_life(self) -> None:
        self.worker = Worker(self.bench, workers=self.workers, breakers=self.breakers, disabling=DisablePolicy())
        self.checks.watch(self.worker)
        self._plant(self.worker)
        await self.worker.start()
        self.checks.began()

    async def _something(self) -> None:
        random, roll = self.random, self.random.random()
        if roll < 0.35:
            self._produce()
        elif roll < 0.50:
            _, destination = random.choice(self.places)
            if not self.stubborn:
                self.modes[destination] = random.choice(MODES)
        elif roll < 0.62:
            await asyncio.sleep(random.choice((0.5, 12, 40)) * random.random())
        elif roll < 0.80:
            self.bench.leap(random.choice(self.leaps))
            await asyncio.sleep(random.random())
        elif roll < 0.85:
            if self.stepping:
                self.bench.leap(-HOUR_MS)
                self.checks.stepped_back(HOUR_MS)
        elif roll < 0.90:
            if self.deadly:
                await self._die()
        elif roll < 0.95:
            self._people()
        else:
            if random.random() < 0.4:
                self.bench.leap(130 * HOUR_MS)
            await asyncio.sleep(QUIET_S)
            self.checks.judged()

    def _produce(self) -> None:
        place = self.random.randrange(len(self.places))
        for _ in range(self.random.choice((1, 3, 20))):
            self.seq += 1
            made = job(self.seq, place=self.places[place], subscription=f"sub{place}")
            made = made._replace(received_at_ms=self.bench.clock.now_ms())
            self.checks.made[made.delivery_id] = made
            self.bench.deliver(made)

    async def _die(self) -> None:
        self.worker.kill()
        await asyncio.sleep(0)
        if self.random.random() < 0.3:
            self.bench.disk = Disk()
        self.checks.died()
        await self._begin_life()

    def _people(self) -> None:
        """The tenant's owner disables whom dispatch names; somebody enables again what is disabled."""
        now_ms = self.bench.clock.now_ms()
        for number, (tenant, _) in enumerate(self.places):
            one = self.worker.subscriptions.get(tenant, f"sub{number}")
            assert one is not None
            if one.id in self.worker.health.wanted:
                self.worker.put(replace(one, enabled=False, disabled_at_ms=now_ms, inactive_since_ms=now_ms))
            elif not one.enabled:
                self._enable(one)

    def _enable(self, one: Any) -> None:
        enabled_at_ms = self.bench.clock.now_ms()
        now = replace(one, enabled=True, disabled_at_ms=None, inactive_since_ms=None, enabled_at_ms=enabled_at_ms)
        self.worker.put(now)
        self.checks.enabled(now)

    async def _heal(self) -> None:
        self.modes = dict.fromkeys(self.modes, "well")
        for number, (tenant, _) in enumerate(self.places):
            one = self.worker.subscriptions.get(tenant, f"sub{number}")
            if one is not None and (not one.enabled or one.id in self.worker.health.wanted):
                self._enable(one)
        for _ in range(40):
            await asyncio.sleep(12)
            if self.problems or not self.checks.unfinished():
                break
            self.bench.leap(HOUR_MS)
        if lost := self.checks.unfinished():
            self.problems.append(f"{len(lost)} of {len(self.checks.made)} are lost: {sorted(lost)[0].hex()}")


def run(seed: int, plant: Plant = lambda worker: None) -> str | None:
    """One world from its seed; what is wrong in it, or None."""
    problems: list[str] = []

    async def told() -> None:
        world = DaysWorld(seed, World(Path(folder)), plant)
        await world.story()
        problems.extend(world.problems)

    with tempfile.TemporaryDirectory() as folder:
        clockwork.run(told)
    return problems[0] if problems else None
