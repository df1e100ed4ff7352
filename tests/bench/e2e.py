"""Deliveries a second of one worker (64 dispatch workers, ten destinations of ten tenants, a sink that answers at once)
against a bare aiohttp client that posts the same request, 64 in flight. Facts are written before the worker starts.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

import aiohttp
import uvloop

from hub_app.dev.worker import Api
from tests.bench import _hub, _lib
from tests.bench.sender import HEADERS, IN_FLIGHT

FACTS = int(os.environ.get("FACTS", "30000"))
RAW_POSTS = 15_000
ROUNDS = int(os.environ.get("ROUNDS", "3"))


async def raw(port: int) -> None:
    """The yardstick, in a process of its own."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=IN_FLIGHT)) as session:

        async def post(count: int) -> None:
            for _ in range(count):
                async with session.post(f"http://127.0.0.1:{port}/d0", data=_hub.BODY, headers=HEADERS) as answer:
                    await answer.read()

        async def posts(count: int) -> None:
            await asyncio.gather(*(post(count // IN_FLIGHT) for _ in range(IN_FLIGHT)))

        await posts(2_000)
        before = _lib.Usage.now()
        await posts(RAW_POSTS)
        spent = _lib.Usage.now().since(before)
    _lib.report(per_s=RAW_POSTS / spent.at_s, cpu_us=1e6 * spent.cpu_s / RAW_POSTS)


def hub(bench: _hub.Bench, sink: _lib.Sink) -> dict[str, float]:
    source = _hub.new_source()
    settings = {"env": "local", "dispatch_workers": "64"}
    worker = bench.worker(f"{source}.", **settings).start().wait_ready()
    _hub.subscribe(Api(worker.url), [sink.url(f"/d{i}") for i in range(_hub.TENANTS)])
    worker.stop()
    _hub.preload(bench.bootstrap, _hub.facts(source, FACTS))
    sink.forget()
    try:
        worker.start().wait_ready()
        samples = _hub.watch(worker, lambda: sink.counts()[0], FACTS)
        per_s, cpu_us = _hub.slope(samples)
        time.sleep(1)
        requests, ids = sink.counts()
    finally:
        bench.end_workers()
    return {
        "per_s": per_s,
        "cpu_us": cpu_us,
        "rss_mib": max(sample.rss_mib for sample in samples),
        "lost": FACTS - ids,
        "duplicates": requests - ids,
    }


def main() -> None:
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(ROUNDS):
        with _hub.bench() as bench, _lib.sink(record="webhook-id") as sink:
            whole = hub(bench, sink)
            bare = _lib.run_child("tests.bench.e2e", "raw", sink.port)
            _lib.progress(
                f"round {number + 1}: hub {whole['per_s']:.0f}/s {whole['cpu_us']:.0f} us,"
                f" bare client {bare['per_s']:.0f}/s {bare['cpu_us']:.0f} us"
            )
            rounds.append((whole, bare))
    whole, bare = max(rounds, key=lambda both: both[0]["per_s"])
    _lib.report(
        ratio=whole["per_s"] / bare["per_s"],
        deliveries_per_s=whole["per_s"],
        raw_per_s=bare["per_s"],
        cpu_us_per_delivery=whole["cpu_us"],
        raw_cpu_us=bare["cpu_us"],
        rss_mib=max(both[0]["rss_mib"] for both in rounds),
        lost=sum(both[0]["lost"] for both in rounds),
        duplicates=sum(both[0]["duplicates"] for both in rounds),
        rounds=[round(a["per_s"] / b["per_s"], 3) for a, b in rounds],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["raw"]:
        uvloop.run(raw(int(sys.argv[2])))
    else:
        main()
