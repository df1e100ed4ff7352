"""Reading operator events back, for the tenant they are about: a bounded look at its partition of `hub.operator`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from typing import Final, NamedTuple

from agents.archive import BATCH, LogReader
from hub_app.domain.ids import tenant_key
from hub_app.domain.operator import OperatorEvent
from hub_app.topics import partition_for
from hub_app.wire import operator as wire

SCANNED_MAX: Final = 5_000
"""Records of the partition looked at in one call; other tenants' are among them."""


class OperatorPage(NamedTuple):
    """`next_offset` is where to go on, also when the page is empty."""

    events: list[OperatorEvent]
    next_offset: int


class CursorGone(NamedTuple):
    """The log does not reach back to the cursor, or is another one; `next_offset` is where it begins."""

    next_offset: int


class OperatorEvents:
    def __init__(self, reader: LogReader, topic: str, shards: int) -> None:
        self._reader, self._topic, self._count = reader, topic, shards

    async def page(
        self, tenant: str, after: int | None, limit: int, *, wants: Callable[[OperatorEvent], bool] = lambda event: True
    ) -> OperatorPage | CursorGone:
        """Events of the tenant from offset `after` on (None: from the oldest there is), oldest first; one that was
        written twice stands in a page once. Raises what the reader raises."""
        key = tenant_key(tenant)
        partition = partition_for(key, self._count)
        end = (await self._reader.end_offsets(self._topic, [partition]))[partition]
        begin = (await self._reader.begin_offsets(self._topic, [partition]))[partition]
        start = begin if after is None else after
        if not begin <= start <= end:
            return CursorGone(begin)
        stop = min(end, start + SCANNED_MAX)
        found: dict[str, OperatorEvent] = {}
        reading = self._reader.read_range(self._topic, partition, start, stop, records_max=BATCH)
        async with aclosing(reading) as batches:  # type: ignore[type-var]
            async for records in batches:
                for record in records:
                    event = wire.read(record.key, record.value) if record.key == key else None
                    if not isinstance(event, OperatorEvent) or not wants(event):
                        continue
                    found.setdefault(event.id, event)
                    if len(found) == limit:
                        return OperatorPage(list(found.values()), record.offset + 1)
        return OperatorPage(list(found.values()), stop)
