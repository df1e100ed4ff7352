"""What a change of a subscription means for its waiting jobs.

Jobs of a subscription that receives nothing lie on the shelf of their shard (`tables.shelf`): they cost nothing, and go
back into the order as soon as it receives again, or was deleted and they are to end. Jobs of a changed address are
carried to the new one's shard (docs/protocol.md, "Moved"). A change does this at once; what it misses (a shard that was
not open yet) is found when the shard is opened, or when a job has its turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.unattempted import Unattempted
from hub_app.domain.delivery import Moved
from hub_app.domain.errors import StoreFailed
from hub_app.domain.health import Place
from hub_app.domain.ids import destination_key
from hub_app.domain.subscription import Subscription
from hub_app.topics import partition_for
from tables.subscriptions import SubscriptionsTable

SLICE_ROWS = 200
AGAIN_S = 0.1


class ShelfKeeper:
    def __init__(
        self,
        *,
        shards: Mapping[int, DispatchShard],
        count: int,
        subscriptions: SubscriptionsTable,
        read_to: Callable[[str], int],
        heads: Heads,
        unattempted: Unattempted,
        wake: Callable[[], None],
        store_failed: Callable[[DispatchShard, StoreFailed], None],
    ) -> None:
        """`count`: of shards in all. `read_to(tenant)`: how far the subscriptions table has read the tenant's part."""
        self._shards, self._count, self._subscriptions, self._read_to = shards, count, subscriptions, read_to
        self._heads, self._unattempted, self._wake, self._store_failed = heads, unattempted, wake, store_failed
        self._moved: dict[tuple[Place, str], None] = {}  # (old place, subscription)
        self._changed: dict[str, str] = {}  # subscription -> tenant
        self._wanted = asyncio.Event()

    # -- what others tell ----------------------------------------------------------------------------------------------
    def subscription_changed(self, before: Subscription | None, now: Subscription | None) -> None:
        one = now or before
        if one is None or not self._shards:
            return
        if before is not None and now is not None and before.destination != now.destination:
            self._moved[(before.tenant, before.destination), before.id] = None
        if now is None or now.receives:
            self._changed[one.id] = one.tenant
        self._wanted.set()

    def opened(self, shard: DispatchShard) -> None:
        """Who may have changed while nobody had the shard."""
        for id in shard.table.shelf.subscriptions():
            self._changed[id] = ""
        self._wanted.set()

    # -- the loop's step -----------------------------------------------------------------------------------------------
    async def step(self) -> None:
        """Waits for a change, and does what follows from it."""
        await self._wanted.wait()
        self._wanted.clear()
        moved, self._moved = self._moved, {}
        changed, self._changed = self._changed, {}
        for place, id in moved:
            await self._carry_away(place, id)
        for id in changed:
            for shard in list(self._shards.values()):
                try:
                    await self._take_down(shard, id)
                except StoreFailed as error:
                    self._store_failed(shard, error)
        if self._moved:
            await asyncio.sleep(AGAIN_S)  # a shard that was being opened or handed over

    async def _carry_away(self, place: Place, id: str) -> None:
        """The jobs that wait for the subscription at its old address."""
        shard = self._shards.get(partition_for(destination_key(*place), self._count))
        if shard is None or shard.closed:
            return
        if shard.suspended:
            self._moved[place, id] = None
            self._wanted.set()
            return
        try:
            for rows in shard.table.pages(*place, SLICE_ROWS):
                now = self._subscriptions.get(place[0], id)
                if now is None or now.destination == place[1] or shard.suspended or shard.closed:
                    return
                step = Moved(now.destination, self._read_to(place[0]))
                for row in rows:
                    if row.job.subscription == id:
                        self._unattempted.end_waiting(shard, row, step)
                await self._unattempted.room()
        except StoreFailed as error:
            self._store_failed(shard, error)

    async def _take_down(self, shard: DispatchShard, id: str) -> None:
        """Everything of the subscription goes back to where it was in the order, unless it still receives nothing."""
        places: dict[Place, None] = {}
        while not shard.closed and (shelved := shard.table.shelf.of(id, SLICE_ROWS)):
            batch = shard.table.store.batch()
            for (key, due_ms, until_ms), stored in zip(
                shelved, shard.table.rows([one.delivery_id for one in shelved]), strict=True
            ):
                if stored is not None and not places and self._stays(stored.job.tenant, id):
                    return
                shard.table.shelf.take(batch, id, key)
                row = shard.in_memory(key) or stored
                if row is not None and key not in shard.in_hand and row.due_ms == until_ms:
                    shard.reschedule(batch, row, due_ms)
                    places[row.job.tenant, row.job.destination] = None
            shard.table.store.write(batch)
            await asyncio.sleep(0)
        if not shard.closed:
            for place in places:
                self._heads.look_again(shard, place)
        if places:
            self._wake()

    def _stays(self, tenant: str, id: str) -> bool:
        now = self._subscriptions.get(tenant, id)
        return now is not None and not now.receives
