"""What hanging sinks, and a greedy tenant, cost the others. Produce to sink, in milliseconds, of the sinks that answer.

    10s, 30s    10 destinations of 10 tenants, 20 facts/s each, one never answers, 64 workers, that time-out
    five        five of the ten never answer, 30 s
    8_workers   one of ten, with the default of 8 workers, 5 facts/s each, 30 s

Two deployments of one worker each read the same facts, which come at random moments. In the one all sinks answer, and
that is the yardstick; in the other some never do, from their first attempt on: so the 25 seconds measured are those in
which nothing is known of them, and (but for the last few with 10 s) no breaker is open. Whatever the machine does
beside, it does to both. Then the greedy tenant: 50,000 jobs over 50 slow destinations, and another's single jobs
between them.
"""

from __future__ import annotations

import os
import random
import statistics
import time
from typing import NamedTuple

import uvloop

from hub_app.dev.facts import FactProducer, NewFact, make_topics
from hub_app.dev.worker import Api, Worker
from tests.bench import _hub, _lib
from tests.bench._load import Due, Load, Sent, poisson

ROUNDS = int(os.environ.get("ROUNDS", "3"))
SECONDS = int(os.environ.get("SECONDS", "25"))
CASES = os.environ.get("CASES", "10s,30s,five,8_workers,hog").split(",")
WARM_UP_S = 2
HOG_FACTS, HOG_SINKS, HOG_TURN_MS, SINGLES = 1_000, 50, 100, 40


class Case(NamedTuple):
    name: str
    workers: int
    per_s: int
    timeout_s: int
    hung: int


TABLE = (
    Case("10s", 64, 20, 10, 1),
    Case("30s", 64, 20, 30, 1),
    Case("five", 64, 20, 30, 5),
    Case("8_workers", 8, 5, 30, 1),
)


class Measured(NamedTuple):
    """p50 and p99 of the healthy ones in ms: without the hanging ones, and with them."""

    alone: tuple[float, float]
    beside: tuple[float, float]

    @property
    def ratio(self) -> float:
        return self.beside[1] / self.alone[1]


def millis(sent: dict[str, Sent], arrived: dict[str, _lib.Arrival]) -> list[float]:
    """How long each took. RuntimeError if one never came."""
    lost = sent.keys() - arrived.keys()
    if lost:
        raise RuntimeError(f"{len(lost)} of {len(sent)} did not come")
    return [(arrived[name].first_ns - one.at_ns) / 1e6 for name, one in sent.items()]


def middle_and_p99(times: list[float]) -> tuple[float, float]:
    return _lib.percentile(times, 50), _lib.percentile(times, 99)


def wait_for(sink: _lib.Sink, sent: dict[str, Sent], seconds: float = 20) -> dict[str, _lib.Arrival]:
    """What the sink saw, once all of these are among it or the time is over."""
    ends = time.monotonic() + seconds
    while True:
        arrived = sink.arrivals()
        if sent.keys() <= arrived.keys() or time.monotonic() > ends:
            return arrived
        time.sleep(0.2)


async def load(bootstrap: str, source: str, case: Case, draw: random.Random) -> dict[str, Sent]:
    """What is returned is of the healthy ones."""
    hung = [f"hung-{i}" for i in range(case.hung)]
    healthy = [f"tenant-{i}" for i in range(case.hung, _hub.TENANTS)]
    async with FactProducer(bootstrap) as producer:
        facts = Load(producer, source)
        await facts.send(poisson(healthy, case.per_s, WARM_UP_S, draw))
        sent = await facts.send(poisson(healthy + hung, case.per_s, SECONDS, draw))
    return {name: one for name, one in sent.items() if one.tenant in healthy}


def run(bench: _hub.Bench, sinks: tuple[_lib.Sink, _lib.Sink], case: Case, draw: random.Random) -> Measured:
    """The first of the sinks answers everything, the second hangs where it is told to."""
    source = _hub.new_source()
    uvloop.run(make_topics(bench.bootstrap, [source]))
    settings = {"dispatch_workers": case.workers, "dispatch_timeout": f"{case.timeout_s}s"}
    workers = [bench.worker_of_another(f"{source}-{i}", **settings) for i in (0, 1)]
    for worker, sink in zip(workers, sinks, strict=True):
        sink.behave()  # until every subscription is verified
        api = Api(worker.start().wait_ready().url)
        for i in range(case.hung, _hub.TENANTS):
            api.tenant(f"tenant-{i}").subscribe(sink.url(f"/d{i}"), "*")
        for i in range(case.hung):
            api.tenant(f"hung-{i}").subscribe(sink.url(f"/!hang/d{i}"), "*")
        sink.forget()
    sinks[1].behave(False)
    sent = uvloop.run(load(bench.bootstrap, source, case, draw))
    times = [millis(sent, wait_for(sink, sent)) for sink in sinks]
    end(bench, *workers)
    return Measured(middle_and_p99(times[0]), middle_and_p99(times[1]))


