"""What must hold at every moment of a dispatch world. The checks read the logs as a stranger would, and look into the
workers' memory; they never take part."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import NamedTuple

from agents.dispatch_shard import DispatchShard
from hub_app.domain.delivery import NOTHING, Job, Version, finished_up_to, version
from hub_app.wire import attempts as wire_attempts
from hub_app.wire import dead_letters as wire_dead
from hub_app.wire import jobs as wire_jobs
from tests.simulation.broker import Place, Rec
from tests.simulation.dispatch_worker import CURVE, NAMES, SOURCES, DispatchWorker

CARRIED = (("ce-id", b"1"), ("ce-source", b"lender"))


def payload_of(delivery_id: bytes) -> bytes:
    """The bytes of a job: its own, some empty, some large."""
    return delivery_id * (delivery_id[0] % 4 * 100)


class Told(NamedTuple):
    """An outcome in the attempts log."""

    offset: int
    upto: Version


class Checks:
    def __init__(self, problem: Callable[[str], None], *, gentle: bool) -> None:
        """`gentle`: nothing goes wrong in this world, so nothing may happen twice."""
        self.problem, self.gentle = problem, gentle
        self.made: dict[bytes, Job] = {}
        self.delivered: set[bytes] = set()
        self.dead: dict[bytes, str] = {}
        self.highest: dict[bytes, Version] = {}
        self.outcomes: dict[bytes, list[Told]] = defaultdict(list)
        self.attempts: Counter[tuple[bytes, Version]] = Counter()
        self.running: dict[bytes, list[DispatchWorker]] = defaultdict(list)
        self.flying: Counter[tuple[str, str, str]] = Counter()
        self._passed: dict[Place, int] = defaultdict(int)
        self._records: dict[Place, list[Job]] = defaultdict(list)

    # -- what the broker tells -----------------------------------------------------------------------------------------
    def appended(self, record: Rec) -> None:
        if record.topic in SOURCES:
            self._stands(record)
        elif record.topic == NAMES.attempts:
            entry = wire_attempts.read(record.headers, record.value)
            if isinstance(entry, wire_attempts.Outcome):
                upto = finished_up_to(entry.kind, version(entry.job))
                if upto > NOTHING:
                    self.outcomes[entry.job.delivery_id].append(Told(record.offset, upto))
            elif not isinstance(entry, wire_attempts.Claimed):
                self.problem(f"an attempts record cannot be read: {entry}")
        elif record.topic == NAMES.dlq:
            letter = wire_dead.read(record.headers, record.value)
            assert isinstance(letter, wire_dead.DeadLetter), letter
            self.carries(letter.job, letter.headers, letter.value or b"")
            self.dead[letter.job.delivery_id] = letter.reason
            if letter.reason == "exhausted" and letter.job.attempt != CURVE.attempts_max:
                self.problem(f"given up after {letter.job.attempt} attempts")

    def _stands(self, record: Rec) -> None:
        read = wire_jobs.read_record(record.headers)
        assert isinstance(read, tuple), read
        job, headers = read
        self.carries(job, headers, record.value or b"")
        self._records[record.topic, record.partition].append(job)
        self.highest[job.delivery_id] = max(self.highest.get(job.delivery_id, NOTHING), version(job))
        if job.attempt > CURVE.attempts_max:
            self.problem(f"attempt {job.attempt} of {job.delivery_id.hex()} is planned")

    def carries(self, job: Job, headers: object, body: bytes) -> None:
        """Payload and headers stay what they were, wherever the job goes."""
        if (headers, body) != (CARRIED, payload_of(job.delivery_id)):
            self.problem(f"{job.delivery_id.hex()} carries {headers} and {len(body)} bytes")

    def ended(self, job: Job) -> bool:
        """Whether the logs say that this version is finished."""
        key, at = job.delivery_id, version(job)
        return at < self.highest[key] or any(at <= told.upto for told in self.outcomes[key])

    def committed(self, place: Place, offset: int) -> None:
        """The low-water mark never passes an unfinished record."""
        if place[0] not in SOURCES:
            return
        for at in range(self._passed[place], offset):
            job = self._records[place][at]
            if not self.ended(job):
                self.problem(
                    f"{place} is committed to {offset}, past {version(job)} of {job.delivery_id.hex()} at {at}"
                )
        self._passed[place] = max(self._passed[place], offset)

    # -- what workers do -----------------------------------------------------------------------------------------------
    def claimed(self, worker: DispatchWorker, shard: DispatchShard, job: Job) -> None:
        """A job whose outcome this worker has read is finished, and stays so."""
        name = worker.process.name
        for told in self.outcomes[job.delivery_id]:
            if told.offset in worker.heard.get(shard.number, ()) and version(job) <= told.upto:
                self.problem(f"{name} claims {version(job)} of {job.delivery_id.hex()}, whose end it has read")
        if not shard.closed and (shard.suspended or not shard.caught_up):
            self.problem(f"{name} claims from shard {shard.number}, which is suspended or not yet read")
        if not worker.process.lease:
            self.problem(f"{name} claims without a lease")
        if job.delivery_id in shard.foreign:
            self.problem(f"{name} claims {job.delivery_id.hex()}, which is in the hands of another")

    def begins(self, worker: DispatchWorker, job: Job) -> None:
        key, name = job.delivery_id, worker.process.name
        if worker in self.running[key]:
            self.problem(f"{name} attempts {key.hex()} twice at once")
        if self.gentle and self.running[key]:
            self.problem(f"{name} attempts {key.hex()} while {self.running[key][0].process.name} does")
        self.attempts[key, version(job)] += 1
        if self.gentle and self.attempts[key, version(job)] > 1:
            self.problem(f"{version(job)} of {key.hex()} is attempted again although nothing went wrong")
        self.running[key].append(worker)
        place = (name, job.tenant, job.destination)
        self.flying[place] += 1
        if self.flying[place] > max(1, worker.dispatcher.heads.scheduler.workers // 2):
            self.problem(f"{self.flying[place]} of {worker.dispatcher.heads.scheduler.workers} workers attempt {place}")

    def ends(self, worker: DispatchWorker, job: Job) -> None:
        self.running[job.delivery_id].remove(worker)
        self.flying[worker.process.name, job.tenant, job.destination] -= 1

    # -- what workers remember -----------------------------------------------------------------------------------------
    def look_into(self, worker: DispatchWorker, head_rows: int) -> None:
        for shard in worker.shards.shards.values():
            if not shard.closed and shard.number in worker.waiting:
                self._heads(worker, shard, head_rows)

    def _heads(self, worker: DispatchWorker, shard: DispatchShard, head_rows: int) -> None:
        """Every row of the table is offered, in hand, held, or behind a `more` that somebody will look behind."""
        name, places = f"{worker.process.name}/{shard.number}", worker.waiting[shard.number]
        offered: Counter[tuple[str, str]] = Counter()
        latest: dict[tuple[str, str], int] = {}
        for row in shard.offered.values():
            place = (row.job.tenant, row.job.destination)
            offered[place] += 1
            latest[place] = max(latest.get(place, 0), row.due_ms)
        for place, count in offered.items():
            if count != len(places[place].rows) or count > 2 * head_rows:
                self.problem(f"{name}: {count} rows of {place} are offered, {len(places[place].rows)} counted")
        if double := (shard.offered.keys() & shard.in_hand.keys()) | (shard.offered.keys() & shard.held.keys()):
            self.problem(f"{name}: {[key.hex() for key in double]} are in two places")
        rows = [row for some in shard.table.slices() for row in some]
        for row in rows:
            place, key = (row.job.tenant, row.job.destination), row.job.delivery_id
            if key in shard.in_hand or key in shard.held:
                continue
            if key in shard.offered:
                here = shard.offered[key]
                if (here.job, here.due_ms, set(here.sources)) != (row.job, row.due_ms, set(row.sources)):
                    self.problem(
                        f"{name}: {here.job}, {here.sources} is offered, {row.job}, {row.sources} in the table"
                    )
                continue
            behind = places.get(place)
            if behind is None or not behind.more or row.due_ms < behind.horizon_ms:
                self.problem(f"{name}: {version(row.job)} of {key.hex()} is out of reach")
            elif not shard.suspended and not behind.rows and key not in shard.foreign:
                self.problem(f"{name}: {version(row.job)} of {key.hex()} waits behind nothing")
        if len(rows) != shard.table.count:
            self.problem(f"{name}: {len(rows)} rows, {shard.table.count} counted")
