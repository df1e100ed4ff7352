"""What the broker says this user may do, and how topics lie. aiokafka 0.14 asks for neither: its metadata request ends
at version 5, and it reads the answer about groups without the part that tells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import GroupAuthorizationFailedError, NoError, TopicAuthorizationFailedError, for_code
from aiokafka.protocol.admin import DescribeGroupsResponse_v3
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Boolean, Int16, Int32, Schema, String


class Right(Enum):
    """Kafka's AclOperation, by its code, which is also the bit of an answer."""

    READ = 3
    WRITE = 4
    CREATE = 5
    ALTER = 7
    DESCRIBE = 8
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11


class TopicSeen(NamedTuple):
    """A topic as its brokers tell. `hidden`: this user may not see whether it is there. `leaderless` and `thin`: of its
    partitions, those without a leader, and those with fewer replicas in sync than there are."""

    hidden: bool
    partitions: int
    replicas: int
    leaderless: int
    thin: int
    rights: frozenset[Right]


class ClusterSeen(NamedTuple):
    """`topics` holds those that are there, or hidden."""

    brokers: Sequence[str]
    rights: frozenset[Right]
    topics: Mapping[str, TopicSeen]


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            Array(("node_id", Int32), ("host", String("utf-8")), ("port", Int32), ("rack", String("utf-8"))),
        ),
        ("cluster_id", String("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            Array(
                ("error_code", Int16),
                ("topic", String("utf-8")),
                ("is_internal", Boolean),
                (
                    "partitions",
                    Array(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", Array(Int32)),
                        ("isr", Array(Int32)),
                        ("offline_replicas", Array(Int32)),
                    ),
                ),
                ("rights", Int32),
            ),
        ),
        ("rights", Int32),
    )


class _MetadataStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 8
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", Array(String("utf-8"))),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_rights", Boolean),
        ("include_topic_rights", Boolean),
    )


class _Metadata(Request[_MetadataStruct]):  # type: ignore[misc]
    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = list(topics)

    def build(self, request_struct_class: type[_MetadataStruct]) -> _MetadataStruct:
        return request_struct_class(self._topics, False, True, True)


class _GroupsStruct(RequestStruct):  # type: ignore[misc]
    API_KEY = 15
    API_VERSION = 3
    RESPONSE_TYPE = DescribeGroupsResponse_v3
    SCHEMA = Schema(("groups", Array(String("utf-8"))), ("include_rights", Boolean))


class _Groups(Request[_GroupsStruct]):  # type: ignore[misc]
    API_KEY = 15

    def __init__(self, groups: Sequence[str]) -> None:
        self._groups = list(groups)

    def build(self, request_struct_class: type[_GroupsStruct]) -> _GroupsStruct:
        return request_struct_class(self._groups, True)


async def see_cluster(admin: AIOKafkaAdminClient, topics: Iterable[str]) -> ClusterSeen:
    """The brokers, and those of the topics that are there. Makes none. Raises what Kafka's client raises."""
    said = (await admin._send_request(_Metadata(sorted(topics)))).to_object()
    return ClusterSeen(
        [f"{broker['host']}:{broker['port']}" for broker in said["brokers"]],
        _rights(said["rights"]),
        {row["topic"]: seen for row in said["topics"] if (seen := _topic(row)) is not None},
    )


async def group_rights(admin: AIOKafkaAdminClient, group: str) -> frozenset[Right]:
    """Empty when this user may not even see the group. Raises what Kafka's client raises."""
    try:
        node = await admin.find_coordinator(group)
        said = (await admin._send_request(_Groups([group]), node)).to_object()
    except GroupAuthorizationFailedError:
        return frozenset()
    [row] = said["groups"]
    return _rights(row["authorized_operations"]) if for_code(row["error_code"]) is NoError else frozenset()


def _topic(row: Mapping[str, Any]) -> TopicSeen | None:
    error, partitions = for_code(row["error_code"]), row["partitions"]
    if error is TopicAuthorizationFailedError:
        return TopicSeen(True, 0, 0, 0, 0, frozenset())
    if not partitions:
        return None
    return TopicSeen(
        False,
        len(partitions),
        min(len(one["replicas"]) for one in partitions),
        sum(one["leader"] < 0 for one in partitions),
        sum(len(one["isr"]) < len(one["replicas"]) for one in partitions),
        _rights(row["rights"]),
    )


_NOT_TOLD: Final = -(1 << 31)


def _rights(bits: int) -> frozenset[Right]:
    return frozenset() if bits == _NOT_TOLD else frozenset(right for right in Right if bits >> right.value & 1)
