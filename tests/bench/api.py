"""The API of one worker on a real Kafka.

read_ratio         requests a CPU second gives: GET of a subscription ÷ a bare aiohttp handler that returns the same
                   bytes, in a process of its own, asked by the same client
reads_per_s        GET of a subscription, CLIENTS connections that ask again at once
write_p99_ms       PATCH of a subscription, acknowledged by Kafka before its answer, one after another
pull_events_per_s  GET /v1/events at limit 1000, events of 1 KB of JSON, one client
pull_cpu_us        the worker's CPU for one of these events, which a busy machine does not change much
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any, NamedTuple

import orjson
import uvloop
from aiohttp import web

from hub_app.dev.facts import FactProducer, NewFact, make_topics
from hub_app.dev.worker import Api, Worker
from tests.bench import _hub, _lib

READS = int(os.environ.get("READS", "8000"))
WRITES = int(os.environ.get("WRITES", "200"))
EVENTS = int(os.environ.get("EVENTS", "20000"))
CLIENTS = int(os.environ.get("CLIENTS", "16"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))
LIMIT = 1_000
TENANT = "bench"
PAYLOAD = orjson.dumps({"note": "x" * 980, "amount": 1200})


class Connection:
    """HTTP as lean as a client can be, so that the server is what is measured."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Connection:
        return cls(*await asyncio.open_connection("127.0.0.1", port, limit=8 << 20))

    async def ask(self, request: bytes) -> bytes:
        self._writer.write(request)
        head = await self._reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise RuntimeError(head[:100].decode())
        at = head.lower().index(b"content-length:") + 15
        return await self._reader.readexactly(int(head[at : head.index(b"\r\n", at)]))

    def close(self) -> None:
        self._writer.close()


def request(method: str, path: str, key: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {key}\r\n"
    if body:
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}\r\n".encode() + body


class Reads(NamedTuple):
    per_s: float
    per_cpu_s: float


async def reads(port: int, pid: int, asked: bytes) -> Reads:
    connections = [await Connection.open(port) for _ in range(CLIENTS)]

    async def some(connection: Connection, count: int) -> None:
        for _ in range(count):
            await connection.ask(asked)

    await asyncio.gather(*(some(connection, 50) for connection in connections))
    before = _lib.Usage.now(pid)
    await asyncio.gather(*(some(connection, READS // CLIENTS) for connection in connections))
    spent = _lib.Usage.now(pid).since(before)
    for connection in connections:
        connection.close()
    return Reads(READS / spent.at_s, READS / spent.cpu_s)


async def writes(port: int, path: str, key: str) -> list[float]:
    connection, times = await Connection.open(port), []
    for number in range(WRITES):
        asked = request("PATCH", path, key, orjson.dumps({"name": f"n{number}"}))
        began = time.perf_counter()
        await connection.ask(asked)
        times.append(1000 * (time.perf_counter() - began))
    connection.close()
    return times


async def pull(port: int, pid: int, key: str) -> tuple[float, float]:
    """Events a second, once all are there; and microseconds of the worker's CPU for each."""
    connection = await Connection.open(port)

    async def whole() -> int:
        count, after = 0, "start"
        while True:
            page = orjson.loads(await connection.ask(request("GET", f"/v1/events?limit={LIMIT}&after={after}", key)))
            count, after = count + len(page["events"]), page["next"]
            if not page["events"]:
                return count

    while await whole() < EVENTS:
        await asyncio.sleep(0.2)
    before = _lib.Usage.now(pid)
    count = await whole()
    spent = _lib.Usage.now(pid).since(before)
    connection.close()
    return count / spent.at_s, spent.cpu_s / count * 1e6


class Round(NamedTuple):
    ratio: float
    reads: Reads
    writes_ms: list[float]
    pulled_per_s: float
    pulled_cpu_us: float


async def fill(bootstrap: str, source: str) -> None:
    await make_topics(bootstrap, [source])
    facts = [NewFact(id=f"{source}-{i}", tenant=TENANT, source=source, body=PAYLOAD) for i in range(EVENTS)]
    async with FactProducer(bootstrap, compression="lz4") as producer:
        await producer.send_many(facts)


async def measure(bench: _hub.Bench, worker: Worker) -> Round:
    api, port = Api(worker.url).tenant(TENANT), int(worker.url.rpartition(":")[2])
    wish = {"name": "n", "event_types": ["none.*"], "verify": False}
    made = api.call("POST", "/v1/subscriptions", {**wish, "sink": {"type": "webhook", "url": "http://127.0.0.1:9/"}})
    path = f"/v1/subscriptions/{made['id']}"
    asked = request("GET", path, api.key)
    connection = await Connection.open(port)
    body = await connection.ask(asked)
    connection.close()
    ours = await reads(port, worker.pid, asked)
    with _lib.child("tests.bench.api", "bare") as bare:
        assert bare.stdin is not None and bare.stdout is not None
        bare.stdin.write(body.decode() + "\n")
        bare.stdin.flush()
        theirs = await reads(int(bare.stdout.readline()), bare.pid, asked)
    times = await writes(port, path, api.key)
    await fill(bench.bootstrap, _hub.new_source())
    pulled, cpu_us = await pull(port, worker.pid, api.key)
    said = f"{ours.per_s:.0f} reads/s, bare {theirs.per_s:.0f}; pull {pulled:.0f} events/s, {cpu_us:.1f} us CPU each"
    _lib.progress(said)
    return Round(ours.per_cpu_s / theirs.per_cpu_s, ours, times, pulled, cpu_us)


def serve_bare() -> None:
    """The yardstick: one handler, the bytes given in the first line of stdin; says its port."""
    body = sys.stdin.readline().rstrip("\n").encode()

    async def handler(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def run() -> None:
        application = web.Application()
        application.router.add_get("/v1/subscriptions/{id}", handler)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        print(runner.addresses[0][1], flush=True)
        await asyncio.Event().wait()

    uvloop.run(run())


def main() -> None:
    rounds: list[Round] = []
    rates: dict[str, Any] = {
        "pull_rate": "100000",
        "pull_burst": "100000",
        "relaxed_rate_limit_max": "100000",
        "aggressive_rate_limit_max": "100000",
        "allow_private_sinks": "true",
    }
    with _hub.bench() as bench:
        for _ in range(ROUNDS):
            worker = bench.worker(f"{_hub.new_source()}.", env="local", **rates).start().wait_ready()
            try:
                rounds.append(uvloop.run(measure(bench, worker)))
            finally:
                bench.end_workers()
    _lib.report(
        read_ratio=max(one.ratio for one in rounds),
        reads_per_s=max(one.reads.per_s for one in rounds),
        write_p99_ms=min(_lib.percentile(one.writes_ms, 99) for one in rounds),
        pull_events_per_s=max(one.pulled_per_s for one in rounds),
        pull_cpu_us=min(one.pulled_cpu_us for one in rounds),
    )


if __name__ == "__main__":
    if sys.argv[1:] == ["bare"]:
        serve_bare()
    else:
        main()
