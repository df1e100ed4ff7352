"""200,000 jobs behind an open breaker: what they cost the others, in memory, throughput, CPU and Kafka traffic; how
soon a worker is back with its disk, how fast it is rebuilt without; and that they drain in due order, not all at once,
when their sink answers again.
"""

from __future__ import annotations

import os
import shutil
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import Any

from hub_app.dev.facts import NewFact
from hub_app.dev.worker import Api, Worker
from hub_app.domain.ids import event_id
from hub_app.domain.instants import parse_rfc3339
from tests.bench import _hub, _lib, _topics

JOBS = int(os.environ.get("JOBS", "200000"))
BURST = int(os.environ.get("BURST", "10000"))
BURSTS = 3
IDLE_S = int(os.environ.get("IDLE_S", "15"))
LATE_MS = 5
WORKERS = 64


def until(done: Callable[[], bool], seconds: float, worker: Worker, *, every_s: float = 0.02) -> float:
    """Seconds that it took. RuntimeError if that is too long."""
    began = time.monotonic()
    while not done():
        if time.monotonic() - began > seconds:
            raise RuntimeError(f"not done after {seconds} s\n{worker.log_tail()}")
        time.sleep(every_s)
    return time.monotonic() - began


class Run:
    """One worker with ten healthy tenants and one whose sink is down."""

    def __init__(self, bench: _hub.Bench, sink: _lib.Sink) -> None:
        self.bench, self.sink, self.source = bench, sink, _hub.new_source()
        self.prefix = f"{self.source}."
        self.worker = bench.worker(self.prefix, env="local", dispatch_workers=WORKERS).start().wait_ready()
        sink.behave()
        _hub.subscribe(Api(self.worker.url), [sink.url(f"/d{i}") for i in range(_hub.TENANTS)])
        self.api = Api(self.worker.url).tenant("down")
        self.subscription = self.api.subscribe(sink.url(f"/!down/{LATE_MS}"), "*")["id"]
        sink.behave(False)
        self._made = 0

    def healthy_facts(self, count: int) -> list[NewFact]:
        self._made += count
        return _hub.facts(self.source, count, start=self._made - count)

    def facts_for_the_one_that_is_down(self, count: int) -> None:
        self._made += count
        numbers = range(self._made - count, self._made)
        facts = [NewFact(id=f"{self.source}-{i}", tenant="down", source=self.source, body=_hub.BODY) for i in numbers]
        for start in range(0, count, 20_000):
            _hub.preload(self.bench.bootstrap, facts[start : start + 20_000])

    def throughput(self) -> float:
        """Healthy deliveries a second, the best of some bursts."""
        found: list[float] = []
        for _ in range(BURSTS):
            before = self.sink.counts()[1]
            _hub.preload(self.bench.bootstrap, self.healthy_facts(BURST))
            samples = _hub.watch(self.worker, lambda before=before: self.sink.counts()[1] - before, BURST)
            found.append(_hub.slope(samples)[0])
        _lib.progress(f"healthy: {', '.join(f'{rate:.0f}' for rate in found)} deliveries/s")
        return max(found)

    def idle(self) -> tuple[float, dict[str, int]]:
        """Percent of a core, and records written to the deployment's topics, while nothing comes in."""
        topics = _topics.ends(self.bench.bootstrap, self.prefix)
        before = _lib.Usage.now(self.worker.pid)
        time.sleep(IDLE_S)
        spent = _lib.Usage.now(self.worker.pid).since(before)
        written = _topics.ends(self.bench.bootstrap, self.prefix)
        return 100 * spent.cpu_s / spent.at_s, {
            name.removeprefix(self.prefix): count - topics[name]
            for name, count in written.items()
            if count > topics[name]
        }

    def backlog(self) -> float:
        return self.worker.metric("hub_backlog_jobs")

    def fill(self) -> float:
        """The jobs come while the breaker is open. The most memory the worker had meanwhile."""
        self.facts_for_the_one_that_is_down(20)
        until(lambda: self.worker.metric("hub_breakers_open") == 1, 30, self.worker)
        self.facts_for_the_one_that_is_down(JOBS - 20)
        most = 0.0

        def taken_in() -> bool:
            nonlocal most
            most = max(most, _lib.rss_mib(self.worker.pid))
            return self.backlog() >= JOBS

        until(taken_in, 240, self.worker, every_s=0.2)
        return most

    def parked(self) -> int:
        """How many copies were made in all; returns when no more are."""
        topic, count = f"{self.prefix}retry.parked", -1
        while count != (now := _topics.ends(self.bench.bootstrap, self.prefix)[topic]):
            count = now
            time.sleep(4)
        return count

    def restart(self, *, wipe: bool) -> tuple[float, float, float]:
        """Seconds from the start of the process until the first healthy delivery, and until all jobs are known; of
        those between a tenth and nine tenths, jobs a second."""
        self.worker.stop()
        if wipe:
            shutil.rmtree(self.worker.data)
        _hub.preload(self.bench.bootstrap, self.healthy_facts(_hub.TENANTS))
        before, began = self.sink.counts()[1], time.monotonic()
        self.worker.start()
        until(lambda: self.sink.counts()[1] > before, 120, self.worker)
        first = time.monotonic() - began
        samples = _hub.watch(self.worker, self.backlog, JOBS)
        return first, time.monotonic() - began, _hub.slope(samples, 0.1, 0.9)[0]

    def drain(self) -> tuple[float, Sequence[int], int]:
        """The sink is back: jobs a second, the due times of those that had not been tried, as they came, and the most
        attempts at once."""
        tried = self.sink.arrivals().keys()
        self.sink.forget()
        self.sink.behave()
        began = time.monotonic()
        self.api.call("POST", f"/v1/subscriptions/{self.subscription}/verify")
        until(lambda: self.sink.counts()[1] >= JOBS, 240, self.worker, every_s=0.2)
        took = time.monotonic() - began
        waited = _topics.read(self.bench.bootstrap, f"{self.prefix}deliveries", due_of)
        due = {id: due_ms for id, due_ms, tenant in waited if tenant == "down"}
        arrived = sorted((seen.first_ns, id) for id, seen in self.sink.arrivals().items())
        return JOBS / took, [due[id] for _, id in arrived if id in due and id not in tried], self.sink.late_max()


