"""Reading operator events back, for the tenant they are about: a bounded look at its partition of `hub.operator`.

A cursor moves with the tenant's own records alone, so that it tells nothing of the others in the partition. How far was
looked behind a cursor in vain is remembered by this worker."""

from __future__ import annotations

from collections import OrderedDict
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
PASSED_MAX: Final = 10_000
"""Cursors of which is remembered how far was looked; the oldest goes first."""


class OperatorPage(NamedTuple):
    """`after` is where to go on, also when the page is empty; None: from the oldest there is."""

    events: list[OperatorEvent]
    after: int | None


class CursorGone(NamedTuple):
    """The log does not reach back to the cursor, or is another one."""


class OperatorEvents:
    def __init__(self, reader: LogReader, topic: str, shards: int) -> None:
        self._reader, self._topic, self._count = reader, topic, shards
        self._passed: OrderedDict[tuple[str, int | None], int] = OrderedDict()

    async def page(
        self, tenant: str, after: int | None, limit: int, *, wants: Callable[[OperatorEvent], bool] = lambda event: True
    ) -> OperatorPage | CursorGone:
        """Events of the tenant from offset `after` on (None: from the oldest there is), oldest first; one that was
        written twice stands in a page once. Raises what the reader raises."""
        key = tenant_key(tenant)
        partition = partition_for(key, self._count)
        end = (await self._reader.end_offsets(self._topic, [partition]))[partition]
        begin = (await self._reader.begin_offsets(self._topic, [partition]))[partition]
        if after is not None and not begin <= after <= end:
            return CursorGone()
        passed = self._passed.pop((tenant, after), 0)
        start = max(begin if after is None else after, passed if passed <= end else 0)
        stop = min(end, start + SCANNED_MAX)
        found: dict[str, OperatorEvent] = {}
        reading = self._reader.read_range(self._topic, partition, start, stop, records_max=BATCH)
        async with aclosing(reading) as batches:  # type: ignore[type-var]
            async for records in batches:
                for record in records:
                    if record.key != key:
                        continue
                    after, event = record.offset + 1, wire.read(record.key, record.value)
                    if isinstance(event, OperatorEvent) and wants(event):
                        found.setdefault(event.id, event)
                    if len(found) == limit:
                        return OperatorPage(list(found.values()), after)
        self._remember(tenant, after, stop)
        return OperatorPage(list(found.values()), after)

    def _remember(self, tenant: str, after: int | None, offset: int) -> None:
        self._passed[tenant, after] = offset
        if len(self._passed) > PASSED_MAX:
            self._passed.popitem(last=False)
