"""Hanging sinks must not slow healthy ones (docs/delivery.md, "Workers, fairness"): the real scheduler in a queueing
model of ten destinations of ten tenants. Arrivals are Poisson; healthy sinks answer in 5 ms (exponential), some hang
until the time-out."""

from __future__ import annotations

import heapq
import itertools
import random
from functools import cache

import pytest

from hub_app.domain.breaker import CLOSED, Breaker, BreakerPolicy, Event, after
from hub_app.domain.fairness import Scheduler

COUNT = 10
LATENCY_S = 0.005
SECONDS = 30
POLICY = BreakerPolicy()


def simulate(
    workers: int,
    rate: int,
    *,
    hung: int,
    timeout_s: int = 10,
    hang_at_s: float = 0.0,
    breaker: bool = False,
    from_s: float = 0.0,
) -> tuple[float, float]:
    """p50 and p99 in ms, from arrival (those after `from_s`) to answer, of the destinations that never hang."""
    rnd, ids, now = random.Random(1), itertools.count(), 0.0
    scheduler: Scheduler[int] = Scheduler(workers)
    breakers: dict[int, Breaker] = {}
    jobs: dict[int, tuple[int, float]] = {}
    waits: list[float] = []
    events: list[tuple[float, int, bool, int, bool]] = []  # at, id, arrives, destination or job, ok
    for d in range(COUNT):
        at = rnd.expovariate(rate)
        while at < SECONDS:
            heapq.heappush(events, (at, next(ids), True, d, True))
            at += rnd.expovariate(rate)
    while events:
        now, id, arrives, what, ok = heapq.heappop(events)
        if now > SECONDS + 5:
            break
        ms = int(now * 1000)
        if arrives:
            jobs[id] = (what, now)
            scheduler.offer(f"tenant-{what}", "sink", ms, id)
        else:
            d, since = jobs.pop(what)
            scheduler.finished(what, ok=ok, now_ms=ms, mono_ms=ms)
            if ok and d >= hung and since >= from_s:
                waits.append(now - since)
            if breaker:
                was = breakers.get(d, CLOSED)
                breakers[d] = now_is = after(was, Event.SUCCEEDED if ok else Event.FAILED, now_ms=ms, policy=POLICY)
                if now_is.until_ms != was.until_ms:
                    at_most = None if now_is.until_ms is None else 1
                    scheduler.set_blocked(f"tenant-{d}", "sink", now_is.until_ms, at_most=at_most)
        while (picked := scheduler.pick(ms, ms)) is not None:
            d = jobs[picked][0]
            hangs = d < hung and now >= hang_at_s
            takes = timeout_s if hangs else rnd.expovariate(1 / LATENCY_S)
            heapq.heappush(events, (now + takes, next(ids), False, picked, not hangs))
    waits.sort()
    return 1000 * waits[len(waits) // 2], 1000 * waits[int(len(waits) * 0.99)]


@cache
def alone(workers: int, rate: int) -> tuple[float, float]:
    return simulate(workers, rate, hung=0)


@pytest.mark.parametrize("breaker", [False, True], ids=["no-breaker", "breaker"])
@pytest.mark.parametrize("hang_at_s", [0.0, 10.0], ids=["cold", "warm"])
@pytest.mark.parametrize("timeout_s", [10, 30])
@pytest.mark.parametrize("hung", [1, 3, 5])
@pytest.mark.parametrize(("workers", "rate"), [(8, 5), (8, 20), (64, 20)])
def test_healthy_sinks_keep_their_latency(
    workers: int, rate: int, hung: int, timeout_s: int, hang_at_s: float, breaker: bool
) -> None:
    quiet = alone(workers, rate)
    p50, p99 = simulate(workers, rate, hung=hung, timeout_s=timeout_s, hang_at_s=hang_at_s, breaker=breaker)
    assert p99 <= max(1.3 * quiet[1], quiet[1] + 10)
    assert p50 <= max(1.3 * quiet[0], quiet[0] + 10)


@pytest.mark.parametrize("hung", [3, 5])
def test_at_a_rate_that_fills_the_pool_many_times_over(hung: int) -> None:
    """200 a second for ten seconds of time-out are 2,000 attempts a sink would hold: the pool has 64."""
    quiet = alone(64, 200)
    _, p99 = simulate(64, 200, hung=hung, hang_at_s=10.0)
    assert p99 <= max(1.3 * quiet[1], quiet[1] + 10)


@pytest.mark.parametrize("hung", [8, 9])
def test_when_nearly_all_hang_the_rest_still_goes_through(hung: int) -> None:
    """More sinks hang than there are workers. At first they can take all of them, since nothing is known of them yet;
    once each has failed they share their half, and the others have theirs."""
    quiet = alone(8, 20)
    _, p99 = simulate(8, 20, hung=hung, from_s=11.0)
    assert p99 <= max(1.3 * quiet[1], quiet[1] + 10)
