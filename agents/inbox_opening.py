"""Opening and handing over inbox shards (docs/protocol.md, "Inbox shard").

A folder opens at the lower of its own and the committed offset: what lies between them rebuilds state without emitting,
from the committed one on everything is emitted, for only what is committed is known to be written.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from agents.inbox import Inbox, InboxShard
from agents.owner import OwnerLog
from agents.queue_access import Queues
from hub_app.domain.errors import StoreFailed
from hub_app.domain.ids import seq_of
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
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
        self._log = Log("inbox")

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
        if left is None:
            return
        self._log.error(Event.SHARD_FAILED, error=error, shard=shard)
        if error.damaged:
            left.table.store.set_aside("damaged")
        self._reopen(shard, str(error))

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        """The log was made anew: new facts must not get seqs that are taken (docs/protocol.md, "Inbox shard")."""
        self._log.warning(Event.OFFSETS_LOWERED, shard=shard, topic=topic, committed=committed, end=end)
        await self._raise_epoch(shard, f"{topic}/{shard} ends at {end}, below the committed offset {committed}")

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        topic = self._names.facts
        store = await self._fitting_store(shard, begin[topic], end[topic])
        try:
            own = store.offset(topic)
            table = InboxTable(store, dedup_window_ms=self._window_ms)
            if own is None:
                own = begin[topic]
                batch = store.batch()
                table.begin_at(batch, seq_of(self._epoch(shard), own))
                store.write(batch)
            await self._owner.open(shard)
            start = min(own, committed[topic])
            opened = InboxShard(shard, table, epoch=self._epoch(shard), emit_from=committed[topic], next_offset=start)
            opened.queues = await self._queues.open(opened)  # what is deleted is known: the owner has read it
        except BaseException:
            self._queues.close(shard)
            store.close(clean=False)
            raise
        self._inbox.shards[shard] = opened
        return {topic: start}

    async def _fitting_store(self, shard: int, begin: int, end: int) -> ShardStore:
        """One that read another log tells so by the topic's id, or by an offset beyond the end of this one; one before
        the beginning of the facts lacks facts that are gone."""
        ids = await self._topic_ids([self._names.facts])
        store = self._open_store(shard)
        try:
            own = store.offset(self._names.facts) or begin
            why = f"ends at {end}, below the stored offset {own}" if own > end else ""
            if made_anew(store, ids):
                why = "has another topic id than before"
            if why:  # first the epoch: a folder that is set aside tells nobody of it any more
                await self._raise_epoch(shard, f"{self._names.facts}/{shard} {why}")
            if why or own < begin:
                store.set_aside("log-recreated" if why else "behind-the-log")
                store = self._open_store(shard)
            note_logs(store, ids)
        except BaseException:
            store.close(clean=False)
            raise
        return store

    def _open_store(self, shard: int) -> ShardStore:
        store = self._open(
            self._data.folder("inbox", shard),
            plane="inbox",
            shard=shard,
            families=(*FAMILIES, *QUEUE_FAMILIES, *DEAD_FAMILIES),
            memory=self._memory,
            identity=Identity(self._cluster_id(), self._epoch(shard), SCHEMA),
        )
        if store.aside:
            self._log.warning(Event.SHARD_SET_ASIDE, shard=shard, reason=store.aside)
        return store
