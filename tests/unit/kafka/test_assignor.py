"""The assignor on aiokafka's own protocol structs."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from hub_app.kafka import assignor as module
from hub_app.kafka.assignor import OwnerReader, ShardAssignor, read_owner_map


class Cluster:
    """topic -> partitions, as aiokafka's cluster metadata answers it."""

    def __init__(self, topics: Mapping[str, int]) -> None:
        self._topics = topics

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self._topics[topic])) if topic in self._topics else None


def member(url: str, disk: Collection[int] = ()) -> ShardAssignor:
    return ShardAssignor(url=url, shards_on_disk=lambda: disk)


def round_of(members: Mapping[str, ShardAssignor], topics: Mapping[str, Collection[str]], cluster: Cluster) -> Any:
    """One rebalance: metadata over the wire, assignment over the wire, every member told."""
    wire = {m: a.metadata(topics[m]).encode() for m, a in members.items()}
    decoded = {m: ConsumerProtocolMemberMetadata.decode(w) for m, w in wire.items()}
    leader = next(iter(members.values()))
    answers = {
        m: ConsumerProtocolMemberAssignment.decode(a.encode()) for m, a in leader.assign(cluster, decoded).items()
    }
    for m, answer in answers.items():
        members[m].on_assignment(answer)
    return answers


@given(shards=st.integers(1, 30), count=st.integers(1, 7), topics=st.integers(1, 4), disks=st.data())
def test_all_partitions_of_a_shard_go_together_and_everyone_knows_the_owners(
    shards: int, count: int, topics: int, disks: st.DataObject
) -> None:
    names = [f"t{i}" for i in range(topics)]
    members = {
        f"m{i}": member(f"http://w{i}", disks.draw(st.frozensets(st.integers(0, shards), max_size=8)))
        for i in range(count)
    }
    answers = round_of(members, dict.fromkeys(members, names), Cluster(dict.fromkeys(names, shards)))
    seen: dict[tuple[str, int], str] = {}
    for m, answer in answers.items():
        per_topic = {t: sorted(p) for t, p in answer.assignment}
        assert len({tuple(p) for p in per_topic.values()}) <= 1
        for t, partitions in per_topic.items():
            for p in partitions:
                assert seen.setdefault((t, p), m) == m
                assert members[m].owners[p] == f"http://w{m[1:]}"
    assert len(seen) == topics * shards
    assert all(a.owners == members["m0"].owners and len(a.owners) == shards for a in members.values())


def test_shards_stay_where_they_are_when_a_member_comes() -> None:
    members = {"a": member("http://a"), "b": member("http://b")}
    cluster = Cluster({"t": 12})
    round_of(members, dict.fromkeys(members, ("t",)), cluster)
    before = {m: a.mine for m, a in members.items()}
    members["c"] = member("http://c")
    round_of(members, dict.fromkeys(members, ("t",)), cluster)
    assert all(members[m].mine <= before[m] for m in before)
    assert sorted(len(a.mine) for a in members.values()) == [4, 4, 4]


def test_a_topic_only_some_have_discovered_is_not_given_to_a_second_owner() -> None:
    members = {"a": member("http://a"), "b": member("http://b")}
    answers = round_of(members, {"a": ["t"], "b": ["t", "new"]}, Cluster({"t": 4, "new": 4}))
    assert [t for t, _ in answers["a"].assignment] == ["t"]
    assert dict(answers["b"].assignment)["new"] == dict(answers["b"].assignment)["t"]


def test_a_topic_with_fewer_partitions_gives_what_it_has() -> None:
    members = {"a": member("http://a")}
    answers = round_of(members, {"a": ["t", "short", "gone"]}, Cluster({"t": 3, "short": 1}))
    assert answers["a"].assignment == [("short", [0]), ("t", [0, 1, 2])]


def test_foreign_user_data_is_a_member_without_a_past() -> None:
    leader = member("http://a")
    odd = [b"", b"\xff\xfe", b"[1]", b'{"own":"x","disk":[true,-1,"2"]}', b"zzz"]
    metadata = {f"m{i}": ConsumerProtocolMemberMetadata(0, ["t"], data) for i, data in enumerate(odd)}
    shared = leader.assign(Cluster({"t": 5}), metadata)
    assert sorted(p for a in shared.values() for _, ps in a.assignment for p in ps) == [0, 1, 2, 3, 4]


def test_an_owner_map_too_large_for_the_group_is_compressed_and_then_left_out() -> None:
    members = {f"m{i}": member(f"http://worker-{i}.streaming-hub.svc.cluster.local:8080") for i in range(400)}
    answers = round_of(members, dict.fromkeys(members, ("t",)), Cluster({"t": 400}))
    assert sum(len(a.user_data) for a in answers.values()) <= module.GROUP_BYTES_MAX
    assert len(members["m7"].owners) == 400
    assert module._bounded(b"x" * 1000, 1000, module.GROUP_BYTES_MAX - 10) == b""
    assert read_owner_map(b"") == {}


async def test_non_members_look_at_most_once_a_second_and_keep_the_last_map() -> None:
    looks = 0

    class Admin:
        async def describe_consumer_groups(self, groups: list[str]) -> list[Any]:
            nonlocal looks
            looks += 1
            raise ConnectionError("away")

    now = 0
    reader = OwnerReader(Admin(), "g", now_ms=lambda: now)
    assert await reader.owners() == {}
    assert await reader.owners() == {}
    assert looks == 1
    now = 1_000
    await reader.owners()
    assert looks == 2
