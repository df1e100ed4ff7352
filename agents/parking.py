"""Parking: a waiting job that holds a low-water mark far behind the head is copied once to hub.retry.parked
(docs/protocol.md, "Jobs that wait for long"), so that an opening with an empty disk need not read everything since.

The copy supersedes the record when it is read like any other; the job itself waits on as it is. Copies are not copied
again: the mark of hub.retry.parked may lie as far behind as it likes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from agents.dispatch_shard import DispatchShard
from agents.unattempted import Unattempted
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import PARK_BEHIND_RECORDS, PARK_SLACK_RECORDS
from tables.jobs import Row

SLICE_ROWS = 500
COPIES_MAX = 5_000
"""Copies written and not yet read back."""


class _Sweep(NamedTuple):
    """One look at all rows of a shard. `marks`: topic -> below which offset a record is too far behind."""

    marks: Mapping[str, int]
    slices: Iterator[list[Row]]


class Parking:
    def __init__(
        self,
        *,
        shards: Mapping[int, DispatchShard],
        unattempted: Unattempted,
        parked_topic: str,
        store_failed: Callable[[DispatchShard, StoreFailed], None],
        behind: int = PARK_BEHIND_RECORDS,
        slack: int = PARK_SLACK_RECORDS,
    ) -> None:
        """Looks for jobs when a mark lies `slack` further behind than `behind`, so that one look finds many."""
        self._shards, self._unattempted, self._topic = shards, unattempted, parked_topic
        self._store_failed, self._behind, self._slack = store_failed, behind, slack
        self._sweeps: dict[DispatchShard, _Sweep] = {}

    async def look(self) -> None:
        """To be called about once a second: some of the copies that have to be made."""
        here = [shard for shard in self._shards.values() if not (shard.suspended or shard.closed)]
        self._sweeps = {shard: sweep for shard, sweep in self._sweeps.items() if shard in here}
        for shard in here:
            sweep = self._sweeps.get(shard) or self._begin(shard)
            if sweep is not None:
                try:
                    await self._go_on(shard, sweep)
                except StoreFailed as error:
                    self._store_failed(shard, error)

    def _begin(self, shard: DispatchShard) -> _Sweep | None:
        """None while no mark is too far behind, or the copies made last are still to be read."""
        logs = {topic: low for topic, low in shard.low.items() if topic != self._topic}
        if shard.parking or all(low.span() <= self._behind + self._slack for low in logs.values()):
            return None
        marks = {topic: low.position() - self._behind for topic, low in logs.items()}
        sweep = self._sweeps[shard] = _Sweep(marks, shard.table.slices(SLICE_ROWS))
        return sweep

    async def _go_on(self, shard: DispatchShard, sweep: _Sweep) -> None:
        while len(shard.parking) < COPIES_MAX and not (shard.suspended or shard.closed):
            rows = next(sweep.slices, None)
            if rows is None:
                del self._sweeps[shard]
                return
            chosen = [row for row in rows if _waits(shard, row) and _behind(row, sweep.marks)]
            shard.parking |= {row.job.delivery_id for row in chosen}
            self._unattempted.park(shard, chosen)
            await self._unattempted.room()


def _waits(shard: DispatchShard, row: Row) -> bool:
    key = row.job.delivery_id
    return not (key in shard.in_hand or key in shard.foreign or key in shard.parking)


def _behind(row: Row, marks: Mapping[str, int]) -> bool:
    return any(offset < marks.get(topic, 0) for topic, offset in row.sources)