def end(bench: _hub.Bench, *workers: Worker) -> None:
    """At once: nobody has to wait for attempts that hang."""
    for worker in workers:
        worker.kill()
    bench.workers.clear()


async def singles(bootstrap: str, source: str) -> dict[str, Sent]:
    async with FactProducer(bootstrap) as producer:
        return await Load(producer, source).send([Due(i * 0.21, "single") for i in range(SINGLES)])


def hog(bench: _hub.Bench, sink: _lib.Sink) -> tuple[list[float], list[float]]:
    """How long single jobs take alone, and beside the greedy tenant's: in ms."""
    source = _hub.new_source()
    uvloop.run(make_topics(bench.bootstrap, [source]))
    worker = bench.worker(f"{source}.", env="local").start().wait_ready()
    sink.behave()
    greedy = Api(worker.url).tenant("greedy")
    for i in range(HOG_SINKS):
        greedy.subscribe(sink.url(f"/!slow/{HOG_TURN_MS}/d{i}"), "*", name=f"d{i}")
    Api(worker.url).tenant("single").subscribe(sink.url("/single"), "*")
    sink.behave(False)
    alone = [uvloop.run(singles(bench.bootstrap, source)) for _ in range(2)][1]  # the first was to warm up
    wait_for(sink, alone)
    facts = [NewFact(id=f"{source}-{i}", tenant="greedy", source=source, body=_hub.BODY) for i in range(HOG_FACTS)]
    _hub.preload(bench.bootstrap, facts)
    ends = time.monotonic() + 90
    while worker.metric("hub_backlog_jobs") + sink.counts()[0] < HOG_FACTS * HOG_SINKS:
        if time.monotonic() > ends:
            raise RuntimeError(f"{worker.metric('hub_backlog_jobs')} jobs wait\n{worker.log_tail()}")
        time.sleep(0.2)
    beside = uvloop.run(singles(bench.bootstrap, source))
    arrived = wait_for(sink, alone | beside)
    left = worker.metric("hub_backlog_jobs")
    _lib.progress(f"hog: {left:.0f} of its jobs were left")
    end(bench, worker)
    return millis(alone, arrived), millis(beside, arrived)


def main() -> None:
    rounds: dict[str, list[Measured]] = {}
    hogs: list[tuple[list[float], list[float]]] = []
    draw = random.Random(int(os.environ.get("SEED", "1")))
    with _hub.bench() as bench, _lib.sink(record="webhook-id") as good, _lib.sink(record="webhook-id") as sink:
        for number in range(ROUNDS):
            for case in TABLE:
                if case.name in CASES:
                    measured = run(bench, (good, sink), case, draw)
                    rounds.setdefault(case.name, []).append(measured)
                    _lib.progress(
                        f"round {number + 1}, {case.name}: p99 {measured.alone[1]:.1f} ms alone,"
                        f" {measured.beside[1]:.1f} ms beside ({measured.ratio:.2f}); p50 {measured.alone[0]:.1f},"
                        f" {measured.beside[0]:.1f} ms"
                    )
            if "hog" in CASES:
                alone, beside = hog(bench, sink)
                hogs.append((alone, beside))
                _lib.progress(f"round {number + 1}, hog: {middle_and_p99(alone)} alone, {middle_and_p99(beside)}")
    figures(rounds, hogs)


def middle(measured: list[Measured]) -> Measured:
    """The round whose ratio is the median one."""
    return sorted(measured, key=lambda one: one.ratio)[len(measured) // 2]


def figures(rounds: dict[str, list[Measured]], hogs: list[tuple[list[float], list[float]]]) -> None:
    names = {"10s": "", "30s": "_30s", "five": "_five", "8_workers": "_8_workers"}
    found: dict[str, object] = {}
    for name, measured in rounds.items():
        one = middle(measured)
        found[f"p99_ratio{names[name]}"] = one.ratio
        found[f"p99_ms{names[name]}"] = one.beside[1]
        found[f"p99_alone_ms{names[name]}"] = one.alone[1]
    if hogs:
        found["hog_delay_ms"] = statistics.median(
            _lib.percentile(beside, 95) - _lib.percentile(alone, 95) for alone, beside in hogs
        )
        found["hog_delay_ms_max"] = max(max(beside) - min(alone) for alone, beside in hogs)
        found["hog_turn_ms"] = HOG_TURN_MS
    found["rounds"] = {name: [round(one.ratio, 2) for one in measured] for name, measured in rounds.items()}
    _lib.report(**found)


if __name__ == "__main__":
    main()
