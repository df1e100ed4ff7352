"""A member of a group over every existing topic of a form; new ones as they appear."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from aiokafka import TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.limits import Limits
from hub_app.kafka.member import GroupMember
from hub_app.kafka.partitions import Deliver
from hub_app.kafka.standing import Standing
from hub_app.kafka.topicwatch import TopicWatch
from hub_app.ports import Clock, Entropy

NO_SHARD = -1


class PatternPlane(GroupMember):
    """`read_committed`, from the earliest record, offsets committed after each batch. `Batch.shard` is -1.

    It looks at the list of topics itself, every METADATA_MAX_AGE, and subscribes by name: Kafka clients' own pattern
    subscription takes a list that a starting broker shortens as a deletion, and rebalances for each."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        name: str,
        group: str,
        pattern: str,
        deliver: Deliver,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        accepts: Callable[[str], bool] | None = None,
        instance_id: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        """`pattern` must match the whole name; `accepts(topic)` is asked about what it matches as well."""
        form = re.compile(pattern)

        def wanted(topic: str) -> bool:
            return form.fullmatch(topic) is not None and (accepts is None or accepts(topic))

        self._pattern = pattern
        super().__init__(
            config,
            name=name,
            group=group,
            topics=TopicWatch((), wanted),
            deliver=deliver,
            commit_after_batch=True,
            standing=standing,
            clock=clock,
            entropy=entropy,
            limits=limits or Limits(),
            instance_id=instance_id,
            isolation_level="read_committed",
            from_earliest=True,
            assignor=RoundRobinPartitionAssignor,
        )

    @property
    def topics(self) -> Sequence[str]:
        """What the pattern matches now, sorted; empty shows in readiness."""
        return sorted(self._watch.topics)

    def _nothing_to_read(self) -> str:
        return f"no topic matches {self._pattern}"

    def _take_assignment(self, tps: frozenset[TopicPartition]) -> None:
        flows = self._partitions.flows
        self._partitions.retire([tp for tp in flows if tp not in tps])
        for tp in tps:
            if tp not in flows:
                self._partitions.add(tp, NO_SHARD, None)
        self._go_on()
