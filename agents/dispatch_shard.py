"""One dispatch shard in the hands of its owner: which record stands for which job, and what is finished.

The decisions follow docs/protocol.md, "Dispatch shard". Everything here is synchronous: it is called with records
already read and outcomes already acknowledged, never waits, and leaves table, offsets and low-water marks in step.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from hub_app.domain.delivery import NOTHING, Job, OutcomeKind, Version, finished_up_to, supersedes, version
from hub_app.kafka.lowwater import LowWater
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import jobs as wire_jobs
from hub_app.wire.record import Unreadable
from tables.claims import Claim
from tables.history import HistoryTable
from tables.jobs import JobTable, Row, Source, pack_payload

Place = tuple[str, str]
"""(tenant, destination)"""


class Taken(NamedTuple):
    """What a batch of records changed: rows to put into the order, and rows that no longer stand for anything."""

    fresh: list[Row]
    stale: list[Row]


class DispatchShard:
    def __init__(self, number: int, table: JobTable) -> None:
        self.number, self.table, self.history = number, table, HistoryTable(table.store)
        self.low: dict[str, LowWater] = {}
        self.until: dict[str, int] = {}  # nothing is claimed before each topic has been read to here
        self.offered: dict[bytes, Row] = {}  # in memory, at the head of their destination
        self.in_hand: dict[bytes, Row] = {}  # claimed here, outcome not yet settled
        self.successors: dict[bytes, Row] = {}  # a newer version that arrived while the older one is in hand
        self.told: dict[bytes, Version] = {}  # in hand, and ended up to here by somebody else
        self.foreign: dict[bytes, Claim] = {}  # claimed by another owner, or by this one before it died
        self.mine: set[int] = set()  # records of the attempts log that this owner wrote and has yet to pass over
        self.held: dict[bytes, Row] = {}  # rows waiting for what comes of a foreign claim
        self.parking: set[bytes] = set()  # copied ahead, and the copy is still to be read
        self.attempts_offset = 0
        self.suspended = True
        self.handing_over = False  # a rebalance began: nothing is claimed, however ready the shard is
        self.closed = False
        self.unreadable = 0

    @property
    def caught_up(self) -> bool:
        return all(self.low[topic].position() >= end for topic, end in self.until.items())

    def low_marks(self) -> dict[str, int]:
        """What may be committed per topic: its lowest unfinished record."""
        return {topic: low.low() for topic, low in self.low.items()}

    # -- opening -------------------------------------------------------------------------------------------------------
    def start_reading(self, positions: Mapping[str, int], ends: Mapping[str, int], sources: Iterable[Source]) -> None:
        """Sets where each topic is read from. `sources`: those of the rows the table holds; below a position what no
        row stands for is finished, above it records will be read again."""
        unfinished: dict[str, list[int]] = {topic: [] for topic in positions}
        for topic, offset in sources:
            if topic in unfinished and offset < positions[topic]:
                unfinished[topic].append(offset)
        self.low = {topic: LowWater(position, sorted(unfinished[topic])) for topic, position in positions.items()}
        self.until = dict(ends)

    def apply_outcomes(self, batch: Any, outcomes: Iterable[wire_attempts.Outcome]) -> list[Row]:
        """Outcomes read from the attempts log, in its order. Returns rows that no longer stand for anything; the batch
        is still to be written."""
        latest: dict[bytes, Version] = {}
        deferred: dict[bytes, wire_attempts.Outcome] = {}
        for outcome in outcomes:
            key = outcome.job.delivery_id
            latest[key] = max(latest.get(key, NOTHING), finished_up_to(outcome.kind, version(outcome.job)))
            if outcome.kind is OutcomeKind.DEFERRED:
                deferred[key] = outcome
        ids, stale = list(latest), []
        for key, row, known in zip(ids, self.table.rows(ids), self.table.finished(ids), strict=True):
            upto = max(latest[key], known)
            if upto > known:
                self.table.mark_finished(batch, key, upto)
            if key in self.in_hand:
                self.told[key] = max(self.told.get(key, NOTHING), upto)  # settled with the attempt
            elif row is not None and version(row.job) <= upto:
                self.table.drop(batch, row)
                self._finish_sources(row)
                stale.append(row)
            elif row is not None and key in deferred and key not in self.offered:
                self._put_off(batch, self.held.get(key, row), deferred[key])
        return stale

    def _put_off(self, batch: Any, row: Row, outcome: wire_attempts.Outcome) -> None:
        """Another owner could not try the job: it waits as long as that said and is, as after any outcome, of no
        suspicion."""
        if version(row.job) == version(outcome.job):
            row.deferred_ms = row.deferred_ms or outcome.at_ms
            due_ms = max(row.due_ms, outcome.job.not_before_ms)
            self.reschedule(batch, row, due_ms, row.job._replace(reclaims=0))

    # -- claims of others ----------------------------------------------------------------------------------------------
    def note_claim(self, batch: Any, delivery_id: bytes, claim: Claim) -> bool:
        """Somebody else has the job in hand. Of two claims the one that lasts longer counts: an owner that was
        overtaken may write an older one late."""
        noted = self.foreign.get(delivery_id)
        if delivery_id in self.in_hand or (noted is not None and noted.deadline_ms > claim.deadline_ms):
            return False
        self.foreign[delivery_id] = claim
        self.table.note_claim(batch, delivery_id, claim)
        return True

    def clear_claim(self, batch: Any, delivery_id: bytes, attempt: int) -> None:
        """An outcome ends the claims of its attempt and of earlier ones; a later one it knows nothing of."""
        noted = self.foreign.get(delivery_id)
        if noted is not None and noted.attempt <= attempt:
            del self.foreign[delivery_id]
            self.table.release(batch, delivery_id)

    def wrote(self, offsets: Iterable[int | None]) -> None:
        """Where this owner's own records lie in the attempts log. Only who follows that log has to know them."""
        if self.foreign:
            self.mine.update(offset for offset in offsets if offset is not None)
        else:
            self.mine.clear()

    # -- reading -------------------------------------------------------------------------------------------------------
    def take_in(self, topic: str, records: Sequence[Any], next_offset: int) -> Taken:
        """Takes a batch of one source topic into the table, its offset included."""
        jobs: list[tuple[Any, Job, tuple[tuple[str, bytes], ...]]] = []
        for record in records:
            read = wire_jobs.read_record(record.headers)
            if isinstance(read, Unreadable):
                self.unreadable += 1  # only the hub writes here; nothing can be done for it, and it stays in the log
            else:
                jobs.append((record, *read))
        ids = [job.delivery_id for _, job, _ in jobs]
        self.parking.difference_update(ids)
        batch, low = self.table.store.batch(), self.low[topic]
        fresh: dict[bytes, Row] = {}
        stale: list[Row] = []
        stored = {row.job.delivery_id: row for row in self.table.rows(ids) if row}  # one for all records of a job
        for (record, job, headers), done in zip(jobs, self.table.finished(ids), strict=True):
            key, source = job.delivery_id, (topic, record.offset)
            if version(job) <= done:
                continue
            low.read(record.offset)
            known = fresh.get(key) or self.in_memory(key) or stored.get(key)
            if known is None:
                row = fresh[key] = Row(job, job.not_before_ms or job.received_at_ms, (source,), self.number)
                row.payload = (headers, record.value or b"")
                self.table.put(batch, row, pack_payload(row.payload))
            else:
                self._meet(batch, known, job, source, fresh, stale)
        low.advance(next_offset)
        batch.set_offset(topic, next_offset)
        self.table.store.write(batch)
        return Taken(list(fresh.values()), stale)

    def in_memory(self, key: bytes) -> Row | None:
        return self.successors.get(key) or self.in_hand.get(key) or self.offered.get(key) or self.held.get(key)

    def _meet(
        self, batch: Any, known: Row, job: Job, source: Source, fresh: dict[bytes, Row], stale: list[Row]
    ) -> None:
        """A record for a job that is already here: the higher version stands, an equal one stands beside it."""
        key = job.delivery_id
        if supersedes(version(job), version(known.job)):
            newer = _successor(known, job, source)
            self.table.take_from_due(batch, known)
            newer.payload, newer.apart = known.payload, known.apart  # versions of a job share its bytes
            self.table.put(batch, newer, None)
            if self.in_hand.get(key) is known:
                self.successors[key] = newer  # its time comes when the attempt in hand has settled
                return
            self._finish_sources(known)
            if self.successors.get(key) is known:
                self.successors[key] = newer
                return
            if fresh.get(key) is not known:
                stale.append(known)
            fresh[key] = newer
        elif version(job) == version(known.job):
            if source not in known.sources:
                known.sources = (*known.sources, source)
                self.table.put(batch, known, None)
        else:
            self._finish_source(source)

    # -- claims and outcomes -------------------------------------------------------------------------------------------
    def let_go(self, row: Row) -> Row:
        """The row was in hand and nothing was tried: what is to be put back into the order, it or a newer version."""
        self.in_hand.pop(row.job.delivery_id, None)
        newer = self.successors.pop(row.job.delivery_id, None)
        if newer is None:
            return row
        self._finish_sources(row)
        return newer

    def settle(self, batch: Any, row: Row, upto: Version) -> Row | None:
        """The outcome of `row`'s attempt is acknowledged: forget what it finishes (`NOTHING`: deferred, the row goes
        on). Returns the row that is to be put into the order now, if any."""
        key = row.job.delivery_id
        self.in_hand.pop(key, None)
        newer = self.successors.pop(key, None)
        upto = max(upto, self.told.pop(key, NOTHING))
        if version(row.job) > upto and newer is None:
            return row
        if upto > NOTHING:
            self.table.mark_finished(batch, key, upto)
        self._finish_sources(row)
        if newer is None:
            self.table.drop(batch, row)
        elif version(newer.job) <= upto:
            self.table.drop(batch, newer)
            self._finish_sources(newer)
        else:
            return newer
        return None

    def reschedule(self, batch: Any, row: Row, due_ms: int, job: Job | None = None) -> None:
        """Moves the row's due time (and reclaims); no record is written, nothing is finished."""
        self.table.take_from_due(batch, row)
        row.due_ms = due_ms
        row.job = job or row.job
        self.table.put(batch, row, None)

    def _finish_sources(self, row: Row) -> None:
        for source in row.sources:
            self._finish_source(source)

    def _finish_source(self, source: Source) -> None:
        low = self.low.get(source[0])
        if low is not None:
            low.finish(source[1])


def _successor(known: Row, job: Job, source: Source) -> Row:
    """The row of a higher version. A copy of the same attempt waits as long as what it was copied from."""
    due_ms = job.not_before_ms or job.received_at_ms
    if job.attempt != known.job.attempt:
        return Row(job, due_ms, (source,), known.shard)
    job = job._replace(reclaims=max(job.reclaims, known.job.reclaims))
    return Row(job, max(due_ms, known.due_ms), (source,), known.shard, known.deferred_ms)
