"""One bad sink, or one greedy tenant, and the others: the whole dispatch plane on a clock that does not wait. What the
rule itself does stands in tests/simulation/test_isolation.py and tests/unit/domain/test_fairness.py."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.delivery import Job
from hub_app.domain.ids import delivery_id
from hub_app.domain.operator import OperatorKind
from hub_app.ports import Answer, Failure, Request
from tests.bench.backlog import displacement
from tests.support.dispatch_bench import READ_EVERY_S, Worker, World, play, seqs, until
from tests.support.dispatching import NAMES, job, stored

NEVER_OPENS = BreakerPolicy(failures=1 << 30)
LATENCY_S = 0.005


class Traffic:
    """Jobs of many places; when each came, and when its sink had it."""

    def __init__(self, world: World, worker: Worker) -> None:
        self._world, self._worker = world, worker
        self._count = 0
        self.came: dict[bytes, tuple[str, float]] = {}
        self.waits: dict[str, list[float]] = {}
        self.bad = ""
        self.bad_takes_s = LATENCY_S
        world.sender.sink = self._answer

    def subscribe(self, tenant: str, sinks: int = 1) -> None:
        for number in range(sinks):
            to = _sink(tenant, number)
            self._worker.put(self._world.subscription(id=f"{tenant}/{number}", tenant=tenant, destination=to))

    def deliver(self, tenant: str, count: int = 1, number: int = 0) -> None:
        now_s, now_ms = asyncio.get_running_loop().time(), self._world.clock.now_ms()
        made: list[Job] = []
        for _ in range(count):
            self._count += 1
            id = delivery_id(tenant, self._count, f"{tenant}/{number}")
            self.came[id.hex().encode()] = tenant, now_s
            made.append(
                job(
                    self._count,
                    place=(tenant, _sink(tenant, number)),
                    delivery_id=id,
                    subscription=f"{tenant}/{number}",
                    received_at_ms=now_ms,
                )
            )
        self._world.deliver(*made)

    async def steadily(self, tenant: str, per_s: int, seconds: float) -> None:
        for _ in range(int(per_s * seconds)):
            self.deliver(tenant)
            await asyncio.sleep(1 / per_s)

    async def _answer(self, request: Request) -> Answer | Failure:
        tenant, came_s = self.came[seqs([request])[0]]
        self.waits.setdefault(tenant, []).append(asyncio.get_running_loop().time() - came_s)
        if tenant == self.bad:
            await asyncio.sleep(self.bad_takes_s)
            return Answer(503, None, b"", False)
        await asyncio.sleep(LATENCY_S)
        return Answer(200, None, b"", False)

    def p99_ms(self, tenants: Sequence[str]) -> float:
        waits = sorted(wait for tenant in tenants for wait in self.waits[tenant])
        return 1000 * waits[int(len(waits) * 0.99)]


def _sink(tenant: str, number: int) -> str:
    return f"https://{tenant}.example/{number}"


@pytest.mark.parametrize("takes_s", [LATENCY_S, 1.0, 10.0], ids=["at-once", "late", "at-the-deadline"])
@pytest.mark.parametrize("breakers", [BreakerPolicy(), NEVER_OPENS], ids=["breaker", "no-breaker"])
def test_row_20_one_endpoint_always_fails_at_100_jobs_a_second(
    tmp_path: Path, breakers: BreakerPolicy, takes_s: float
) -> None:
    """Faults, 20: healthy ones keep their latency, at the default of 8 workers."""
    healthy = [f"healthy-{i}" for i in range(9)]
    p99: dict[bool, float] = {}

    async def story(world: World) -> None:
        worker = await Worker(world, workers=8, breakers=breakers).start()
        traffic = Traffic(world, worker)
        for tenant in (*healthy, "failing"):
            traffic.subscribe(tenant)
        for bad in (False, True):
            traffic.waits.clear()
            traffic.bad, traffic.bad_takes_s = ("failing" if bad else ""), takes_s
            loads = [traffic.steadily(tenant, 5, 20) for tenant in healthy]
            if bad:
                loads.append(traffic.steadily("failing", 100, 20))
            await asyncio.gather(*loads)
            await asyncio.sleep(1)
            assert all(len(traffic.waits[tenant]) == 100 for tenant in healthy)
            p99[bad] = traffic.p99_ms(healthy)

    play(tmp_path, story)
    assert p99[True] <= max(1.3 * p99[False], p99[False] + 10), p99


def test_row_21_a_tenant_of_100_000_jobs_over_1_000_destinations_and_one_job_of_another(tmp_path: Path) -> None:
    """Faults, 21: the other is next within one turn, which is the end of one attempt."""

    async def story(world: World) -> None:
        worker = await Worker(world, workers=8).start()
        traffic = Traffic(world, worker)
        traffic.subscribe("greedy", 1_000)
        traffic.subscribe("other")
        for number in range(1_000):
            traffic.deliver("greedy", 100, number)
        await until(lambda: worker.shard.table.count > 99_000, 60)
        for _ in range(20):
            await asyncio.sleep(0.0337)
            traffic.deliver("other")
        await asyncio.sleep(0.1)
        assert len(traffic.waits["other"]) == 20
        assert worker.shard.table.count > 80_000
        turn_s = READ_EVERY_S + LATENCY_S  # until it is read, and until one of the eight attempts ends
        assert max(traffic.waits["other"]) <= turn_s + 0.002

    play(tmp_path, story)


def test_row_22_an_hour_behind_an_open_breaker_costs_nothing_and_then_drains_in_order(tmp_path: Path) -> None:
    """Faults, 22, with 50,000 jobs: no CPU, no traffic, no attempt; then in order of due time, not all at once."""

    async def story(world: World) -> None:
        worker = await Worker(world, workers=64).start()
        worker.put(world.subscription())
        running = most = 0
        good = False
        order: list[bytes] = []

        async def sink(request: Request) -> Answer | Failure:
            nonlocal running, most
            order.extend(seqs([request]))
            running += 1
            most = max(most, running)
            await asyncio.sleep(LATENCY_S)
            running -= 1
            return Answer(200 if good else 503, None, b"", False)

        world.sender.sink = sink
        world.deliver(*(job(seq, received_at_ms=world.clock.now_ms()) for seq in range(5)))
        await until(lambda: worker.health.not_closed() == 1, 10)
        due_ms: dict[bytes, int] = {}
        for seq in range(100, 50_100, 50):
            jobs = [job(s, received_at_ms=world.clock.now_ms()) for s in range(seq, seq + 50)]
            due_ms |= {one.delivery_id.hex().encode(): one.received_at_ms for one in jobs}
            world.deliver(*jobs)
            await asyncio.sleep(0.01)
        await until(lambda: worker.shard.table.count >= 50_000, 60)

        traffic, sent, looked_up = world.traffic(), world.sent, worker.shard.table.store.looked_up  # type: ignore[attr-defined]
        await asyncio.sleep(3_600)
        probes = world.sent - sent
        assert probes <= 16  # 30 s, doubling to 5 min
        after = world.traffic()
        after.subtract(traffic)
        attempts = Counter({NAMES.attempts: 2 * probes, NAMES.health: 3 * probes, NAMES.operator: 1})
        retries = sum(after[NAMES.retry(tier)] for tier in DEFAULT_CURVE.tiers)
        assert retries == probes
        assert all(after[topic] <= most_of for topic, most_of in attempts.items()), after
        assert after[NAMES.deliveries] == after[NAMES.parked] == after[NAMES.dlq] == 0
        assert worker.shard.table.store.looked_up - looked_up < 20_000  # type: ignore[attr-defined]

        good, most = True, 0
        done = len(order)
        await until(lambda: worker.shard.table.count == 0, 600, 5)
        assert not stored(worker.shard)
        assert [event.kind for event in world.events()] == [OperatorKind.BREAKER_OPENED, OperatorKind.BREAKER_CLOSED]
        assert most <= 32
        tried = set(order[:done])
        came = [due_ms[id] for id in order[done:] if id in due_ms and id not in tried]
        assert len(came) == len(due_ms.keys() - tried)
        assert displacement(came) <= 32  # as wide as the window

    play(tmp_path, story)
