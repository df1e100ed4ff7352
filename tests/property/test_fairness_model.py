"""The scheduler against a model that looks at everything each time: the same decisions, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_app.domain.fairness import Scheduler


class ModelDestination:
    def __init__(self, tenant: str, born: int, window: int) -> None:
        self.tenant, self.born, self.window = tenant, born, window
        self.waiting: list[tuple[int, int, int]] = []
        self.passing: tuple[int, int, int] | None = None
        self.flying: list[tuple[int, int]] = []
        self.failed = False
        self.usual: float | None = None
        self.blocked, self.at_most = 0, 10**9
        self.ticket: int | None = None

    def patience(self) -> float:
        return 250 if self.usual is None else max(250, 4 * self.usual)

    def suspect(self, mono: int) -> bool:
        return self.failed or any(mono - since > self.patience() for _, since in self.flying)

    def jobs(self) -> list[tuple[int, int, int]]:
        return [*self.waiting, *([self.passing] if self.passing else [])]

    def ready_at(self) -> int | None:
        if not self.jobs() or len(self.flying) >= min(self.window, self.at_most):
            return None
        return min(self.times())[0]

    def times(self) -> list[tuple[int, bool, tuple[int, int, int]]]:
        """(when it may go on, whether as one that passes, job)"""
        ordinary = [(max(min(self.waiting)[0], self.blocked), False, min(self.waiting))] if self.waiting else []
        return [*ordinary, *([(self.passing[0], True, self.passing)] if self.passing else [])]

    def take(self) -> tuple[int, int, int]:
        _, passes, job = min(self.times())
        if passes:
            self.passing = None
        else:
            self.waiting.remove(job)
        return job


class Model:
    """The rules as they are written, by brute force."""

    def __init__(self, workers: int) -> None:
        self.workers, self.half, self.low = workers, max(1, workers // 2), max(1, workers // 16)
        self.destinations: dict[tuple[str, str], ModelDestination] = {}
        self.tenant_tickets: dict[str, int] = {}
        self.touched: list[ModelDestination] = []
        self.n = 0

    def number(self) -> int:
        self.n += 1
        return self.n

    def of(self, tenant: str, name: str) -> ModelDestination:
        if (tenant, name) not in self.destinations:
            self.destinations[tenant, name] = ModelDestination(tenant, self.number(), self.low)
        return self.destinations[tenant, name]

    def touch(self, d: ModelDestination) -> None:
        if d not in self.touched:
            self.touched.append(d)

    def offer(self, tenant: str, name: str, due: int, ref: int, passes: bool) -> None:
        d = self.of(tenant, name)
        if passes:
            d.passing = (due, self.number(), ref)
        else:
            d.waiting.append((due, self.number(), ref))
        self.touch(d)

    def remove(self, ref: int) -> None:
        for d in self.destinations.values():
            if any(job[2] == ref for job in d.jobs()):
                d.waiting = [job for job in d.waiting if job[2] != ref]
                d.passing = None if d.passing and d.passing[2] == ref else d.passing
                self.touch(d)

    def block(self, tenant: str, name: str, until: int | None, at_most: int | None) -> None:
        d = self.of(tenant, name)
        d.blocked, d.at_most = until or 0, at_most or 10**9
        self.touch(d)

    def load(self, mono: int) -> int:
        return sum(len(d.flying) for d in self.destinations.values() if d.suspect(mono))

    def in_flight(self) -> int:
        return sum(len(d.flying) for d in self.destinations.values())

    def place(self, d: ModelDestination, now: int) -> None:
        at = d.ready_at()
        if at is None or at > now:
            d.ticket = None
        elif d.ticket is None:
            if all(other.ticket is None for other in self.destinations.values() if other.tenant == d.tenant):
                self.tenant_tickets[d.tenant] = self.number()
            d.ticket = self.number()

    def woken(self, now: int) -> Iterator[ModelDestination]:
        ready = [(d.ready_at(), d.born, d) for d in self.destinations.values() if d.ticket is None]
        for at, _, d in sorted((x for x in ready if x[0] is not None), key=lambda x: x[:2]):
            if at is not None and at <= now:
                yield d

    def pick(self, now: int, mono: int) -> int | None:
        if self.in_flight() >= self.workers:
            return None
        for d in self.touched:
            self.place(d, now)
        self.touched = []
        for d in list(self.woken(now)):
            self.place(d, now)
        held = self.load(mono) >= self.half
        may = [
            (self.tenant_tickets[d.tenant], d.ticket, d)
            for d in self.destinations.values()
            if d.ticket is not None and not (held and d.suspect(mono))
        ]
        if not may:
            return None
        d = min(may, key=lambda x: x[:2])[2]
        job = d.take()
        d.flying.append((job[2], mono))
        self.tenant_tickets[d.tenant] = self.number()
        d.ticket = None
        self.place(d, now)
        return job[2]

    def finished(self, ref: int, ok: bool | None, now: int, mono: int) -> None:
        (d,) = (d for d in self.destinations.values() if any(r == ref for r, _ in d.flying))
        (since,) = (s for r, s in d.flying if r == ref)
        d.flying = [(r, s) for r, s in d.flying if r != ref]
        if ok is True:
            took = mono - since
            d.usual = float(took) if d.usual is None else d.usual + 0.125 * (min(took, d.patience()) - d.usual)
            d.failed = False
            more = any(due <= now for due, _, _ in d.jobs())
            d.window = min(self.half, d.window + 1) if more else max(self.low, d.window - 1)
        elif ok is False:
            d.failed, d.window = True, self.low
        self.touch(d)


TENANTS = st.sampled_from(["a", "b", "c"])
NAMES = st.sampled_from(["x", "y", "z"])
OPS = st.one_of(
    st.tuples(st.just("offer"), TENANTS, NAMES, st.sampled_from([0, 0, 0, 5, 300, 3_000])),
    st.tuples(st.just("offer"), TENANTS, NAMES, st.sampled_from([0, 0, 0, 5, 300, 3_000])),
    st.tuples(st.just("offer last"), TENANTS, NAMES, st.sampled_from([0, 5, 300])),
    st.tuples(st.just("pick"), st.integers(1, 5)),
    st.tuples(st.just("pick"), st.integers(1, 5)),
    st.tuples(st.just("finish"), st.integers(0, 50), st.sampled_from([True, True, True, False, None])),
    st.tuples(st.just("finish"), st.integers(0, 50), st.sampled_from([True, True, True, False, None])),
    st.tuples(st.just("pass"), st.sampled_from([1, 4, 100, 251, 1_200])),
    st.tuples(st.just("remove"), st.integers(0, 50)),
    st.tuples(st.just("block"), TENANTS, NAMES, st.sampled_from([None, 10, 500]), st.sampled_from([None, 1, 2])),
)


class Pair:
    """The scheduler and the model, told the same things."""

    def __init__(self, workers: int) -> None:
        self.real: Scheduler[int] = Scheduler(workers)
        self.model = Model(workers)
        self.half = max(1, workers // 2)
        self.now, self.mono, self.refs = 1_000_000, 50, 0
        self.waiting: list[int] = []
        self.flying: list[int] = []

    def do(self, op: tuple[Any, ...]) -> None:
        match op:
            case ("offer", tenant, name, later):
                self.offer(tenant, name, later, passes=False)
            case ("offer last", tenant, name, later) if self.model.of(tenant, name).passing is None:
                self.offer(tenant, name, later, passes=True)
            case ("pick", times):
                self.pick(times)
            case ("finish", which, ok) if self.flying:
                ref = self.flying.pop(which % len(self.flying))
                self.real.finished(ref, ok=ok, now_ms=self.now, mono_ms=self.mono)
                self.model.finished(ref, ok, self.now, self.mono)
            case ("pass", ms):
                self.now += ms
                self.mono += ms
            case ("remove", which) if self.waiting:
                ref = self.waiting.pop(which % len(self.waiting))
                assert self.real.remove(ref)
                self.model.remove(ref)
            case ("block", tenant, name, later, at_most):
                until = None if later is None else self.now + later
                self.real.set_blocked(tenant, name, until, at_most=at_most)
                self.model.block(tenant, name, until, at_most)
        assert (self.real.in_flight, self.real.waiting) == (len(self.flying), len(self.waiting))
        for (tenant, name), d in self.model.destinations.items():
            assert self.real.flying(tenant, name) == len(d.flying) <= self.half
            assert self.real.head_size(tenant, name) == len(d.jobs())

    def offer(self, tenant: str, name: str, later: int, *, passes: bool) -> None:
        self.refs += 1
        self.real.offer(tenant, name, self.now + later, self.refs, passes=passes)
        self.model.offer(tenant, name, self.now + later, self.refs, passes)
        self.waiting.append(self.refs)

    def pick(self, times: int) -> None:
        for _ in range(times):
            got = self.real.pick(self.now, self.mono)
            assert got == self.model.pick(self.now, self.mono)
            if got is None:
                woken = self.real.next_wake_ms()
                assert woken is None or woken > self.now
                return
            self.waiting.remove(got)
            self.flying.append(got)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from([1, 2, 3, 8, 20, 64]), st.lists(OPS, min_size=20, max_size=150))
def test_decides_as_the_model_that_looks_at_everything(workers: int, ops: list[tuple[Any, ...]]) -> None:
    pair = Pair(workers)
    for op in ops:
        pair.do(op)


@pytest.mark.parametrize("seed", range(120))
def test_decides_as_the_model_in_a_long_and_crowded_world(seed: int) -> None:
    """What short histories rarely reach: full windows, hanging sinks beside busy ones, suspects at their half."""
    rnd = random.Random(seed)
    pair = Pair(rnd.choice([1, 2, 3, 5, 8, 20, 48]))
    places = [(t, n) for t in "abcd"[: rnd.randint(1, 4)] for n in "wxyz"[: rnd.randint(1, 4)]]
    ok_share, hangs, blocks = rnd.choice([0.5, 0.9, 0.99]), rnd.random() < 0.7, rnd.choice([0, 0.02])
    steps = [1, 3, 20] + [120, 251, 700] * rnd.randint(0, 1)
    for _ in range(500):
        roll = rnd.random()
        if roll < 0.35 and len(pair.waiting) < 60:
            tenant, name = rnd.choice(places)
            for _ in range(rnd.randint(1, 4)):
                pair.do(("offer", tenant, name, rnd.choice([0, 0, 0, 0, 5, 300])))
            if rnd.random() < blocks * 5:
                pair.do(("offer last", tenant, name, rnd.choice([0, 5, 300])))
        elif roll < 0.60:
            pair.do(("pick", rnd.randint(1, 6)))
        elif roll < 0.88 and pair.flying:
            # Where some hang, the younger attempts end first and the oldest stay.
            which = rnd.randint(len(pair.flying) // 2, len(pair.flying) - 1) if hangs else rnd.randrange(1_000)
            ok = None if rnd.random() < 0.03 else rnd.random() < ok_share
            pair.do(("finish", which, ok))
        elif roll < 0.96:
            pair.do(("pass", rnd.choice(steps)))
        elif roll < 0.98:
            pair.do(("remove", rnd.randrange(1_000)))
        elif rnd.random() < blocks * 20:
            pair.do(("block", *rnd.choice(places), rnd.choice([None, 10, 500]), rnd.choice([None, 1, 2])))


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([1, 4, 8]), st.lists(st.tuples(TENANTS, NAMES, st.integers(0, 2_000)), min_size=1, max_size=40))
def test_every_job_is_picked_once_if_the_waker_is_obeyed(workers: int, jobs: list[tuple[str, str, int]]) -> None:
    real: Scheduler[int] = Scheduler(workers)
    for ref, (tenant, name, due) in enumerate(jobs):
        real.offer(tenant, name, due, ref)
    now, picked = 0, []
    for _ in range(10 * len(jobs)):
        got = real.pick(now, now)
        if got is not None:
            picked.append(got)
            real.finished(got, ok=got % 3 != 0, now_ms=now, mono_ms=now)
            continue
        woken = real.next_wake_ms()
        if woken is None:
            break
        assert woken > now
        now = woken
    assert sorted(picked) == list(range(len(jobs)))
