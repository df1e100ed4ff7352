"""Opening and handing over dispatch shards (docs/protocol.md, "Dispatch shard": opening, handover, crash).

Outcomes first, then the records: a job whose outcome is in the attempts log is not taken up again. What others had
claimed is left alone until its outcome shows in that log, or its deadline and a margin have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from agents.aside import Aside
from agents.dispatch import Dispatcher
from agents.dispatch_claims import AttemptsTail
from agents.dispatch_shard import DispatchShard
from agents.settle import Settler
from agents.survey import survey
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import MINUTE_MS
from hub_app.kafka.reader import RangeReader
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from tables.claims import Claim
from tables.datadir import DataDir
from tables.history import FAMILIES as HISTORY_FAMILIES
from tables.jobs import FAMILIES, JobTable, LastRule
from tables.logs import made_anew, note_logs
from tables.memory import Memory
from tables.shard import Identity, ShardStore

SCHEMA = 2
LOOK_BACK_MS = 10 * MINUTE_MS
"""How far before the oldest waiting record the attempts log is read: topics' clocks are those of several brokers."""


class DispatchShards:
    """The listener of the dispatch plane (`hub_app.kafka.plane.ShardListener`)."""

    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        settler: Settler,
        reader: RangeReader,
        names: Names,
        data: DataDir,
        left: dict[int, dict[bytes, Claim]],
        memory: Memory,
        clock: Clock,
        metrics: Metrics,
        cluster_id: Callable[[], str],
        reopen: Callable[[int, str], None],
        commit: Callable[[Mapping[tuple[str, int], int]], None],
        lasts: LastRule,
        read_health: Callable[[int], Awaitable[object]],
        on_opened: Callable[[DispatchShard], None],
        open_store: Callable[..., ShardStore] = ShardStore.open,
    ) -> None:
        """`left`: what the last process on this disk had in hand, by shard. `reopen` and `commit` are the plane's.
        `read_health(shard)` returns when the shard's part of `hub.health` has been read to its end."""
        self._left, self._lasts, self._read_health, self._on_opened = left, lasts, read_health, on_opened
        self._dispatcher, self._settler, self._reader, self._names = dispatcher, settler, reader, names
        self._data, self._memory, self._clock, self._log = data, memory, clock, Log("dispatch")
        self._cluster_id = cluster_id
        self._reopen, self._commit, self._open = reopen, commit, open_store
        self._attempts = AttemptsTail(
            dispatcher=dispatcher,
            reader=reader,
            topic=names.attempts,
            clock=clock,
            metrics=metrics,
            store_failed=self.store_failed,
        )
        self._aside = Aside("dispatch", metrics, self.store_failed)
        self._committed: dict[tuple[str, int], int] = {}
        self._truncated: set[int] = set()
        self._tails: dict[int, asyncio.Task[None]] = {}
        self.shards: dict[int, DispatchShard] = {}

    # -- the plane's calls ---------------------------------------------------------------------------------------------
    async def suspended(self, shards: frozenset[int]) -> None:
        """Stop claiming, and let the claims made so far be in the log before somebody else reads it."""
        for number in shards:
            if number in self.shards:
                self.shards[number].handing_over = True
                self._dispatcher.suspend(self.shards[number])
        self._dispatcher.health.log.flush([self.shards[number] for number in shards if number in self.shards])
        await self._settler.flushed()
        self.commit_marks()

    async def resumed(self, shards: frozenset[int]) -> None:
        for number in shards:
            if number in self.shards:
                self.shards[number].handing_over = False
                self._dispatcher.resume_when_ready(self.shards[number])

    async def closed(self, shard: int) -> None:
        tail = self._tails.pop(shard, None)
        if tail is not None:
            tail.cancel()
        left = self.shards.pop(shard, None)
        self._committed = {place: low for place, low in self._committed.items() if place[1] != shard}
        if left is not None:
            self._dispatcher.close(left)
            left.closed = True
            # Should the shard come back before these have ended, they are in other hands than the new opening's.
            now_ms = self._clock.now_ms()
            self._left.setdefault(shard, {}).update(
                (key, row.claim or Claim(row.job.attempt, row.job.reclaims, now_ms))
                for key, row in left.in_hand.items()
            )
            left.table.store.close(clean=not left.in_hand)

    async def truncated(self, shard: int, topic: str, committed: int, end: int) -> None:
        self._log.warning(Event.OFFSETS_LOWERED, shard=shard, topic=topic, committed=committed, end=end)
        self._truncated.add(shard)

    async def opened(
        self, shard: int, committed: Mapping[str, int], begin: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        try:
            return await self._open_shard(shard, committed, end)
        except StoreFailed as error:
            if not error.damaged:
                raise
        return await self._open_shard(shard, committed, end)  # the folder is out of the way

    async def _open_shard(self, number: int, committed: Mapping[str, int], end: Mapping[str, int]) -> Mapping[str, int]:
        """Where reading begins. Whatever goes wrong, the folder is free again, and nothing of the shard is here."""
        ids = await self._reader.topic_ids([*committed, self._names.attempts])
        store = self._open_store(number)
        try:
            ahead = any(offset > end.get(topic, offset) for topic, offset in store.offsets().items())
            if ahead or number in self._truncated or made_anew(store, ids):
                self._aside.put(number, store, "log-recreated")
                self._truncated.discard(number)
                store = self._open_store(number)
            note_logs(store, ids)
            opened = DispatchShard(number, JobTable(store, number, self._lasts))
            positions = await self._bring_up(opened, committed, end)
            if opened.closed:
                raise StoreFailed(store.name, "its table refused while it was opened")
        except BaseException as error:
            left = self.shards.pop(number, None)
            if left is not None:
                left.closed = True
                self._dispatcher.close(left)
            self._aside.let_go(number, store, error)  # else its lock would keep every further opening out
            raise
        self._left.pop(number, None)
        self._aside.watch(number, store, lambda store: self._is_current(number, store))
        self._tails[number] = asyncio.create_task(self._attempts.follow(opened))
        return positions

    async def _bring_up(
        self, shard: DispatchShard, committed: Mapping[str, int], end: Mapping[str, int]
    ) -> Mapping[str, int]:
        number, store = shard.number, shard.table.store
        # Where the log begins after that, records are gone that nobody read: the plane stops the shard and says so.
        positions = {topic: max(store.offset(topic) or 0, offset) for topic, offset in committed.items()}
        waiting = {topic: offset for topic, offset in committed.items() if offset < end[topic]}
        await self._read_outcomes(shard, waiting)
        places, sources = await survey(shard, committed)
        shard.start_reading(positions, end, sources)
        await self._read_health(number)
        if shard.foreign or not (store.opened_clean or (store.fresh and not waiting)):
            self._settler.be_careful()  # somebody died here, or may have: an empty disk tells nothing of it
        self.shards[number] = shard
        self._dispatcher.health.open(shard)
        self._dispatcher.heads.open(shard, places)
        self._on_opened(shard)
        self._dispatcher.resume_when_ready(shard)
        return positions

    def _is_current(self, number: int, store: ShardStore) -> bool:
        here = self.shards.get(number)
        return here is not None and here.table.store is store

    def backlog(self) -> int:
        """Unfinished jobs of the shards here."""
        return sum(shard.table.count for shard in self.shards.values())

    # -- while it runs -------------------------------------------------------------------------------------------------
    def commit_marks(self) -> None:
        """Gives the plane every low-water mark that moved: the lowest unfinished record of each topic."""
        moved = {
            (topic, number): low
            for number, shard in self.shards.items()
            for topic, low in shard.low_marks().items()
            if self._committed.get((topic, number)) != low
        }
        if moved:
            self._committed.update(moved)
            self._commit(moved)

    def store_failed(self, number: int, error: StoreFailed) -> None:
        """The shard stops here and is opened again (which goes on failing, visibly, while the disk is full)."""
        shard = self.shards.get(number)
        if shard is None or shard.closed:
            return
        self._log.error(Event.SHARD_FAILED, error=error, shard=shard.number)
        self._dispatcher.suspend(shard)
        shard.closed = True
        if error.damaged:
            self._aside.put(number, shard.table.store, "damaged", error.detail)
        self._reopen(shard.number, str(error))

    # -- opening, step by step -----------------------------------------------------------------------------------------
    def _open_store(self, shard: int) -> ShardStore:
        store = self._open(
            self._data.folder("dispatch", shard),
            plane="dispatch",
            shard=shard,
            families=(*FAMILIES, *HISTORY_FAMILIES),
            memory=self._memory,
            identity=Identity(self._cluster_id(), 0, SCHEMA),
        )
        self._aside.found(shard, store)
        return store

    async def _read_outcomes(self, shard: DispatchShard, waiting: Mapping[str, int]) -> None:
        """`waiting`: committed offsets of the topics that have records there."""
        topic, number = self._names.attempts, shard.number
        stop = await self._attempts.end(shard)
        own = shard.table.store.offset(topic) or 0
        start = await self._first_outcome(number, waiting, stop)
        if start < own <= stop:  # else the disk is empty or old, or the log was made anew
            start = own
        shard.foreign = shard.table.claims()
        batch = shard.table.store.batch()
        batch.set_offset(topic, start)
        for delivery_id, claim in self._left.get(number, {}).items():  # this worker's own, from before
            shard.note_claim(batch, delivery_id, claim)
        shard.table.store.write(batch)
        await self._attempts.read(shard, start, stop)

    async def _first_outcome(self, number: int, waiting: Mapping[str, int], stop: int) -> int:
        """From the earliest broker time among the records at the committed offsets, and a bit before: what is older is
        of jobs that are finished."""
        times: list[int] = []
        for topic, offset in waiting.items():
            async for records in self._reader.read_range(topic, number, offset, offset + 1):
                times.extend(record.timestamp for record in records)
        if not times:
            return stop
        found = await self._reader.offset_for_time(self._names.attempts, number, min(times) - LOOK_BACK_MS)
        return stop if found is None else found
