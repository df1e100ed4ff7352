"""A member of a group over every existing topic of a form; new ones as they appear."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.coverage import NudgedRoundRobin
from hub_app.kafka.flow import Flow
from hub_app.kafka.limits import Limits
from hub_app.kafka.member import GroupMember
from hub_app.kafka.partitions import Deliver
from hub_app.kafka.standing import Standing
from hub_app.kafka.topicwatch import TopicWatch
from hub_app.ports import Clock, Entropy

NO_SHARD = -1
PLACE = "place"
PLACE_AGAIN_S = 0.5


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
        self._searches: set[asyncio.Task[None]] = set()
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
            assignor=NudgedRoundRobin(),
        )

    @property
    def topics(self) -> Sequence[str]:
        """What the pattern matches now, sorted; empty shows in readiness."""
        return sorted(self._watch.topics)

    def _nothing_to_read(self) -> str:
        return f"no topic matches {self._pattern}"

    async def _suspend(self) -> None:
        """Searches begin again with the next assignment; a consumer that is closed would leave them waiting."""
        for search in self._searches:
            search.cancel()

    def _disown(self) -> None:
        self._partitions.retire(list(self._partitions.flows))

    def _take_assignment(self, tps: frozenset[TopicPartition]) -> None:
        flows, consumer = self._partitions.flows, self._partitions.consumer
        assert consumer is not None
        self._partitions.retire([tp for tp in flows if tp not in tps])
        for tp in tps:
            flow = flows.get(tp) or self._partitions.add(tp, NO_SHARD, None)
            if flow.fetched is None:
                # Not fetched before its place is known: a fetch that fails takes with it what it brought of others,
                # and only who knows where they began can read that again.
                consumer.pause(tp)
                flow.gates.add(PLACE)
                task = asyncio.create_task(self._find_place(consumer, flow))
                self._searches.add(task)
                task.add_done_callback(self._searches.discard)
        self._go_on()

    async def _find_place(self, consumer: AIOKafkaConsumer, flow: Flow) -> None:
        """Where the group, or the log, says that reading begins. Ends when another assignment has taken over."""
        partitions = self._partitions
        while partitions.flows.get(flow.tp) is flow and partitions.consumer == consumer:
            try:
                position: int = await consumer.position(flow.tp)
            except KafkaError:  # not assigned any more, or nobody answers: look again
                await asyncio.sleep(PLACE_AGAIN_S)
                continue
            if partitions.flows.get(flow.tp) is flow and flow.fetched is None:
                flow.position = flow.fetched = position
                partitions.ungate(flow, PLACE)
            return