def due_of(record: Any) -> tuple[str, int, str]:
    """(webhook-id, when the job is due at first, tenant)"""
    headers = {name: value.decode() for name, value in record.headers}
    source = headers["ce-source"]
    tenant, received_at = headers["hub-tenant"], headers["hub-received-at"]
    return event_id(tenant, source, source, headers["ce-id"]), parse_rfc3339(received_at), tenant


def displacement(values: Sequence[int]) -> int:
    """By how many places, at most, a value lies away from where it would stand if all were sorted."""
    in_order, most = sorted(values), 0
    for place, value in enumerate(values):
        first, last = bisect_left(in_order, value), bisect_right(in_order, value) - 1
        most = max(most, first - place, place - last)
    return most


def measure(run: Run) -> dict[str, Any]:
    without = run.throughput()
    idle_alone, _ = run.idle()
    rss = _lib.rss_mib(run.worker.pid)
    rss_max = run.fill()
    _lib.progress(f"{JOBS} jobs wait; resident {rss:.0f} MiB before, {rss_max:.0f} MiB at most")
    parked = run.parked()
    idle, written = run.idle()
    _lib.progress(f"idle: {idle:.1f} % of a core, {idle_alone:.1f} % without; {parked} parked; then written: {written}")
    beside = run.throughput()
    rss_max = max(rss_max, _lib.rss_mib(run.worker.pid))
    restart_s, known_s, _ = run.restart(wipe=False)
    _lib.progress(f"restart: first delivery after {restart_s:.1f} s, all jobs known after {known_s:.1f} s")
    first_s, rebuild_s, rebuilt_per_s = run.restart(wipe=True)
    _lib.progress(f"without the disk: first delivery after {first_s:.1f} s, all jobs known after {rebuild_s:.1f} s")
    _lib.progress(f"rebuilt at {rebuilt_per_s:.0f} jobs/s")
    per_s, dues, at_once = run.drain()
    _lib.progress(f"drained at {per_s:.0f}/s, {at_once} at once, {displacement(dues)} places out of order at most")
    return {
        "rss_growth_mib": rss_max - rss,
        "healthy_ratio": beside / without,
        "idle_cpu_pct": idle,
        "restart_s": restart_s,
        "rebuild_jobs_per_s": rebuilt_per_s,
        "healthy_per_s": beside,
        "healthy_per_s_without": without,
        "idle_cpu_pct_without": idle_alone,
        "idle_records": sum(written.values()),
        "parked": parked,
        "rebuild_s": rebuild_s,
        "wiped_first_delivery_s": first_s,
        "drained_per_s": per_s,
        "drained_in_order": displacement(dues) <= WORKERS,
        "drained_at_once": at_once,
        "jobs": JOBS,
    }


def main() -> None:
    with _hub.bench() as bench, _lib.sink(record="webhook-id") as sink:
        figures = measure(Run(bench, sink))
        bench.end_workers()
    _lib.report(**figures)


if __name__ == "__main__":
    main()
