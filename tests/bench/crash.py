"""kill -9 in the middle of the work: KILLS times during 20,000 facts, WIPES of them with the disk lost as well. The
sink counts every event by its webhook-id: lost must be 0, and repeats few.
"""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time

import uvloop

from hub_app.dev.facts import FactProducer, make_topics
from hub_app.dev.worker import Api, Worker
from tests.bench import _hub, _lib

FACTS = int(os.environ.get("FACTS", "20000"))
KILLS = int(os.environ.get("KILLS", "5"))
WIPES = int(os.environ.get("WIPES", "1"))
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
CHUNK = 200


async def produce(bootstrap: str, source: str, seconds: float) -> None:
    """The facts, in chunks, spread over the time in which workers are killed."""
    made = _hub.facts(source, FACTS)
    async with FactProducer(bootstrap) as producer:
        began, chunks = time.monotonic(), range(0, FACTS, CHUNK)
        for number, start in enumerate(chunks):
            await asyncio.sleep(max(0.0, began + seconds * number / len(chunks) - time.monotonic()))
            await producer.send_many(made[start : start + CHUNK])


async def storm(bench: _hub.Bench, worker: Worker, source: str, draw: random.Random) -> None:
    """Facts come while the worker is killed and started again."""
    pauses = [draw.uniform(1.0, 4.0) for _ in range(KILLS)]
    wiped = set(draw.sample(range(KILLS), min(WIPES, KILLS)))
    producing = asyncio.create_task(produce(bench.bootstrap, source, sum(pauses) + 2.0 * KILLS))
    for number, pause in enumerate(pauses):
        await asyncio.to_thread(worker.wait_ready, 90)
        await asyncio.sleep(pause)
        worker.kill()
        if number in wiped:
            shutil.rmtree(worker.data, ignore_errors=True)
        _lib.progress(f"kill {number + 1} after {pause:.2f} s{', disk wiped' if number in wiped else ''}")
        worker.start()
    await producing


def main() -> None:
    draw = random.Random(SEED)
    _lib.progress(f"SEED={SEED} KILLS={KILLS} WIPES={WIPES} FACTS={FACTS}")
    with _hub.bench() as bench, _lib.sink(record="webhook-id") as sink:
        source = _hub.new_source()
        uvloop.run(make_topics(bench.bootstrap, [source]))
        worker = bench.worker(f"{source}.", env="local", dispatch_workers="64").start().wait_ready()
        _hub.subscribe(Api(worker.url), [sink.url(f"/d{i}") for i in range(_hub.TENANTS)])
        sink.forget()
        uvloop.run(storm(bench, worker, source, draw))
        requests, ids = settle(sink)
        bench.end_workers()
    _lib.report(
        lost=FACTS - ids,
        duplicates=requests - ids,
        duplicates_per_kill=(requests - ids) / max(1, KILLS),
        kills=KILLS,
        wipes=WIPES,
        seed=SEED,
    )


def settle(sink: _lib.Sink, seconds: float = 120) -> tuple[int, int]:
    """(requests, ids) once every event has come and nothing more follows, or the time is over."""
    ends, before, since = time.monotonic() + seconds, (0, 0), time.monotonic()
    while time.monotonic() < ends:
        counts = sink.counts()
        if counts != before:
            before, since = counts, time.monotonic()
        # A job whose worker died is left alone until its claim's deadline and a margin have passed: 12 s.
        if time.monotonic() - since > (15 if counts[1] >= FACTS else 40):
            break
        time.sleep(0.2)
    return before


if __name__ == "__main__":
    main()
