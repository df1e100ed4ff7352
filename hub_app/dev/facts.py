"""Facts as a platform's producer writes them: CloudEvents in binary mode, every header, one topic per application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hub_app.topics import partition_for

BATCH_RECORDS = 2_000


class NewFact(NamedTuple):
    """One record to be written. `headers` replace or add to the ordinary ones; a value of None takes one away."""

    id: str
    tenant: str
    source: str = "lender"
    resource: str = "loan_application"
    event: str = "approved"
    body: bytes = b'{"amount":1250}'
    headers: tuple[tuple[str, bytes | None], ...] = ()


def headers(fact: NewFact, at: datetime | None = None) -> list[tuple[str, bytes]]:
    """All eleven headers of an ordinary producer, as a list (which is what Kafka clients send)."""
    time = (at or datetime.now(UTC)).isoformat(timespec="microseconds").replace("+00:00", "Z")
    ordinary: dict[str, bytes | None] = {
        "ce-specversion": b"1.0",
        "ce-id": fact.id.encode(),
        "ce-source": fact.source.encode(),
        "ce-type": f"studio.lerian.{fact.source}.{fact.resource}.{fact.event}".encode(),
        "ce-time": time.encode(),
        "ce-schemaversion": b"1.0.0",
        "ce-resourcetype": fact.resource.encode(),
        "ce-eventtype": fact.event.encode(),
        "ce-tenantid": fact.tenant.encode(),
        "ce-subject": fact.id.encode(),
        "ce-datacontenttype": b"application/json",
        **dict(fact.headers),
    }
    return [(name, value) for name, value in ordinary.items() if value is not None]


def topic_of(source: str) -> str:
    return f"lerian.streaming.{source}"


async def make_topics(bootstrap: str, sources: Iterable[str], partitions: int = 4) -> None:
    """Creates the sources' topics; those that exist are left as they are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        existing = set(await admin.list_topics())
        new = [NewTopic(topic_of(s), partitions, 1) for s in dict.fromkeys(sources) if topic_of(s) not in existing]
        if new:
            answer = await admin.create_topics(new)
            failed = [error for error in answer.topic_errors if error[1] not in (0, 36)]  # 36: it exists by now
            if failed:
                raise RuntimeError(f"topics not created: {failed}")
    finally:
        await admin.close()


class FactProducer:
    """A platform's producer: idempotent, acks=all, compressed. Use as an async context manager."""

    def __init__(self, bootstrap: str, *, compression: str | None = "lz4", partitions: int = 4) -> None:
        self._bootstrap, self._compression, self._partitions = bootstrap, compression, partitions
        self._producer: AIOKafkaProducer | None = None

    async def __aenter__(self) -> FactProducer:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all",
            enable_idempotence=True,
            compression_type=self._compression,
            max_batch_size=512 << 10,
        )
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._producer is not None
        await self._producer.stop()

    async def send(self, fact: NewFact) -> None:
        """One fact, acknowledged."""
        assert self._producer is not None
        await self._producer.send_and_wait(
            topic_of(fact.source), fact.body, key=fact.tenant.encode(), headers=headers(fact)
        )

    async def send_many(self, facts: Sequence[NewFact]) -> None:
        """Many at once, in large batches, keyed by id so that they spread over the topic's partitions; acknowledged."""
        assert self._producer is not None
        at = datetime.now(UTC)
        for start in range(0, len(facts), BATCH_RECORDS):
            grouped: dict[tuple[str, int], list[NewFact]] = {}
            for fact in facts[start : start + BATCH_RECORDS]:
                place = (topic_of(fact.source), partition_for(fact.id.encode(), self._partitions))
                grouped.setdefault(place, []).append(fact)
            futures: list[asyncio.Future[object]] = []
            for (topic, partition), group in grouped.items():
                futures += await self._send_group(topic, partition, group, at)
            await asyncio.gather(*futures)

    async def _send_group(
        self, topic: str, partition: int, group: Sequence[NewFact], at: datetime
    ) -> list[asyncio.Future[object]]:
        assert self._producer is not None
        futures: list[asyncio.Future[object]] = []
        batch = self._producer.create_batch()
        for fact in group:
            record = {"key": fact.id.encode(), "value": fact.body, "timestamp": None, "headers": headers(fact, at)}
            if batch.append(**record) is None:
                futures.append(await self._producer.send_batch(batch, topic, partition=partition))
                batch = self._producer.create_batch()
                batch.append(**record)
        futures.append(await self._producer.send_batch(batch, topic, partition=partition))
        return futures
