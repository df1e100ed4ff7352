"""Reading operator events back, for the tenant they are about: a bounded look at its partition of `hub.operator`."""

from __future__ import annotations

from contextlib import aclosing
from typing import NamedTuple

from hub_app.domain.ids import tenant_key
from hub_app.domain.operator import OperatorEvent
from hub_app.kafka.reader import RangeReader
from hub_app.topics import partition_for
from hub_app.wire import operator as wire

SCANNED_MAX = 5_000
"""Records of the partition looked at in one call; other tenants' are among them."""


class OperatorPage(NamedTuple):
    """`next_offset` is where to go on, also when the page is empty; `head` is where the log ends now."""

    events: list[OperatorEvent]
    next_offset: int
    head: int


class OperatorEvents:
    def __init__(self, reader: RangeReader, topic: str, shards: int) -> None:
        self._reader, self._topic, self._count = reader, topic, shards

    async def page(self, tenant: str, start: int, limit: int) -> OperatorPage:
        """Events of the tenant from offset `start` on, oldest first. Raises what Kafka's client raises."""
        partition, key = partition_for(tenant_key(tenant), self._count), tenant_key(tenant)
        head = (await self._reader.end_offsets(self._topic, [partition]))[partition]
        begin = (await self._reader.begin_offsets(self._topic, [partition]))[partition]
        start = max(start, begin)
        stop = min(head, start + SCANNED_MAX)
        events: list[OperatorEvent] = []
        async with aclosing(self._reader.read_range(self._topic, partition, start, stop)) as batches:
            async for records in batches:
                for record in records:
                    event = wire.read(record.key, record.value) if record.key == key else None
                    if not isinstance(event, OperatorEvent):
                        continue
                    events.append(event)
                    if len(events) == limit:
                        return OperatorPage(events, record.offset + 1, head)
        return OperatorPage(events, max(start, stop), head)
