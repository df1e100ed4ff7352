"""Opening and handing over dispatch shards (docs/protocol.md, "Dispatch shard": opening, handover, crash).

Outcomes first, then the records: a job whose outcome is in the attempts log is not taken up again. What others had
claimed is left alone until its outcome shows in that log, or its deadline and a margin have passed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from agents.dispatch import CLAIM_MARGIN_MS, Dispatcher
from agents.dispatch_shard import DispatchShard, Place
from agents.settle import Settler
from hub_app.domain.delivery import Version, finished_up_to, version
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import HOUR_MS, MINUTE_MS
from hub_app.kafka.reader import RangeReader
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import Names
from hub_app.wire import attempts as wire_attempts
from tables.claims import Claim
from tables.datadir import DataDir
from tables.jobs import FAMILIES, JobTable, Source
from tables.memory import Memory
from tables.shard import Identity, ShardStore

SCHEMA = 1
LOOK_BACK_MS = 10 * MINUTE_MS
"""How far before the oldest waiting record the attempts log is read where no position is stored."""
TAIL_EVERY_S = 0.5
REMEMBER_MS = HOUR_MS
"""Outcomes are remembered for one to two of these after the opening."""


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
        open_store: Callable[..., ShardStore] = ShardStore.open,
    ) -> None:
        """`left`: what the last process on this disk had in hand, by shard. `reopen` and `commit` are the plane's."""
        self._left = left
        self._dispatcher, self._settler, self._reader, self._names = dispatcher, settler, reader, names
        self._data, self._memory, self._clock, self._log = data, memory, clock, Log("dispatch")
        self._reclaims, self._cluster_id = metrics.reclaims.only(), cluster_id
        self._reopen, self._commit, self._open = reopen, commit, open_store
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
                self._dispatcher.heads.suspend(self.shards[number])
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
            self._dispatcher.heads.close(left)
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
        store = self._open_store(shard, end)
        try:
            opened = DispatchShard(shard, JobTable(store, shard))
            positions = {
                topic: max(store.offset(topic) or 0, offset, begin[topic]) for topic, offset in committed.items()
            }
            waiting = {topic: offset for topic, offset in committed.items() if offset < end[topic]}
            await self._read_outcomes(opened, waiting)
            places, sources = await self._survey(opened, committed)
            opened.start_reading(positions, end, sources)
        except BaseException:
            store.close(clean=False)
            raise
        if opened.foreign or not (store.opened_clean or (store.fresh and not waiting)):
            self._settler.be_careful()  # somebody died here, or may have: an empty disk with work waiting tells nothing
        self.shards[shard] = opened
        self._dispatcher.heads.open(opened, places)
        self._dispatcher.resume_when_ready(opened)
        self._tails[shard] = asyncio.create_task(self._watch(opened))
        return positions

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
        self._dispatcher.heads.suspend(shard)
        shard.closed = True
        if error.damaged:
            shard.table.store.set_aside("damaged")
        self._reopen(shard.number, str(error))

    # -- opening, step by step -----------------------------------------------------------------------------------------
    def _open_store(self, shard: int, end: Mapping[str, int]) -> ShardStore:
        def opened() -> ShardStore:
            return self._open(
                self._data.folder("dispatch", shard),
                plane="dispatch",
                shard=shard,
                families=FAMILIES,
                memory=self._memory,
                identity=Identity(self._cluster_id(), 0, SCHEMA),
            )

        store = opened()
        ahead = [topic for topic, offset in store.offsets().items() if topic in end and offset > end[topic]]
        if ahead or shard in self._truncated:
            self._truncated.discard(shard)
            store.set_aside("log-recreated")
            store = opened()
        if store.aside:
            self._log.warning(Event.SHARD_SET_ASIDE, shard=shard, reason=store.aside)
        return store

    async def _read_outcomes(self, shard: DispatchShard, waiting: Mapping[str, int]) -> None:
        """`waiting`: committed offsets of the topics that have records there."""
        topic, number = self._names.attempts, shard.number
        stop = (await self._reader.end_offsets(topic, [number]))[number]
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
        self._left.pop(number, None)
        await self._apply_attempts(shard, start, stop)

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

    async def _apply_attempts(self, shard: DispatchShard, start: int, stop: int) -> None:
        """Applies outcomes and others' claims of [start, stop) of the attempts log."""
        async for records in self._reader.read_range(self._names.attempts, shard.number, start, stop):
            outcomes: list[tuple[bytes, Version]] = []
            noted: list[bytes] = []
            batch = shard.table.store.batch()
            for record in records:
                if record.offset in shard.mine:
                    shard.mine.discard(record.offset)
                    continue
                entry = wire_attempts.read(record.headers, record.value)
                if isinstance(entry, wire_attempts.Claimed):
                    for id, attempt, _, reclaims, deadline_ms in entry.claims:
                        if shard.note_claim(batch, id, Claim(attempt, reclaims, deadline_ms)):
                            noted.append(id)
                elif isinstance(entry, wire_attempts.Outcome):
                    job = entry.job
                    upto = finished_up_to(entry.kind, (job.attempt, job.moves))
                    shard.clear_claim(batch, job.delivery_id, max(upto[0], job.attempt))
                    outcomes.append((job.delivery_id, upto))
            stale = shard.apply_outcomes(batch, outcomes)
            shard.attempts_offset = records[-1].offset + 1
            batch.set_offset(self._names.attempts, shard.attempts_offset)
            shard.table.store.write(batch)
            for row in stale:
                self._dispatcher.heads.withdraw(shard, row)
            for id in noted:
                self._dispatcher.heads.hold(shard, id)
        shard.attempts_offset = max(shard.attempts_offset, stop)

    async def _survey(self, shard: DispatchShard, committed: Mapping[str, int]) -> tuple[Iterable[Place], list[Source]]:
        """Where the table holds rows and which records they stand for; in slices, so that other shards go on. Rows that
        ended in other hands, or unnoticed, are dropped: by an outcome, or because their records are committed."""
        places: dict[Place, None] = {}
        sources: list[Source] = []
        count = 0
        for rows in shard.table.slices():
            batch = shard.table.store.batch()
            for row, done in zip(rows, shard.table.finished([row.job.delivery_id for row in rows]), strict=True):
                if version(row.job) <= done or all(offset < committed.get(topic, 0) for topic, offset in row.sources):
                    shard.table.drop(batch, row)
                    continue
                count += 1
                places[row.job.tenant, row.job.destination] = None
                sources.extend(row.sources)
            if len(batch):
                shard.table.store.write(batch)
            await asyncio.sleep(0)
        shard.table.count = count
        return places, sources

    # -- what others had claimed ---------------------------------------------------------------------------------------
    async def _watch(self, shard: DispatchShard) -> None:
        """Follows the attempts log while claims of others are open; later forgets old outcomes, by generations."""
        while True:
            try:
                if shard.foreign or shard.held:
                    await self._look_at_claims(shard)
                    await asyncio.sleep(TAIL_EVERY_S)
                else:
                    await asyncio.sleep(REMEMBER_MS / 1000)
                    shard.table.turn_generation()
            except StoreFailed as error:
                self.store_failed(shard.number, error)
                return
            except Exception as error:  # the broker is away: the claims wait a little longer
                self._log.warning(Event.SOURCE_FAILED, shard=shard.number, error=repr(error))
                await asyncio.sleep(TAIL_EVERY_S)

    async def _look_at_claims(self, shard: DispatchShard) -> None:
        number = shard.number
        stop = (await self._reader.end_offsets(self._names.attempts, [number]))[number]
        await self._apply_attempts(shard, shard.attempts_offset, stop)
        late: list[bytes] = []
        if shard.caught_up:  # before that a claim may be of a job that is still to be read
            now_ms = self._clock.now_ms()
            late = [key for key, claim in shard.foreign.items() if now_ms > claim.deadline_ms + CLAIM_MARGIN_MS]
            self._interrupted(shard, late)
        freed = [row for key, row in shard.held.items() if key not in shard.foreign]
        for row in freed:
            del shard.held[row.job.delivery_id]
            self._dispatcher.heads.accept(shard, row)
        if late or freed:
            self._dispatcher.wake()

    def _interrupted(self, shard: DispatchShard, late: Sequence[bytes]) -> None:
        """A claim past its deadline without an outcome: the worker died with it. Its reclaims rise by one."""
        batch = shard.table.store.batch()
        for key, row in zip(late, shard.table.rows(list(late)), strict=True):
            claim = shard.foreign.pop(key)
            shard.table.release(batch, key)
            if row is not None and row.job.attempt == claim.attempt:
                self._reclaims.inc()
                held = shard.held.get(key, row)
                shard.reschedule(batch, held, held.due_ms, held.job._replace(reclaims=claim.reclaims + 1))
        shard.table.store.write(batch)
