"""Looking through a topic on demand, page by page, from any worker: quarantine and observations. Work per page is
bounded; a page may be short, or empty, with its place moved on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

ROWS_MAX: Final = 5_000
"""Records looked at for one page."""
BATCH: Final = 200
Row = TypeVar("Row")


class LogReader(Protocol):
    """What is needed of `hub_app.kafka.reader.RangeReader`."""

    async def begin_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]: ...
    async def end_offsets(self, topic: str, partitions: Sequence[int]) -> Mapping[int, int]: ...
    async def offset_for_time(self, topic: str, partition: int, time_ms: int) -> int | None: ...
    def read_range(
        self, topic: str, partition: int, start: int, stop: int, *, records_max: int = ...
    ) -> AsyncIterator[Sequence[Any]]: ...


class Place(NamedTuple):
    """The next record to look at."""

    partition: int
    offset: int


START: Final = Place(0, 0)


class Archive:
    def __init__(self, reader: LogReader, shards: int) -> None:
        self._reader, self._shards = reader, shards

    async def page(
        self, topic: str, place: Place, *, limit: int, since_ms: int, until_ms: int, pick: Callable[[Any], Row | None]
    ) -> tuple[list[Row], Place | None]:
        """Rows of records whose broker time is in [since, until), partition by partition, each in its order; and where
        the next page begins, None at the end. `pick` gives None for what is not wanted."""
        partitions = range(place.partition, self._shards)
        ends = await self._reader.end_offsets(topic, list(partitions))
        rows: list[Row] = []
        looked = 0
        for partition in partitions:
            start = place.offset if partition == place.partition else 0
            start = max(start, await self._first(topic, partition, since_ms, ends[partition]))
            if start >= ends[partition]:
                continue
            reading = self._reader.read_range(topic, partition, start, ends[partition], records_max=BATCH)
            async with contextlib.aclosing(reading) as batches:  # type: ignore[type-var]
                async for records in batches:
                    for record in records:
                        if len(rows) == limit or looked == ROWS_MAX:
                            return rows, Place(partition, record.offset)
                        looked += 1
                        row = pick(record) if since_ms <= record.timestamp < until_ms else None
                        if row is not None:
                            rows.append(row)
        return rows, None

    async def one(self, topic: str, place: Place) -> Any | None:
        """The record at a place; None when there is none."""
        if not 0 <= place.partition < self._shards:
            return None
        end = (await self._reader.end_offsets(topic, [place.partition]))[place.partition]
        begin = (await self._reader.begin_offsets(topic, [place.partition]))[place.partition]
        if not begin <= place.offset < end:
            return None
        async for records in self._reader.read_range(topic, place.partition, place.offset, place.offset + 1):
            return records[0]
        return None

    async def _first(self, topic: str, partition: int, since_ms: int, end: int) -> int:
        if since_ms <= 0 or end == 0:
            return 0
        found = await self._reader.offset_for_time(topic, partition, since_ms)
        return end if found is None else found
