"""Records that no ordinary client would write: names that are not UTF-8, no key and no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aiokafka import AIOKafkaProducer
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchBuilderPy

BATCH_BYTES = 4 << 20


class RawName(str):
    """A header name that is written as these bytes."""

    raw: bytes

    def __new__(cls, raw: bytes) -> RawName:
        made = super().__new__(cls, raw.decode("utf-8", "backslashreplace"))
        made.raw = raw
        return made

    def encode(self, *_: object) -> bytes:
        return self.raw


class RawRecord(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


async def write(
    bootstrap: str,
    topic: str,
    partition: int,
    records: Sequence[RawRecord],
    *,
    codec: int = DefaultRecordBatch.CODEC_NONE,
) -> None:
    """All in one Kafka record batch, acknowledged."""
    batch = BatchBuilder(BATCH_BYTES, codec)
    batch._builder = _DefaultRecordBatchBuilderPy(2, codec, 0, -1, -1, -1, BATCH_BYTES)
    for record in records:
        assert (
            batch.append(timestamp=None, key=record.key, value=record.value, headers=list(record.headers)) is not None
        )
    async with AIOKafkaProducer(
        bootstrap_servers=bootstrap, max_batch_size=BATCH_BYTES, max_request_size=BATCH_BYTES
    ) as producer:
        await (await producer.send_batch(batch, topic, partition=partition))
