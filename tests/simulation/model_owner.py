"""One shard in the hands of one owner, in the model: every write is a step of its own, and between any two of them the
owner may die, lose the shard, or be overtaken.

The rules are docs/protocol.md, "Dispatch shard". `broken` names a rule that is left out or turned round on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

from tests.simulation.model_log import (
    NOTHING,
    PARKED,
    RETRY,
    SOURCES,
    Claim,
    Claimed,
    Logs,
    Outcome,
    Record,
    Version,
)

ATTEMPTS_MAX = 3
CLAIM_STEPS = 40
MARGIN_STEPS = 4
ALONE_FROM = 2
POISONED_FROM = 5
_ENDED = object()


class Who(NamedTuple):
    """Which worker owns which shard, for which time in the life of the world."""

    worker: int
    shard: int
    time: int


class Killed(Exception):
    """The attempt of this job brought its worker down."""

    def __init__(self, job: int) -> None:
        super().__init__(job)
        self.job = job


class Row:
    """A job in the table: its highest version, and the records that stand for it."""

    def __init__(self, record: Record, source: tuple[str, int]) -> None:
        self.version, self.reclaims, self.sources = record.version, record.reclaims, {source}


class Disk:
    """A shard's table. What is written to it survives a crash, unless it is lost."""

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}
        self.known: dict[int, Version] = {}
        self.claims: dict[int, Claim] = {}
        self.position: dict[str, int] | None = None
        self.heard = 0
        self.epoch = 0
        self.clean = False


class Watcher:
    """What the owner tells the checks of a world."""

    def claiming(self, owner: Owner, job: int, version: Version) -> None: ...
    def attempting(self, owner: Owner, job: int, version: Version) -> None: ...
    def interrupted(self, job: int, claim: Claim) -> None: ...
    def delivered(self, job: int) -> None: ...
    def cleared(self, job: int) -> None: ...
    def late(self, job: int) -> None: ...
    def is_killer(self, job: int) -> bool:
        raise NotImplementedError


