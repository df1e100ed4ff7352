"""Shard assignment: all partitions of a shard number together, sticky, balanced, with the owner map for everyone."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata

from hub_app.kafka.sharing import Claim, share

# The group's state is one record of __consumer_offsets: every member's metadata and assignment must fit below 1 MB.
GROUP_BYTES_MAX = 900_000
LOOK_INTERVAL_MS = 1_000


class Member(NamedTuple):
    """One member of a group as others see it. `instance` is empty for dynamic members; `boot` differs with every start
    of a process."""

    member_id: str
    instance: str
    boot: str
    url: str
    shards: frozenset[int]


class ShardAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One instance per member. `url` is where this member's HTTP is reached; `shards_on_disk()` names the shards whose
    folder it holds. After an assignment `owners` is the whole group's map and `mine` what this member got."""

    name = "hub-shards"

    def __init__(
        self, *, url: str, shards_on_disk: Callable[[], Collection[int]], instance: str = "", boot: str = ""
    ) -> None:
        self._who = {"url": url, "instance": instance, "boot": boot}
        self._shards_on_disk = shards_on_disk
        self._owners: Mapping[int, str] = {}
        self.mine: frozenset[int] = frozenset()
        self.assignments = 0
        self.nudges = 0
        """Raised to have the group rebalanced: a join that says nothing new is answered with what there is."""

    @property
    def owners(self) -> Mapping[int, str]:
        """shard -> URL, as of the last assignment."""
        return self._owners

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the leader: URL, shards it owns, shards it holds on disk."""
        said = {**self._who, "own": sorted(self.mine), "disk": sorted(self._shards_on_disk()), "nudges": self.nudges}
        return ConsumerProtocolMemberMetadata(0, sorted(topics), _dump(said))

    def assign(
        self, cluster: Any, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Run by the leader. A member gets only topics it subscribes to: one it has not discovered yet stays unread
        for its shards until it has, so that a shard never has two owners."""
        partitions = {
            topic: frozenset(cluster.partitions_for_topic(topic) or ())
            for topic in sorted({t for m in members.values() for t in m.subscription})
        }
        shards = sorted(frozenset().union(*partitions.values())) if partitions else []
        said = {member: _load(metadata.user_data) for member, metadata in members.items()}
        claims = {m: Claim(_numbers(s.get("own")), _numbers(s.get("disk"))) for m, s in said.items()}
        shared = share(shards, claims)
        owners = _owner_map({m: str(said[m].get("url", "")) for m in shared}, shared)
        user_data = _bounded(owners, len(members), sum(len(m.user_data or b"") for m in members.values()))
        return {
            member: ConsumerProtocolMemberAssignment(
                0,
                [
                    (topic, mine)
                    for topic in sorted(members[member].subscription)
                    if (mine := [s for s in shared[member] if s in partitions[topic]])
                ],
                user_data,
            )
            for member in members
        }

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Called before the rebalance listener hears of the assignment."""
        self._owners = read_owner_map(assignment.user_data)
        self.mine = frozenset(p for _, partitions in assignment.assignment for p in partitions)
        self.assignments += 1

    def lost(self, shards: Collection[int]) -> None:
        """This member holds these no longer (closed, folder lost): do not claim them again."""
        self.mine -= frozenset(shards)


class OwnerReader:
    """The owner map of a group for those who are not in it. Asks the broker at most once a second."""

    def __init__(self, admin: AIOKafkaAdminClient, group: str, *, now_ms: Callable[[], int]) -> None:
        """`now_ms` is a monotonic clock."""
        self._admin = admin
        self._group = group
        self._now_ms = now_ms
        self._looked_ms: int | None = None
        self._owners: Mapping[int, str] = {}

    async def owners(self) -> Mapping[int, str]:
        """The last known map when the broker does not answer or the group is rebalancing; empty without members."""
        now = self._now_ms()
        if self._looked_ms is not None and now - self._looked_ms < LOOK_INTERVAL_MS:
            return self._owners
        self._looked_ms = now
        try:
            members = await read_members(self._admin, self._group)
        except Exception:  # whatever the broker or the network does, the last map is the best answer
            return self._owners
        if members is not None:
            self._owners = {s: m.url for m in members for s in m.shards}
        return self._owners


async def read_owners(admin: AIOKafkaAdminClient, group: str) -> Mapping[int, str] | None:
    """One look at the group's owner map, without a cache. None while the group is rebalancing."""
    members = await read_members(admin, group)
    return None if members is None else {s: m.url for m in members for s in m.shards}


async def read_members(admin: AIOKafkaAdminClient, group: str) -> Sequence[Member] | None:
    """The members of `group` with what they told; None while it is rebalancing (nothing is known then)."""
    [response] = await admin.describe_consumer_groups([group])
    [described] = response.to_object()["groups"]
    if described["state"] not in ("Stable", "Empty", "Dead"):
        return None
    members = []
    for row in described["members"]:
        metadata, assignment = row["member_metadata"], row["member_assignment"]
        said = _load(ConsumerProtocolMemberMetadata.decode(metadata).user_data) if metadata else {}
        got = ConsumerProtocolMemberAssignment.decode(assignment).assignment if assignment else []
        shards = frozenset(p for _, partitions in got for p in partitions)
        instance, boot, url = (str(said.get(key, "")) for key in ("instance", "boot", "url"))
        members.append(Member(row["member_id"], instance, boot, url, shards))
    return members


def read_owner_map(user_data: bytes | None) -> Mapping[int, str]:
    """The owner map inside an assignment; empty when it holds none (too large, or not ours)."""
    said = _load(user_data)
    urls, own = said.get("urls"), said.get("own")
    if not isinstance(urls, list) or not isinstance(own, list) or len(urls) != len(own):
        return {}
    return {s: str(url) for url, shards in zip(urls, own, strict=True) for s in _numbers(shards)}


def _owner_map(urls: Mapping[str, str], shared: Mapping[str, Sequence[int]]) -> bytes:
    members = [m for m in sorted(shared) if shared[m]]
    return _dump({"urls": [urls[m] for m in members], "own": [list(shared[m]) for m in members]})


def _bounded(owners: bytes, members: int, metadata_bytes: int) -> bytes:
    """The map as it is, compressed when all copies together would be too large, left out when even that is."""
    room = GROUP_BYTES_MAX - metadata_bytes
    for form in (owners, b"z" + zlib.compress(owners, 9)):
        if len(form) * members <= room:
            return form
    return b""


def _dump(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _load(user_data: bytes | None) -> dict[str, Any]:
    """What another member said; an empty dict for anything that is not ours."""
    try:
        data = bytes(user_data or b"{}")
        said = json.loads(zlib.decompress(data[1:]) if data[:1] == b"z" else data)
    except (ValueError, zlib.error):
        return {}
    return said if isinstance(said, dict) else {}


def _numbers(value: object) -> frozenset[int]:
    return frozenset(v for v in value if type(v) is int and v >= 0) if isinstance(value, list) else frozenset()
