"""Partitions of a group's topics that no member was given: found, shown in readiness, and ended by a rebalance.

A static member that comes back within its session is given its old assignment, whatever it subscribes to now, and
nobody is told: the coordinator looks at the name of its protocol alone. A topic, or a partition, that came meanwhile is
read by nobody until the next rebalance, and no leader is there that would ask for one: aiokafka's watches the topics of
the assignments that it made itself, and this one made none since it started. So each static member compares what the
group was given with what there is. A join with metadata that the coordinator has not seen starts a rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment, ConsumerProtocolMemberMetadata
from aiokafka.protocol.admin import DescribeGroupsRequest

from hub_app.kafka.forever import describe
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock

log = logging.getLogger(__name__)

Place = tuple[str, int]
"""(topic, partition)"""
BEAT_S = 1.0
LOOK_AGAIN_MS = 30_000
"""How often a group that stands still, over topics that stand still, is looked at."""
ANSWER_S = 5.0
SEEN_BEFORE = 2
"""Looks in a row that find the same, before anybody does something about it: a rebalance may just have begun."""
PAUSE_MS_FIRST, PAUSE_MS_MAX = 5_000, 300_000
SHOWN_MAX = 5


class Group(NamedTuple):
    """A group that is stable: member ids, and what they were given together."""

    members: tuple[str, ...]
    given: frozenset[Place]


class Nudged(Protocol):
    """An assignor whose metadata carries `nudges`."""

    nudges: int


class NudgedRoundRobin(RoundRobinPartitionAssignor):  # type: ignore[misc]
    """aiokafka's, as an instance with metadata of its own. Understood by members without."""

    def __init__(self) -> None:
        self.nudges = 0

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What this member tells the coordinator."""
        return ConsumerProtocolMemberMetadata(self.version, list(topics), b"%d" % self.nudges if self.nudges else b"")


class Verdict(NamedTuple):
    """What is uncovered, and whether this member asks for a rebalance now."""

    uncovered: frozenset[Place]
    nudge: bool


class Looks:
    """What a member found, look by look. Pure; `now_ms` is monotonic.

    The first of the members by id asks first, the next one when that has not helped for two looks more, and so on. Each
    asks again after a pause that doubles from 5 s to 5 min, for as long as the same is uncovered: a rebalance that
    cannot help must not be repeated for ever."""

    def __init__(self) -> None:
        self._uncovered: frozenset[Place] = frozenset()
        self._seen, self._pause_ms, self._not_before_ms = 0, PAUSE_MS_FIRST, 0

    def judge(self, wanted: frozenset[Place], group: Group, own_id: str, now_ms: int) -> Verdict:
        uncovered = wanted - group.given
        if not uncovered:
            self._seen, self._pause_ms, self._not_before_ms = 0, PAUSE_MS_FIRST, 0
            self._uncovered = uncovered
            return Verdict(uncovered, False)
        self._seen = self._seen + 1 if uncovered & self._uncovered else 1
        self._uncovered = uncovered
        rank = group.members.index(own_id) if own_id in group.members else len(group.members)
        if self._seen < SEEN_BEFORE * (rank + 1) or now_ms < self._not_before_ms:
            return Verdict(uncovered if self._seen >= SEEN_BEFORE else frozenset(), False)
        self._not_before_ms = now_ms + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, PAUSE_MS_MAX)
        return Verdict(uncovered, True)


class Coverage:
    """Looks after one static member's group; `run` for each session."""

    def __init__(
        self, name: str, group: str, assignor: Nudged, *, standing: Standing, clock: Clock, look: Look | None = None
    ) -> None:
        self._name, self._group, self._assignor = name, group, assignor
        self._standing, self._clock, self._look_at = standing, clock, look or look_at
        self._looks = Looks()

    async def run(self, consumer: AIOKafkaConsumer) -> None:
        """Until cancelled. Looks when anything has changed, while anything is uncovered, and now and then."""
        known: object = None
        looked_ms = 0
        while True:
            await asyncio.sleep(BEAT_S)
            coordinator, now_ms = consumer._coordinator, self._clock.monotonic_ms()
            wanted = wanted_by(consumer)
            state = (coordinator.generation, wanted)
            if not wanted or (state == known and now_ms - looked_ms < LOOK_AGAIN_MS):
                continue
            group = await self._asked(consumer)
            if group is None or coordinator.generation != state[0]:
                continue  # it rebalances, or does not answer
            verdict = self._looks.judge(wanted, group, coordinator.member_id, now_ms)
            looked_ms, known = now_ms, state if not wanted - group.given else None
            self._show(verdict.uncovered)
            if verdict.nudge:
                log.warning("%s: nobody was given %s: asks for a rebalance", self._name, shown(verdict.uncovered))
                self._assignor.nudges += 1
                coordinator.request_rejoin()

    async def _asked(self, consumer: AIOKafkaConsumer) -> Group | None:
        asking = asyncio.ensure_future(self._look_at(consumer, self._group))
        try:
            await asyncio.wait([asking], timeout=ANSWER_S)
            return asking.result() if asking.done() else None
        except Exception as exc:  # the session shows what is wrong with the broker
            log.debug("%s: cannot look at the group: %s", self._name, describe(exc))
            return None
        finally:
            asking.cancel()

    def _show(self, uncovered: frozenset[Place]) -> None:
        if uncovered:
            self._standing.report(f"{self._name}/coverage", f"read by nobody: {shown(uncovered)}")
        else:
            self._standing.clear(f"{self._name}/coverage")


Look = Callable[[AIOKafkaConsumer, str], Any]


def wanted_by(consumer: AIOKafkaConsumer) -> frozenset[Place]:
    """Every partition, as far as is known here, of the topics that this member subscribes to."""
    topics = consumer.subscription()
    return frozenset((topic, p) for topic in topics for p in consumer.partitions_for_topic(topic) or ())


async def look_at(consumer: AIOKafkaConsumer, group: str) -> Group | None:
    """The group as its coordinator has it; None while it rebalances or has no coordinator. Raises KafkaError."""
    coordinator_id = consumer._coordinator.coordinator_id
    if coordinator_id is None:
        return None
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=False)
    response = await consumer._client.send(coordinator_id, request)
    [described] = response.to_object()["groups"]
    return read_group(described)


def read_group(described: Mapping[str, Any]) -> Group | None:
    """One group of an answer to DescribeGroups."""
    if described["error_code"] or described["state"] != "Stable":
        return None
    given: set[Place] = set()
    for member in described["members"]:
        if member["member_assignment"]:
            assignment = ConsumerProtocolMemberAssignment.decode(member["member_assignment"]).assignment
            given.update((topic, p) for topic, partitions in assignment for p in partitions)
    return Group(tuple(sorted(member["member_id"] for member in described["members"])), frozenset(given))


def shown(places: Iterable[Place]) -> str:
    """`topic/0, topic/1 and 3 more`."""
    names = [f"{topic}/{partition}" for topic, partition in sorted(places)]
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return ", ".join(names[:SHOWN_MAX]) + more
