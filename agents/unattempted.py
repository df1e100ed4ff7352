"""Jobs that wait on, end, or go elsewhere without an attempt."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agents.attempt import Hold
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.outcomes import Settled
from agents.settle import Settler
from hub_app.domain.delivery import Dead, DeadReason, Deferred, Moved, Parked
from hub_app.domain.errors import StoreFailed
from hub_app.ports import Clock
from tables.jobs import Row
from tables.shelf import Shelved

ROOM = 1_024
"""With fewer outcomes than this waiting for Kafka, whoever ends many jobs at once may go on."""


class Unattempted:
    def __init__(
        self,
        *,
        heads: Heads,
        settler: Settler,
        clock: Clock,
        store_failed: Callable[[DispatchShard, StoreFailed], None],
    ) -> None:
        self._heads, self._settler, self._clock, self._store_failed = heads, settler, clock, store_failed

    @property
    def has_room(self) -> bool:
        return self._settler.waiting < ROOM

    async def room(self) -> None:
        """Lets others go on, and waits until more jobs may be ended."""
        await asyncio.sleep(0)
        await self._settler.below(ROOM)

    def put_off(self, shard: DispatchShard, rows: Sequence[tuple[Row, Deferred | Hold]]) -> None:
        """Rows in hand wait on: for a while, or on the shelf. Only the table changes, in one write."""
        batch, now_ms, back = shard.table.store.batch(), self._clock.now_ms(), []
        for row, why in rows:
            goes_on = shard.let_go(row)
            back.append(goes_on)
            if goes_on is not row:
                continue
            if isinstance(why, Hold):
                shard.table.shelf.put(
                    batch, row.job.subscription, Shelved(row.job.delivery_id, row.due_ms, why.until_ms)
                )
            else:
                row.deferred_ms = row.deferred_ms or now_ms
            shard.reschedule(batch, row, why.until_ms)
        try:
            shard.table.store.write(batch)
        except StoreFailed as error:
            self._store_failed(shard, error)
            return
        for row in back:
            self._heads.accept(shard, row)

    def end(self, shard: DispatchShard, row: Row, step: Dead | Moved) -> None:
        """A row in hand ends here."""
        try:
            if isinstance(step, Dead) and step.reason is DeadReason.DISABLED:
                batch = shard.table.store.batch()
                shard.table.shelf.take(batch, row.job.subscription, row.job.delivery_id)
                shard.table.store.write(batch)
            payload = shard.table.payload(row)
        except StoreFailed as error:
            self._store_failed(shard, error)
            return
        self._settler.put(Settled(shard, row, step, None, *payload))

    def end_waiting(self, shard: DispatchShard, row: Row, step: Dead | Moved) -> None:
        """A row of the table ends here, unless somebody has it in hand."""
        mine = self._heads.take(shard, row)
        if mine is not None:
            self.end(shard, mine, step)

    def put_off_waiting(self, shard: DispatchShard, row: Row, why: Deferred | Hold) -> None:
        """The same, for one that waits on."""
        mine = self._heads.take(shard, row)
        if mine is not None:
            self.put_off(shard, [(mine, why)])

    def park(self, shard: DispatchShard, rows: Sequence[Row]) -> None:
        """Waiting rows of the table are copied ahead; they wait on as they are."""
        try:
            for row in rows:
                self._settler.put(Settled(shard, row, Parked(), None, *shard.table.payload(row)))
        except StoreFailed as error:
            self._store_failed(shard, error)