class Owner:
    def __init__(self, who: Who, logs: Logs, disk: Disk, random: Random, watcher: Watcher, broken: str | None) -> None:
        self.who, self.logs, self.disk = who, logs, disk
        self.worker, self.number = who.worker, who.shard
        self.random, self.watcher, self.broken = random, watcher, broken
        self.shard = logs.shards[who.shard]
        self.steps: list[Iterator[None]] = []
        self.in_hand: dict[int, Claim | None] = {}
        """None: without a claim, since nothing is attempted."""
        self.foreign: dict[int, Claim] = {}
        self.unflushed: dict[int, Claim] = {}
        self.told: dict[int, Version] = {}
        """Everything it ever heard or wrote of outcomes since opening, for the checks alone."""
        self.closed = self.handed_over = False
        self.careful = not disk.clean
        self._open()

    # -- opening -------------------------------------------------------------------------------------------------------
    def _open(self) -> None:
        disk, shard = self.disk, self.shard
        if disk.position is None:
            disk.position, disk.epoch = dict(shard.committed), shard.epoch
            disk.heard = self._first_outcome()
        disk.clean = False
        self.foreign = dict(disk.claims)
        disk.heard = max(disk.heard, self._first_outcome())
        self.hear()
        for job, row in list(disk.rows.items()):
            if all(offset < shard.committed[topic] for topic, offset in row.sources):
                del disk.rows[job]  # whoever committed past its records knew that it was finished
        for topic in SOURCES:
            disk.position[topic] = max(disk.position[topic], shard.committed[topic])
        self.until = {topic: shard.end(topic) for topic in SOURCES}

    def _first_outcome(self) -> int:
        """Without a position: from the time of the earliest record that is waiting."""
        waiting = [(topic, offset) for topic, offset in self.shard.committed.items() if offset < self.shard.end(topic)]
        since = min((self.shard.records[topic][offset][0] for topic, offset in waiting), default=self.logs.now)
        attempts = self.shard.attempts
        return next((at for at, (time, _) in enumerate(attempts) if time >= since), len(attempts))

    @property
    def position(self) -> dict[str, int]:
        assert self.disk.position is not None
        return self.disk.position

    @property
    def ready(self) -> bool:
        return all(self.position[topic] >= end for topic, end in self.until.items())

    # -- reading -------------------------------------------------------------------------------------------------------
    def hear(self) -> None:
        """Reads the attempts log to its end: outcomes end jobs, claims of others are left alone."""
        disk = self.disk
        entries = [entry for _, entry in self.shard.attempts[disk.heard :]]
        if self.broken == "outcome_wipes_later_claim":
            entries.sort(key=lambda entry: isinstance(entry, Outcome))
        for entry in entries:
            if isinstance(entry, Claimed):
                for job, claim in entry.claims.items():
                    if claim.holder != self.who.time and self.broken != "no_foreign_claims":
                        self._note(job, claim)
            else:
                self._ended(entry)
        disk.heard = len(self.shard.attempts)

    def _note(self, job: int, claim: Claim) -> None:
        """Somebody else's claim. One that was overtaken may write an older one late: the longer one counts."""
        noted = self.disk.claims.get(job)
        if noted is None or claim.until >= noted.until or self.broken == "last_claim_wins":
            self.foreign[job] = self.disk.claims[job] = claim

    def _ended(self, outcome: Outcome) -> None:
        """An outcome, its own or somebody else's. What is in hand settles with its attempt."""
        disk, job, upto = self.disk, outcome.job, outcome.finishes
        if upto > NOTHING:
            before = NOTHING if self.broken == "last_outcome_wins" else disk.known.get(job, NOTHING)
            disk.known[job] = max(before, upto)
            self.told[job] = max(self.told.get(job, NOTHING), upto)
        if job in self.in_hand:
            return
        claim, row = disk.claims.get(job), disk.rows.get(job)
        if claim is not None and (claim.at <= max(upto, outcome.at) or self.broken == "outcome_clears_any_claim"):
            self.foreign.pop(job, None)
            del disk.claims[job]
        if row is not None and row.version <= disk.known.get(job, NOTHING):
            del disk.rows[job]
        elif row is not None:
            row.reclaims = 0

    def read(self, topic: str) -> None:
        """One record into the table."""
        disk, offset = self.disk, self.position[topic]
        if self.closed or offset >= self.shard.end(topic):
            return
        record = self.shard.records[topic][offset][1]
        self.position[topic] = offset + 1
        if record.version <= disk.known.get(record.job, NOTHING):
            return
        if self.broken == "no_moves":
            record = record._replace(moves=0)
        row, source = disk.rows.get(record.job), (topic, offset)
        if row is None:
            disk.rows[record.job] = Row(record, source)
        elif record.version > row.version:
            same_attempt = record.attempt == row.version[0]
            disk.rows[record.job] = newer = Row(record, source)
            newer.reclaims = max(record.reclaims, row.reclaims) if same_attempt else record.reclaims
        elif record.version == row.version:
            row.sources = {source} if self.broken == "no_moves" else row.sources | {source}

    def forget_outcomes(self) -> None:
        """Outcomes need not be kept for ever: a repeat, never a loss."""
        if self.ready:
            kept = {job for job in self.disk.known if self.random.random() < 0.5}
            for job in self.disk.known.keys() - kept:
                self.told.pop(job, None)
            self.disk.known = {job: upto for job, upto in self.disk.known.items() if job in kept}

    def commit(self) -> None:
        """Low-water marks: of each topic the lowest record that is unfinished."""
        for topic in SOURCES:
            low = self.position[topic]
            if self.broken != "commit_read":
                standing = set().union(*(row.sources for row in self.disk.rows.values()))
                low = min([low, *(offset for where, offset in standing if where == topic)])
            self.shard.committed[topic] = max(self.shard.committed[topic], low)

    # -- others' claims ------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Outcomes of others, and claims of theirs that nobody will end any more. Which job a claim speaks of is known
        only when every record that was there has been read."""
        self.hear()
        if not self.ready and self.broken != "judged_too_early":
            return
        for job, claim in list(self.foreign.items()):
            if self.logs.now <= claim.until + MARGIN_STEPS:
                continue
            del self.foreign[job]
            self.disk.claims.pop(job, None)
            row = self.disk.rows.get(job)
            if row is not None and row.version[0] == claim.at[0] and self.broken != "no_reclaims":
                row.reclaims = claim.reclaims + 1
                self.watcher.interrupted(job, claim)

    # -- claims and attempts -------------------------------------------------------------------------------------------
    def startable(self, in_worker: dict[int, int]) -> list[int]:
        """Jobs that may be claimed now. `in_worker`: every job in hand in this worker, with its reclaims."""
        if self.closed or not self.ready:
            return []
        free = [job for job in self.disk.rows if job not in self.in_hand and job not in self.foreign]
        if self.broken == "no_solitude":
            return free
        if any(reclaims >= ALONE_FROM for reclaims in in_worker.values()):
            return []
        return [job for job in free if self.disk.rows[job].reclaims < ALONE_FROM or not in_worker]

    def start(self, job: int, ok: bool) -> None:
        row = self.disk.rows[job]
        self.watcher.claiming(self, job, row.version)
        if row.reclaims >= POISONED_FROM:
            self.in_hand[job] = None
            self.steps.append(self._settle(job, row.version, "poisoned"))
            return
        claim = Claim(row.version, row.reclaims, self.logs.now + CLAIM_STEPS, self.who.time)
        self.disk.claims[job] = self.unflushed[job] = self.in_hand[job] = claim
        self.steps.append(self._attempt(job, row.version, claim, ok))

    def flush_claims(self) -> None:
        if self.unflushed:
            self.logs.tell(self.number, Claimed(dict(self.unflushed)))
            self.unflushed.clear()

    def _attempt(self, job: int, version: Version, claim: Claim, ok: bool) -> Iterator[None]:
        while self.careful and self.unflushed.get(job) is claim and self.broken != "careless":
            yield
        if self.logs.now > claim.until and self.broken != "late_start":
            # Its claim was recorded when it had ended: others may have the job by now. Not charged.
            self.watcher.late(job)
            yield from self._write(None, Outcome("deferred", job, version))
            return
        self.watcher.attempting(self, job, version)
        if self.watcher.is_killer(job):
            raise Killed(job)
        for _ in range(self.random.randint(0, 4)):
            yield
        if ok:
            self.watcher.delivered(job)
            yield
        yield from self._settle(job, version, "" if ok else "failed")

    def _settle(self, job: int, version: Version, why: str) -> Iterator[None]:
        """First the record that carries it on, then its outcome, then the table forgets it."""
        attempt = version[0]
        carry: Callable[[], None] | None = None
        if why == "failed" and attempt < ATTEMPTS_MAX:
            kind, carry = "failed", lambda: self.logs.append(self.number, RETRY, Record(job, attempt + 1, 0))
        elif why:
            kind, carry = "dead", lambda: self.logs.bury(job, "exhausted" if why == "failed" else why)
        else:
            kind = "delivered"
        yield from self._write(carry, Outcome(kind, job, version))

    def _write(self, carry: Callable[[], None] | None, outcome: Outcome) -> Iterator[None]:
        def tell() -> None:
            self.flush_claims()  # claims and outcomes of a tick go together, claims first
            self.logs.tell(self.number, outcome)
            self.watcher.cleared(outcome.job)

        writes = [tell] if carry is None else [carry, tell]
        if self.broken == "outcome_first":
            writes.reverse()
        if self.broken == "forget_early":
            self._forget(outcome)
            yield
        for write in writes:
            write()
            yield
        self._forget(outcome)

    def _forget(self, outcome: Outcome) -> None:
        self.in_hand.pop(outcome.job, None)
        if not self.closed:
            self._ended(outcome)

    # -- jobs that are not attempted -----------------------------------------------------------------------------------
    def park(self, job: int) -> None:
        """A waiting job that holds the mark back is copied."""
        row = self.disk.rows[job]
        self.logs.append(self.number, PARKED, Record(job, row.version[0], row.version[1] + 1, row.reclaims))

    def defer(self, job: int) -> None:
        """Not charged: our own fault. A later due time in the row, and a record that ends nothing."""
        kind = "failed" if self.broken == "defer_ends" else "deferred"
        self.logs.tell(self.number, Outcome(kind, job, self.disk.rows[job].version))

    def move(self, job: int, to: int) -> None:
        """Its destination lies elsewhere now: carried to that shard (perhaps the same), then ended here."""
        row = self.disk.rows[job]
        attempt, moves = row.version
        self.in_hand[job] = None
        kind = "failed" if self.broken == "moved_ends_the_attempt" else "moved"
        copy = Record(job, attempt, moves + 1, row.reclaims)
        self.steps.append(self._write(lambda: self.logs.append(to, PARKED, copy), Outcome(kind, job, row.version)))

    def close(self) -> None:
        """Handed over: what is in hand finishes and writes its outcomes; the table is left as it is."""
        if self.broken != "claims_unflushed":
            self.flush_claims()
        self.closed = self.handed_over = True
        self.disk.clean = not self.in_hand

    def step(self) -> None:
        """One write of one attempt in hand."""
        if self.steps:
            running = self.random.choice(self.steps)
            if next(running, _ENDED) is _ENDED:
                self.steps.remove(running)
