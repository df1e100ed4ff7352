"""What others have in hand: following a shard's attempts log (docs/protocol.md, "Dispatch shard", handover, crash).

A claimed job is left alone until its outcome shows in the log, or its deadline and a margin have passed; then whoever
had it died with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from agents.dispatch import CLAIM_MARGIN_MS, Dispatcher
from agents.dispatch_shard import DispatchShard
from hub_app.domain.delivery import OutcomeKind, finished_up_to, version
from hub_app.domain.errors import StoreFailed
from hub_app.domain.limits import HOUR_MS
from hub_app.kafka.reader import RangeReader
from hub_app.ports import Clock
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from tables.claims import Claim

TAIL_EVERY_S = 0.5
REMEMBER_MS = HOUR_MS
"""Outcomes are remembered for one to two of these after the opening."""


class AttemptsTail:
    def __init__(
        self,
        *,
        dispatcher: Dispatcher,
        reader: RangeReader,
        topic: str,
        clock: Clock,
        metrics: Metrics,
        store_failed: Callable[[int, StoreFailed], None],
    ) -> None:
        self._dispatcher, self._reader, self._topic, self._clock = dispatcher, reader, topic, clock
        self._reclaims, self._store_failed, self._log = metrics.reclaims.only(), store_failed, Log("dispatch")

    async def end(self, shard: DispatchShard) -> int:
        return (await self._reader.end_offsets(self._topic, [shard.number]))[shard.number]

    async def read(self, shard: DispatchShard, start: int, stop: int) -> None:
        """Takes outcomes and claims of [start, stop) into the table, the offset with them."""
        async for records in self._reader.read_range(self._topic, shard.number, start, stop):
            outcomes: list[wire_attempts.Outcome] = []
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
                    shard.history.note(batch, (entry,))
                    if entry.kind is OutcomeKind.PARKED:
                        continue  # a copy of a waiting job was made: whoever has it in hand still has it
                    job = entry.job
                    upto = finished_up_to(entry.kind, version(job))
                    shard.clear_claim(batch, job.delivery_id, max(upto[0], job.attempt))
                    outcomes.append(entry)
            stale = shard.apply_outcomes(batch, outcomes)
            shard.attempts_offset = records[-1].offset + 1
            batch.set_offset(self._topic, shard.attempts_offset)
            shard.table.store.write(batch)
            for row in stale:
                self._dispatcher.heads.withdraw(shard, row)
            for id in noted:
                self._dispatcher.heads.hold(shard, id)
        shard.attempts_offset = max(shard.attempts_offset, stop)

    async def follow(self, shard: DispatchShard) -> None:
        """Follows the log while claims of others are open; later forgets old outcomes, by generations. Until cancelled,
        the shard is closed, or its table fails."""
        while not shard.closed:
            try:
                if shard.foreign or shard.held:
                    await self._look(shard)
                    await asyncio.sleep(TAIL_EVERY_S)
                else:
                    await asyncio.sleep(REMEMBER_MS / 1000)
                    shard.table.turn_generation()
            except StoreFailed as error:
                if not shard.closed:  # else another opening's shard may bear its number
                    self._store_failed(shard.number, error)
                return
            except Exception as error:  # the broker is away: the claims wait a little longer
                self._log.warning(Event.SOURCE_FAILED, shard=shard.number, error=repr(error))
                await asyncio.sleep(TAIL_EVERY_S)

    async def _look(self, shard: DispatchShard) -> None:
        await self.read(shard, shard.attempts_offset, await self.end(shard))
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
        """Past its deadline without an outcome: the worker died with it. The job's reclaims rise by one."""
        batch = shard.table.store.batch()
        for key, row in zip(late, shard.table.rows(list(late)), strict=True):
            claim = shard.foreign.pop(key)
            shard.table.release(batch, key)
            if row is not None and row.job.attempt == claim.attempt:
                self._reclaims.inc()
                held = shard.held.get(key, row)
                shard.reschedule(batch, held, held.due_ms, held.job._replace(reclaims=claim.reclaims + 1))
        shard.table.store.write(batch)
