"""Produce to sink, at 50 facts a second, one worker with its defaults: the time from just before a fact is sent to
Kafka until the sink has its request. All on one machine, so one clock."""

from __future__ import annotations

import asyncio
import os
import time

import uvloop

from hub_app.dev.facts import FactProducer, NewFact, make_topics
from hub_app.dev.worker import Api
from hub_app.domain.ids import event_id
from tests.bench import _hub, _lib

PER_S = int(os.environ.get("PER_S", "50"))
SECONDS = int(os.environ.get("SECONDS", "20"))
WARM_UP = 100
ROUNDS = int(os.environ.get("ROUNDS", "3"))


async def produce(bootstrap: str, source: str, count: int) -> dict[str, int]:
    """Facts at a steady pace; when each was about to be sent, by the webhook-id that its delivery will carry."""
    sent: dict[str, int] = {}
    pending: set[asyncio.Task[None]] = set()
    async with FactProducer(bootstrap) as producer:
        began = time.monotonic()
        for i in range(count):
            await asyncio.sleep(max(0.0, began + i / PER_S - time.monotonic()))
            fact = NewFact(id=f"{source}-{i}", tenant=f"tenant-{i % _hub.TENANTS}", source=source, body=_hub.BODY)
            if i >= WARM_UP:
                sent[event_id(fact.tenant, source, source, fact.id)] = time.monotonic_ns()
            pending.add(asyncio.create_task(producer.send(fact)))
        await asyncio.gather(*pending)
    return sent


def run(bench: _hub.Bench, sink: _lib.Sink) -> list[float]:
    """Milliseconds per fact."""
    source = _hub.new_source()
    uvloop.run(make_topics(bench.bootstrap, [source]))
    worker = bench.worker(f"{source}.", env="local").start().wait_ready()
    try:
        _hub.subscribe(Api(worker.url), [sink.url(f"/d{i}") for i in range(_hub.TENANTS)])
        sink.forget()
        count = WARM_UP + PER_S * SECONDS
        sent = uvloop.run(produce(bench.bootstrap, source, count))
        ends = time.monotonic() + 30
        while sink.counts()[1] < count and time.monotonic() < ends:
            time.sleep(0.05)
        arrived = sink.arrivals()
    finally:
        bench.end_workers()
    return [(arrived[name].first_ns - at_ns) / 1e6 for name, at_ns in sent.items()]


def main() -> None:
    rounds: list[list[float]] = []
    for number in range(ROUNDS):
        with _hub.bench() as bench, _lib.sink(record="webhook-id") as sink:
            times = run(bench, sink)
        rounds.append(times)
        p50, p99 = _lib.percentile(times, 50), _lib.percentile(times, 99)
        _lib.progress(f"round {number + 1}: p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    best = min(rounds, key=lambda times: _lib.percentile(times, 99))
    _lib.report(
        p50_ms=_lib.percentile(best, 50),
        p99_ms=_lib.percentile(best, 99),
        max_ms=max(best),
        facts=len(best),
        p99_ms_rounds=[round(_lib.percentile(times, 99), 1) for times in rounds],
    )


if __name__ == "__main__":
    main()
