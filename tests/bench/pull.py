"""Queue pull, one worker with its defaults, over HTTP as the Event Grid clients speak it.

    events_per_s   receive and acknowledge in batches of 100, events of 1 KB, every lock and acknowledgement in Kafka
                   before its answer; CLIENTS at once
    idle_cpu_pct   the worker's CPU with 200 long polls that nothing comes for
    wake_p99_ms    from just before a publish is sent until a receive that waits has the event

Yardsticks of the same run: `append_ms`, one acknowledged append to the same Kafka; `base_cpu_pct`, the worker's CPU
with nobody there.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, NamedTuple

import aiohttp
import orjson
import uvloop
from aiokafka import AIOKafkaProducer

from hub_app.dev.worker import Api, Worker
from tests.bench import _hub, _lib
from tests.support.event_grid import queue

EVENTS = int(os.environ.get("EVENTS", "40000"))
CLIENTS = int(os.environ.get("CLIENTS", "4"))
POLLS = 200
IDLE_S = float(os.environ.get("IDLE_S", "8"))
WAKES = int(os.environ.get("WAKES", "200"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
BATCH = 100
VERSION = "api-version=2024-06-01"
TENANT = "bench"
BODY = "x" * 900  # with its attributes about 1 KB


class Client:
    """One HTTP session; as lean as a client can be, so that the worker is what is measured."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str, topic: str) -> None:
        self._session, self._topic = session, f"{url}/t/{TENANT}/topics/{topic}"
        self._headers = {"Authorization": f"SharedAccessKey {key}", "Content-Type": "application/json"}

    async def publish(self, events: list[dict[str, Any]]) -> None:
        await self._post(f"{self._topic}:publish?{VERSION}", events)

    async def receive(self, most: int, wait_s: int = 10) -> list[dict[str, Any]]:
        query = f"{VERSION}&maxEvents={most}&maxWaitTime={wait_s}"
        value: list[dict[str, Any]] = (await self._post(f"{self._topic}/eventsubscriptions/q:receive?{query}"))["value"]
        return value

    async def acknowledge(self, got: list[dict[str, Any]]) -> int:
        tokens = {"lockTokens": [one["brokerProperties"]["lockToken"] for one in got]}
        return len(
            (await self._post(f"{self._topic}/eventsubscriptions/q:acknowledge?{VERSION}", tokens))[
                "succeededLockTokens"
            ]
        )

    async def _post(self, url: str, body: object = None) -> Any:
        data = None if body is None else orjson.dumps(body)
        async with self._session.post(url, data=data, headers=self._headers) as answer:
            text = await answer.read()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status} {text[:200]!r}")
            return orjson.loads(text)


class Round(NamedTuple):
    events_per_s: float
    cpu_us_per_event: float
    idle_cpu_pct: float
    base_cpu_pct: float
    wakes_ms: list[float]
    append_ms: float
    rss_mib: float


def event(id: int, kind: str = "bench") -> dict[str, Any]:
    return {"specversion": "1.0", "id": f"{kind}-{id}", "source": "/bench", "type": "bench.made", "data": BODY}


async def drain(client: Client, count: int) -> None:
    """Receives and acknowledges `count` events with CLIENTS at once."""
    left, over = count, asyncio.Event()

    async def one() -> None:
        nonlocal left
        while left > 0:
            got = await client.receive(BATCH)
            done = await client.acknowledge(got)
            left -= done
        over.set()

    tasks = [asyncio.create_task(one()) for _ in range(CLIENTS)]
    await over.wait()  # the others wait for what does not come
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def cpu_pct(worker: Worker, seconds: float) -> float:
    before = _lib.Usage.now(worker.pid)
    await asyncio.sleep(seconds)
    spent = _lib.Usage.now(worker.pid).since(before)
    return 100 * spent.cpu_s / spent.at_s


async def wakes(client: Client, publisher: Client) -> list[float]:
    times = []
    for number in range(WAKES):
        waiting = asyncio.create_task(client.receive(1))
        await asyncio.sleep(0.02)
        began = time.perf_counter()
        await publisher.publish([event(number, "wake")])
        got = await waiting
        times.append(1000 * (time.perf_counter() - began))
        await client.acknowledge(got)
    return times


async def append_ms(bootstrap: str, topic: str) -> float:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True) as producer:
        times = []
        for _ in range(100):
            began = time.perf_counter()
            await producer.send_and_wait(topic, b"x" * 4096)
            times.append(1000 * (time.perf_counter() - began))
    return _lib.percentile(times, 50)


async def measure(bench: _hub.Bench, worker: Worker, prefix: str) -> Round:
    api = Api(worker.url).tenant(TENANT)
    for topic in ("load", "wake", *(f"idle{i}" for i in range(10))):
        api.call("POST", "/v1/subscriptions", queue(topic, "q"))
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        clients = {name: Client(session, worker.url, api.key, name) for name in ("load", "wake")}
        base = await cpu_pct(worker, IDLE_S / 2)
        idle = [
            asyncio.create_task(Client(session, worker.url, api.key, f"idle{i % 10}").receive(1, 120))
            for i in range(POLLS)
        ]
        await asyncio.sleep(1.0)
        idle_cpu = await cpu_pct(worker, IDLE_S)
        times = await wakes(clients["wake"], clients["wake"])
        for task in idle:
            task.cancel()
        await asyncio.gather(*idle, return_exceptions=True)
        for start in range(0, EVENTS, 500):
            await clients["load"].publish([event(i) for i in range(start, start + 500)])
        while worker.metric("hub_admitted_total") < EVENTS + WAKES:
            await asyncio.sleep(0.1)
        before = _lib.Usage.now(worker.pid)
        await drain(clients["load"], EVENTS)
        spent = _lib.Usage.now(worker.pid).since(before)
    one_append = await append_ms(bench.bootstrap, f"{prefix}operator")  # read by nobody here
    rate = EVENTS / spent.at_s
    return Round(rate, 1e6 * spent.cpu_s / EVENTS, idle_cpu, base, times, one_append, _lib.rss_mib(worker.pid))


def main() -> None:
    rounds: list[Round] = []
    with _hub.bench() as bench:
        for number in range(ROUNDS):
            prefix = f"{_hub.new_source()}."
            worker = bench.worker(prefix, env="local", pull_rate="100000", pull_burst="100000").start().wait_ready()
            try:
                made = uvloop.run(measure(bench, worker, prefix))
            finally:
                bench.end_workers()
            rounds.append(made)
            p99 = _lib.percentile(made.wakes_ms, 99)
            _lib.progress(
                f"round {number + 1}: {made.events_per_s:.0f} events/s, {made.cpu_us_per_event:.0f} µs each; idle "
                f"{made.idle_cpu_pct:.1f} % (alone {made.base_cpu_pct:.1f}); wake p99 {p99:.1f} ms; "
                f"append {made.append_ms:.1f} ms"
            )
    best = max(rounds, key=lambda one: one.events_per_s)
    times = min((one.wakes_ms for one in rounds), key=lambda one: _lib.percentile(one, 99))
    _lib.report(
        events_per_s=best.events_per_s,
        cpu_us_per_event=best.cpu_us_per_event,
        idle_cpu_pct=min(one.idle_cpu_pct for one in rounds),
        base_cpu_pct=min(one.base_cpu_pct for one in rounds),
        wake_p50_ms=_lib.percentile(times, 50),
        wake_p99_ms=_lib.percentile(times, 99),
        append_ms=best.append_ms,
        rss_mib=best.rss_mib,
    )


if __name__ == "__main__":
    main()
