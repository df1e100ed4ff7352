"""Opening and handing over inbox shards (docs/protocol.md, "Inbox shard").

A folder opens at the lower of its own and the committed offset: what lies between them rebuilds state without emitting,
from the committed one on everything is emitted, for only what is committed is known to be written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agents.aside import Aside
from agents.inbox import Inbox, InboxShard
from agents.owner import OwnerLog
from agents.queue_access import Queues
from hub_app.domain.errors import StoreFailed
from hub_app.domain.ids import seq_of
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from tables.datadir import DataDir
from tables.dead_letters import FAMILIES as DEAD_FAMILIES
from tables.inbox import FAMILIES, InboxTable
from tables.logs import made_anew, note_logs
from tables.memory import Memory
from tables.queues import FAMILIES as QUEUE_FAMILIES
from tables.shard import Identity, ShardStore

SCHEMA = 1


class InboxShards:
    """The listener of the inbox plane (`hub_app.kafka.plane.ShardListener`)."""

    def __init__(
        self,
        *,
        inbox: Inbox,
        owner: OwnerLog,
        queues: Queues,
        names: Names,
        data: DataDir,
        memory: Memory,
        metrics: Metrics,
        dedup_window_ms: int,
        cluster_id: Callable[[], str],
        epoch: Callable[[int], int],
        raise_epoch: Callable[[int, str], Awaitable[None]],
        topic_ids: Callable[[Sequence[str]], Awaitable[Mapping[str, bytes]]],
        left: Callable[[int], None],
        reopen: Callable[[int, str], None],
        open_store: Callable[..., ShardStore] = ShardStore.open,
    ) -> None:
        """`left(shard)`: whoever waits for its events is to answer early. `reopen` is the plane's."""
        self._reopen, self._open = reopen, open_store
        self._inbox, self._owner, self._queues, self._names = inbox, owner, queues, names
        self._data, self._memory, self._window_ms = data, memory, dedup_window_ms
        self._cluster_id, self._epoch, self._raise_epoch, self._left = cluster_id, epoch, raise_epoch, left
        self._topic_ids = topic_ids
        self._log, self._aside = Log("inbox"), Aside("inbox", metrics, self.store_failed)

    async def suspended(self, shards: frozenset[int]) -> None:
        """Batches in flight finish or are dropped by the plane; nothing more is locked or settled."""
        await self._queues.rest(shards)

    async def resumed(self, shards: frozenset[int]) -> None:
        """Tables stayed open."""
        self._queues.go_on(shards)

    async def closed(self, shard: int) -> None:
        self._left(shard)
        self._queues.close(shard)
        left = self._inbox.shards.pop(shard, None)
        if left is not None:
            left.table.store.close()
        await self._owner.close(shard)

    def store_failed(self, shard: int, error: StoreFailed) -> None:
        """The shard stops here and is opened again (which goes on failing, visibly, while the disk is full). What its
        batch emitted was not committed: it comes again with the same ids."""
        left = self._inbox.shards.get(shard)
        if left is None or left.failed:
            return
        left.failed = True
        self._log.error(Event.SHARD_FAILED, error=error, shard=shard)
        if error.damaged:
            self._aside.put(shard, left.table.store, "damaged", error.detail)
        self._reopen(shard, str(error))

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        """The log was made anew: new facts must not get seqs that are taken (docs/protocol.md, "Inbox shard")."""
        self._log.warning(Event.OFFSETS_LOWERED, shard=shard, topic=topic, committed=committed, end=end)
        await self._raise_epoch(shard, f"{topic}/{shard} ends at {end}, below the committed offset {committed}")

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        topic = self._names.facts
        place = (committed[topic], begin[topic], end[topic])
        try:
            start = await self._open_shard(shard, *place)
        except StoreFailed as error:
            if not error.damaged:
                raise
            start = await self._open_shard(shard, *place)  # the folder is out of the way
        return {topic: start}

    async def _open_shard(self, shard: int, committed: int, begin: int, end: int) -> int:
        """Where reading begins. Whatever goes wrong, the folder is free again."""
        ids = await self._topic_ids([self._names.facts])
        store = self._open_store(shard)
        try:
            if unfit := await self._unfit(shard, store, begin, end, ids):
                self._aside.put(shard, store, unfit)
                store = self._open_store(shard)
            note_logs(store, ids)
            opened = self._shard_on(store, shard, committed, begin)
            await self._owner.open(shard)
            opened.queues = await self._queues.open(opened)  # what is deleted is known: the owner has read it
        except BaseException as error:
            self._queues.close(shard)
            self._aside.let_go(shard, store, error)
            raise
        self._inbox.shards[shard] = opened
        self._aside.watch(shard, store, lambda store: self._is_current(shard, store))
        return opened.next_offset

    def _shard_on(self, store: ShardStore, shard: int, committed: int, begin: int) -> InboxShard:
        table, epoch = InboxTable(store, dedup_window_ms=self._window_ms), self._epoch(shard)
        own = store.offset(self._names.facts)
        if own is None:
            own = begin
            batch = store.batch()
            table.begin_at(batch, seq_of(epoch, own))
            store.write(batch)
        return InboxShard(shard, table, epoch=epoch, emit_from=committed, next_offset=min(own, committed))

    def _is_current(self, shard: int, store: ShardStore) -> bool:
        here = self._inbox.shards.get(shard)
        return here is not None and here.table.store is store

    async def _unfit(self, shard: int, store: ShardStore, begin: int, end: int, ids: Mapping[str, bytes]) -> str:
        """Why the store is to be set aside: it read another log (the topic's id, or an offset beyond the end, tells),
        or it lacks facts that are gone (it ends before their beginning). Empty: it fits."""
        own = store.offset(self._names.facts)
        if made_anew(store, ids):
            why = "has another topic id than before"
        elif own is not None and own > end:
            why = f"ends at {end}, below the stored offset {own}"
        else:
            return "behind-the-log" if own is not None and own < begin else ""
        # First the epoch: a folder that is set aside tells nobody of it any more.
        await self._raise_epoch(shard, f"{self._names.facts}/{shard} {why}")
        return "log-recreated"

    def _open_store(self, shard: int) -> ShardStore:
        store = self._open(
            self._data.folder("inbox", shard),
            plane="inbox",
            shard=shard,
            families=(*FAMILIES, *QUEUE_FAMILIES, *DEAD_FAMILIES),
            memory=self._memory,
            identity=Identity(self._cluster_id(), self._epoch(shard), SCHEMA),
        )
        self._aside.found(shard, store)
        return store
