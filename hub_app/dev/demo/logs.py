"""What Kafka itself holds of a run: read with a plain consumer, by nobody's word but the log's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from hub_app.domain.ids import event_id
from hub_app.topics import Names
from hub_app.wire import dead_letters, facts, quarantine
from hub_app.wire.record import Unreadable


class Place(NamedTuple):
    """Where a record lies."""

    topic: str
    partition: int
    offset: int


@dataclass(slots=True)
class Ledger:
    """What became of the records of the producers' topics. `system` are those that say they are system events;
    `admitted` has the event's identity, and `quarantined` the reason, by the place the record came from. Of the dead
    letters, the events by endpoint, and how often which reason and status stood in one."""

    produced: set[Place] = field(default_factory=set)
    system: set[Place] = field(default_factory=set)
    admitted: dict[Place, str] = field(default_factory=dict)
    quarantined: dict[Place, str] = field(default_factory=dict)
    dead: dict[str, set[str]] = field(default_factory=dict)
    dead_why: dict[str, int] = field(default_factory=dict)
    unreadable: int = 0

    def dead_count(self) -> int:
        return sum(map(len, self.dead.values()))


async def partitions(bootstrap: str, topics: Sequence[str]) -> list[TopicPartition]:
    """All partitions of topics. LookupError when one does not exist."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        found = await admin.describe_topics(list(topics))
    finally:
        await admin.close()
    if missing := [one["topic"] for one in found if not one["partitions"]]:
        raise LookupError(f"no topic {', '.join(missing)}")
    return [TopicPartition(one["topic"], part["partition"]) for one in found for part in one["partitions"]]


class Clerk:
    """Enters records into a `Ledger`."""

    def __init__(self, names: Names, sources: Iterable[str], endpoints: Mapping[str, str]) -> None:
        """`sources` are the topics of the run's producers; `endpoints` the path of each subscription, by its id."""
        self._names, self._sources, self._endpoints = names, frozenset(sources), endpoints
        self.topics = (*sorted(self._sources), names.facts, names.quarantine, names.dlq)
        self.ledger = Ledger()

    def take(self, topic: str, record: Any) -> None:
        """One record, of whichever topic."""
        if topic in self._sources:
            place = Place(topic, record.partition, record.offset)
            self.ledger.produced.add(place)
            if dict(record.headers).get("ce-systemevent") == b"true":
                self.ledger.system.add(place)
        elif topic == self._names.facts:
            self._take_fact(record)
        elif topic == self._names.quarantine:
            self._take_quarantined(record)
        else:
            self._take_dead(record)

    def _take_fact(self, record: Any) -> None:
        origin = facts.origin(record.headers)
        fact = facts.read(record.headers, record.value, epoch=0, offset=record.offset)
        if origin is None or isinstance(fact, Unreadable):
            self.ledger.unreadable += 1
        elif origin[0] in self._sources:
            self.ledger.admitted[Place(*origin)] = event_id(fact.tenant, fact.topic, fact.source, fact.id)

    def _take_quarantined(self, record: Any) -> None:
        found = quarantine.read(record.headers, record.key, record.value)
        if isinstance(found, Unreadable):
            self.ledger.unreadable += 1
        elif found.topic in self._sources:
            self.ledger.quarantined[Place(found.topic, found.partition, found.offset)] = found.reason

    def _take_dead(self, record: Any) -> None:
        letter = dead_letters.read(record.headers, record.value)
        if isinstance(letter, Unreadable):
            self.ledger.unreadable += 1
            return
        endpoint = self._endpoints.get(letter.job.subscription)
        if endpoint is None:  # of another run on the same Kafka
            return
        ce = dict(letter.headers)
        with suppress(KeyError):
            event = event_id(letter.job.tenant, letter.job.topic, ce["ce-source"].decode(), ce["ce-id"].decode())
            self.ledger.dead.setdefault(endpoint, set()).add(event)
        why = f"{letter.reason} after {letter.job.attempt} attempts, last {letter.status or letter.error or 'unknown'}"
        self.ledger.dead_why[why] = self.ledger.dead_why.get(why, 0) + 1


class Reader:
    """Reads the clerk's topics from their beginning, as far as they go, again and again."""

    def __init__(self, bootstrap: str, clerk: Clerk) -> None:
        self._bootstrap, self._clerk, self.ledger = bootstrap, clerk, clerk.ledger

    async def __aenter__(self) -> Self:
        self._places = await partitions(self._bootstrap, self._clerk.topics)
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await self._consumer.start()
        self._consumer.assign(self._places)
        await self._consumer.seek_to_beginning(*self._places)
        return self

    async def __aexit__(
        self, _k: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        await self._consumer.stop()

    async def read_on(self, timeout_ms: int = 0) -> int:
        """Takes in what has come, waiting at most `timeout_ms` for it. How many records."""
        batches: dict[Any, Sequence[Any]] = await self._consumer.getmany(timeout_ms=timeout_ms)
        for place, records in batches.items():
            for record in records:
                self._clerk.take(place.topic, record)
        return sum(map(len, batches.values()))

    async def read_to_end(self) -> None:
        """Takes in everything that is there by now."""
        for place, end in (await self._consumer.end_offsets(self._places)).items():
            while await self._consumer.position(place) < end:
                await self.read_on(500)
