"""Three workers under load, FACTS_PER_S facts a second to 48 destinations of 48 tenants: each worker in turn is told to
end (SIGTERM), waited for and started again; then one is killed (kill -9) and not replaced.

A pause is the longest time in which a destination got nothing, though facts for it kept coming. Nothing may be lost;
repeats are counted by the event's webhook-id, for the restarts and for the kill.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import uvloop

from hub_app.dev.facts import FactProducer, NewFact, make_topics
from hub_app.dev.worker import Api, Worker
from hub_app.domain.ids import event_id
from hub_app.kafka.client import SESSION_TIMEOUT_MS
from tests.bench import _hub, _lib

PER_S = int(os.environ.get("FACTS_PER_S", "2000"))
WORKERS, TENANTS = 3, 48
CHUNK_S = 0.05
CALM_S = 5.0
"""Between two disturbances, and before and after them."""


class Sent(NamedTuple):
    tenant: str
    at_ns: int


class Span(NamedTuple):
    """When something was done to the workers, and what followed: time.monotonic_ns."""

    name: str
    start_ns: int
    end_ns: int


class Stream:
    """Facts at a steady pace until told to end, the tenants in turn; `sent` by webhook-id."""

    def __init__(self, bootstrap: str, source: str) -> None:
        self._bootstrap, self._source = bootstrap, source
        self.sent: dict[str, Sent] = {}
        self.over = False

    async def run(self) -> None:
        chunk = max(1, int(PER_S * CHUNK_S))
        async with FactProducer(self._bootstrap) as producer:
            at = time.monotonic()
            while not self.over:
                numbers = range(len(self.sent), len(self.sent) + chunk)
                facts = [
                    NewFact(
                        id=f"{self._source}-{i}", tenant=f"tenant-{i % TENANTS}", source=self._source, body=_hub.BODY
                    )
                    for i in numbers
                ]
                now_ns = time.monotonic_ns()
                for fact in facts:
                    name = event_id(fact.tenant, fact.source, fact.source, fact.id)
                    self.sent[name] = Sent(fact.tenant, now_ns)
                await producer.send_many(facts)
                at += CHUNK_S
                await asyncio.sleep(max(0.0, at - time.monotonic()))


def settled(workers: Sequence[Worker], seconds: float = 120) -> None:
    """Returns when these share all shards of both planes equally and are ready."""
    ends, share = time.monotonic() + seconds, 2 * _hub.SHARDS / len(workers)
    while not all(w.metric("hub_open_shards") == share and w.get("/readyz")[0] == 200 for w in workers):
        if time.monotonic() > ends:
            told = [(w.metric("hub_open_shards"), w.get("/readyz")) for w in workers]
            raise RuntimeError(f"{share} shards expected of each: {told}")
        time.sleep(0.1)


async def disturb(workers: list[Worker]) -> list[Span]:
    """A rolling restart of all, then the end of one."""
    spans: list[Span] = []
    for number, worker in enumerate(workers):
        await asyncio.sleep(CALM_S)
        start_ns = time.monotonic_ns()
        await asyncio.to_thread(worker.stop)
        stopped_s = (time.monotonic_ns() - start_ns) / 1e9
        worker.start()
        await asyncio.to_thread(settled, workers)
        all_in_s = (time.monotonic_ns() - start_ns) / 1e9
        await asyncio.sleep(CALM_S)
        spans.append(Span(f"restart {number + 1}", start_ns, time.monotonic_ns()))
        _lib.progress(f"restart {number + 1}: stopped in {stopped_s:.1f} s, shares equal after {all_in_s:.1f} s")
    start_ns = time.monotonic_ns()
    workers[-1].kill()
    await asyncio.to_thread(settled, workers[:-1])
    await asyncio.sleep(CALM_S)
    spans.append(Span("kill", start_ns, time.monotonic_ns()))
    return spans


def pause_s(span: Span, arrived_ns: Mapping[str, Sequence[int]]) -> float:
    """The longest time that a destination went without a request, of those times that end inside the span.
    `arrived_ns`: when each got its events, in order."""
    longest = 0
    for times in arrived_ns.values():
        for before, after in itertools.pairwise(times):
            if span.start_ns <= after <= span.end_ns:
                longest = max(longest, after - before)
    return longest / 1e9


def repeats(span: Span, sent: Mapping[str, Sent], arrived: Mapping[str, _lib.Arrival]) -> int:
    """Requests beyond the first, of events whose last came inside the span."""
    return sum(
        seen.times - 1 for id, seen in arrived.items() if id in sent and span.start_ns <= seen.last_ns <= span.end_ns
    )


async def work(bootstrap: str, source: str, workers: list[Worker], sink: _lib.Sink) -> tuple[Stream, list[Span]]:
    stream = Stream(bootstrap, source)
    producing = asyncio.create_task(stream.run())
    try:
        spans = await disturb(workers)
    finally:
        stream.over = True
    await producing
    ends = time.monotonic() + 60
    while sink.counts()[1] < len(stream.sent) and time.monotonic() < ends:
        await asyncio.sleep(0.2)
    # What the dead worker had in hand comes again once its claims' deadlines and a margin have passed: 12 s.
    await asyncio.sleep(max(0.0, spans[-1].start_ns / 1e9 + 20 - time.monotonic()))
    spans[-1] = spans[-1]._replace(end_ns=time.monotonic_ns())
    return stream, spans


def main() -> None:
    with _hub.bench() as bench, _lib.sink(record="webhook-id") as sink:
        source = _hub.new_source()
        uvloop.run(make_topics(bench.bootstrap, [source]))
        made = [bench.worker(f"{source}.", env="local", dispatch_workers=64) for _ in range(WORKERS)]
        made[0].start().wait_ready()
        for worker in made[1:]:
            worker.start()
        settled(made)
        _hub.subscribe(Api(made[0].url), [sink.url(f"/d{i}") for i in range(TENANTS)])
        sink.forget()
        stream, spans = uvloop.run(work(bench.bootstrap, source, made, sink))
        arrived = sink.arrivals()
        bench.end_workers()
    figures(stream, spans, arrived)


def figures(stream: Stream, spans: list[Span], arrived: Mapping[str, _lib.Arrival]) -> None:
    by_tenant: dict[str, list[int]] = {}
    for id, seen in arrived.items():
        if id in stream.sent:
            by_tenant.setdefault(stream.sent[id].tenant, []).append(seen.first_ns)
    for times in by_tenant.values():
        times.sort()
    pauses = {span.name: pause_s(span, by_tenant) for span in spans}
    again = {span.name: repeats(span, stream.sent, arrived) for span in spans}
    for span in spans:
        _lib.progress(f"{span.name}: longest pause {pauses[span.name]:.2f} s, {again[span.name]} repeated")
    *restarts, kill = (span.name for span in spans)
    times = sorted((arrived[id].first_ns - one.at_ns) / 1e6 for id, one in stream.sent.items() if id in arrived)
    _lib.report(
        lost=len(stream.sent.keys() - arrived.keys()),
        duplicates=max(again[name] for name in restarts),
        pause_s=max(pauses[name] for name in restarts),
        kill_pause_s=pauses[kill],
        kill_duplicates=again[kill],
        kill_pause_s_allowed=SESSION_TIMEOUT_MS / 1000 + 10,
        facts=len(stream.sent),
        facts_per_s=PER_S,
        p50_ms=_lib.percentile(times, 50),
        duplicates_each=[again[name] for name in restarts],
        pause_s_each=[round(pauses[name], 2) for name in restarts],
    )


if __name__ == "__main__":
    main()
