"""Facts a second into the committed inbox (1 KiB, eleven headers, dedup on, no subscription), against plain aiokafka:
consume, `send_batch`, commit of the same records. Each in a process of its own, on the same broker, in turn.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hub_app.dev.facts import topic_of
from hub_app.topics import partition_for
from tests.bench import _hub, _lib

FACTS = int(os.environ.get("FACTS", "60000"))
ROUNDS = int(os.environ.get("ROUNDS", "3"))


async def plain(bootstrap: str, source: str, count: int) -> None:
    """The yardstick: what aiokafka alone does with these records."""
    target = f"plain.{source}"
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(target, _hub.SHARDS, 1)])
    await admin.close()
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        enable_idempotence=True,
        max_batch_size=512 << 10,
        compression_type="lz4",
    )
    consumer = AIOKafkaConsumer(
        topic_of(source),
        bootstrap_servers=bootstrap,
        group_id=target,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
    )
    await producer.start()
    await consumer.start()
    done, began = 0, None
    while done < count:
        for place, records in (await consumer.getmany(timeout_ms=100)).items():
            if began is None:
                began = _lib.Usage.now()
            await _forward(producer, target, records)
            await consumer.commit({place: records[-1].offset + 1})
            done += len(records)
    assert began is not None
    spent = _lib.Usage.now().since(began)
    _lib.report(per_s=count / spent.at_s, cpu_us=1e6 * spent.cpu_s / count)
    await consumer.stop()
    await producer.stop()


async def _forward(producer: AIOKafkaProducer, target: str, records: list[Any]) -> None:
    batches: dict[int, Any] = {}
    futures = []
    for record in records:
        key = record.key
        partition = partition_for(key, _hub.SHARDS)
        batch = batches.get(partition)
        if batch is None:
            batch = batches[partition] = producer.create_batch()
        item = {"key": key, "value": record.value, "timestamp": None, "headers": list(record.headers)}
        if batch.append(**item) is None:
            futures.append(await producer.send_batch(batch, target, partition=partition))
            batch = batches[partition] = producer.create_batch()
            batch.append(**item)
    for partition, batch in batches.items():
        futures.append(await producer.send_batch(batch, target, partition=partition))
    await asyncio.gather(*futures)


def hub(bench: _hub.Bench, source: str) -> dict[str, float]:
    prefix = f"{source}."
    worker = bench.worker(prefix, env="local")
    committed = None
    try:
        worker.start().wait_ready()
        committed = _hub.Committed(bench.bootstrap, "streaming-hub-inbox.local", f"{prefix}facts")
        samples = _hub.watch(worker, committed, FACTS)
        per_s, cpu_us = _hub.slope(samples)
        return {"per_s": per_s, "cpu_us": cpu_us, "rss_mib": max(sample.rss_mib for sample in samples)}
    finally:
        if committed is not None:
            committed.close()
        bench.end_workers()


def main() -> None:
    rounds: list[tuple[dict[str, float], dict[str, float]]] = []
    for number in range(ROUNDS):
        with _hub.bench() as bench:
            source = _hub.new_source()
            _lib.progress(f"round {number + 1}: writing {FACTS} facts")
            _hub.preload(bench.bootstrap, _hub.facts(source, FACTS))
            bare = _lib.run_child("tests.bench.ingest", "plain", bench.bootstrap, source, FACTS)
            whole = hub(bench, source)
            _lib.progress(f"  plain {bare['per_s']:.0f}/s, hub {whole['per_s']:.0f}/s {whole['cpu_us']:.0f} us")
            rounds.append((whole, bare))
    whole, bare = max(rounds, key=lambda both: both[0]["per_s"])
    _lib.report(
        ratio=whole["per_s"] / bare["per_s"],
        facts_per_s=whole["per_s"],
        plain_per_s=bare["per_s"],
        cpu_us_per_fact=whole["cpu_us"],
        plain_cpu_us=bare["cpu_us"],
        rss_mib=max(both[0]["rss_mib"] for both in rounds),
        rounds=[round(a["per_s"] / b["per_s"], 3) for a, b in rounds],
        at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["plain"]:
        uvloop.run(plain(sys.argv[2], sys.argv[3], int(sys.argv[4])))
    else:
        main()
