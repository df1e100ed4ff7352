"""Which topics these are: the id a broker gives a topic when it is created, and never again (KIP-516).

A topic that is deleted and created again has the same name, and soon the same offsets; only its id tells the two
apart. aiokafka (tried: 0.14.0) asks for metadata up to version 5, ids came with 10; so the request is described here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IncompatibleBrokerVersion, NoError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    AbstractType,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

UNKNOWN = bytes(16)


class _Uuid(AbstractType[bytes]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: bytes) -> bytes:
        return value

    @classmethod
    def decode(cls, data: BytesIO) -> bytes:
        return data.read(16)


class _Answer(Response):  # type: ignore[misc]
    API_KEY, API_VERSION = 3, 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _Question(RequestStruct):  # type: ignore[misc]
    API_KEY, API_VERSION, FLEXIBLE_VERSION = 3, 12, True
    RESPONSE_TYPE = _Answer
    SCHEMA = Schema(
        ("topics", CompactArray(("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields))),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Ask(Request[_Question]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[Any]) -> Any:
        return request_struct_class([(UNKNOWN, topic, {}) for topic in self._topics], False, False, {})


async def topic_ids(consumer: AIOKafkaConsumer, topics: Sequence[str]) -> Mapping[str, bytes]:
    """topic -> its 16 bytes. A topic that a broker does not know is left out; so are all by brokers before 2.8, where
    topics have no ids: nobody can tell there. Raises KafkaError when no broker answers."""
    client = consumer._client
    try:
        answer = await client.send(client.get_random_node(), _Ask(topics))
    except (IncompatibleBrokerVersion, NotImplementedError):
        return {}
    found = {topic[1]: topic[2] for topic in answer.topics if for_code(topic[0]) is NoError}
    return {name: id for name, id in found.items() if id != UNKNOWN}
