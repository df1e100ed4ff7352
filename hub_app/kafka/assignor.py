"""Shard assignment: all partitions of a shard number together, sticky, balanced, with the owner map for everyone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor


class ShardAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One instance per member. `url` is where this member's HTTP is reached; `shards_on_disk()` names the shards whose
    folder it holds. After an assignment `owners` is the whole group's map."""

    name = "hub-shards"

    def __init__(self, *, url: str, shards_on_disk: Callable[[], Sequence[int]]) -> None:
        raise NotImplementedError

    @property
    def owners(self) -> Mapping[int, str]:
        """shard -> URL, as of the last assignment."""
        raise NotImplementedError

    def metadata(self, topics: Any) -> Any: ...

    def assign(self, cluster: Any, members: Any) -> Any: ...

    def on_assignment(self, assignment: Any) -> None: ...


class OwnerReader:
    """The owner map of a group for those who are not in it. Asks the broker at most once a second."""

    def __init__(self, admin: AIOKafkaAdminClient, group: str, *, now_ms: Callable[[], int]) -> None:
        raise NotImplementedError

    async def owners(self) -> Mapping[int, str]:
        """Empty when the group has no members or the broker does not answer (then the last known map)."""
        raise NotImplementedError
