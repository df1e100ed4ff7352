"""Reading around a record batch that aiokafka does not decode.

Kafka takes any bytes as the name of a header, and so do its Java and C clients. aiokafka (tried: 0.14.0) decodes names
as UTF-8 and raises UnicodeDecodeError for the whole fetch: the partition would stand still at that record for ever.
Here one fetch is made by hand and read again with such bytes kept as lone surrogates (PEP 383), which no name that was
UTF-8 has. Everything else (transactions, checksums, compression) stays aiokafka's.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka import errors as err
from aiokafka.consumer.fetcher import READ_COMMITTED, READ_UNCOMMITTED, PartitionRecords
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.record.default_records import _DefaultRecordBatchPy, _DefaultRecordPy
from aiokafka.record.util import decode_varint

from hub_app.kafka.client import Isolation

_BATCH_HEAD = struct.Struct(">qi")  # base offset, length of what follows
_LOG_APPEND_TIME = 1


async def fetch(
    consumer: AIOKafkaConsumer, tp: TopicPartition, offset: int, *, isolation: Isolation, bytes_max: int
) -> tuple[Sequence[ConsumerRecord], int]:
    """Records from `offset` on, as one fetch brings them, and the offset after them. The consumer's own position is
    left as it is. Raises KafkaError, also (CorruptRecordException) for what is really damaged."""
    node = consumer._client.cluster.leader_for_partition(tp)
    if node is None or node < 0:
        raise err.LeaderNotAvailableError(f"{tp.topic}/{tp.partition}")
    level = READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED
    request = FetchRequest(0, 1, bytes_max, level, [(tp.topic, [(tp.partition, offset, bytes_max)])])
    response = await consumer._client.send(node, request)
    [(_, [(_, code, _, *rest)])] = response.topics
    if code:
        raise err.for_code(code)(f"{tp.topic}/{tp.partition}")
    aborted = rest[2] if response.API_VERSION >= 11 else rest[-2]
    found = PartitionRecords(tp, _Batches(rest[-1]), aborted, offset, None, None, True, level)
    return list(found), found.next_fetch_offset


class _Batches:
    """The batches of a fetch, as `PartitionRecords` wants them. The last one may be cut; it is left out."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def has_next(self) -> bool:
        return self._end() <= len(self._data)

    def next_batch(self) -> _Batch:
        start, self._at = self._at, self._end()
        return _Batch(self._data[start : self._at])

    def _end(self) -> int:
        if self._at + _BATCH_HEAD.size > len(self._data):
            return len(self._data) + 1
        _, length = _BATCH_HEAD.unpack_from(self._data, self._at)
        return self._at + _BATCH_HEAD.size + int(length)


class _Batch(_DefaultRecordBatchPy):  # type: ignore[misc]
    """aiokafka's reader in Python, with another way to decode names."""

    _pos: int

    def _read_msg(self, *_decode: Any) -> _DefaultRecordPy:
        buffer: bytearray = self._buffer
        length, start = decode_varint(buffer, self._pos)
        pos: int = start + 1  # attributes: none are defined
        elapsed, pos = decode_varint(buffer, pos)
        at = self.max_timestamp if self.timestamp_type == _LOG_APPEND_TIME else self.first_timestamp + elapsed
        offset, pos = decode_varint(buffer, pos)
        key, pos = _nullable(buffer, pos)
        value, pos = _nullable(buffer, pos)
        count, pos = decode_varint(buffer, pos)
        headers = []
        for _ in range(count):
            name, pos = _nullable(buffer, pos)
            data, pos = _nullable(buffer, pos)
            headers.append(((name or b"").decode("utf-8", "surrogateescape"), data))
        if pos - start != length:
            raise err.CorruptRecordException(f"a record of {length} bytes was read as {pos - start}")
        self._pos = pos
        return _DefaultRecordPy(self.base_offset + offset, at, self.timestamp_type, key, value, headers)


def _nullable(buffer: bytearray, pos: int) -> tuple[bytes | None, int]:
    length: int
    length, pos = decode_varint(buffer, pos)
    return (None, pos) if length < 0 else (bytes(buffer[pos : pos + length]), pos + length)
