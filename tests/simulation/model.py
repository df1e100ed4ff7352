"""Executable model of the dispatch plane's no-loss protocol (docs/protocol.md, "Dispatch shard") in random worlds.

A few workers own two shards in turn. They crash at every step, by chance or because a job kills them; they lose their
disk or come back with an old one; they are overtaken and go on writing; logs are made anew under them. After the storm
everything heals, and then every job must be delivered or dead, and what was seen on the way must obey the checks below.
The protocol is changed here first.

    python -m tests.simulation.model --seeds 20000 [--first 0] [--break NAME]

Every break leaves out one rule, and must be caught: else the model is too weak.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from itertools import count
from random import Random

from tests.simulation.model_log import DELIVERIES, NOTHING, SOURCES, Claim, Logs, Record, ShardLog, Version
from tests.simulation.model_owner import ALONE_FROM, POISONED_FROM, Disk, Killed, Owner, Watcher, Who

SHARDS, WORKERS = 2, 3
BREAKS = {
    "outcome_first": "the outcome is written before the record that carries the job on",
    "commit_read": "what was read is committed, not what is finished",
    "forget_early": "the table forgets a job before its outcome is written",
    "no_moves": "a copy of a waiting job has the version of the original",
    "defer_ends": "an attempt that was not charged ends it",
    "moved_ends_the_attempt": "`moved` finishes the copy that it made, where both lie in one shard",
    "keep_committed": "the committed offset stays above the end of a log that was made anew",
    "old_epoch": "a disk from before a log was made anew is taken for one of the new log",
    "no_foreign_claims": "what somebody else has in hand is attempted at once",
    "claims_unflushed": "a shard is handed over before its claims are in the log",
    "outcome_wipes_later_claim": "an outcome clears the claim of the next attempt, read in one go with it",
    "outcome_clears_any_claim": "a late outcome of an earlier attempt clears the claim of a later one",
    "last_outcome_wins": "of two outcomes the later one counts, not the one that ends more",
    "last_claim_wins": "of two claims the one written later counts, not the one that lasts longer",
    "judged_too_early": "a claim of a job whose record is not yet read counts as nobody's",
    "no_reclaims": "interrupted claims are not counted",
    "careless": "after an unclean opening attempts begin before their claims are in the log",
    "late_start": "an attempt begins when its claim, recorded late, has ended",
    "no_solitude": "a job that was interrupted twice runs beside others",
}


class World(Watcher):
    def __init__(self, seed: int, broken: str | None = None) -> None:
        self.random, self.broken = Random(seed), broken
        self.logs = Logs(SHARDS)
        self.disks = [[Disk() for _ in range(SHARDS)] for _ in range(WORKERS)]
        self.lingering: list[Owner] = []  # closed or overtaken, with attempts in hand
        self.homes: dict[int, int] = {}  # job -> the shard it was made in
        self.killers: set[int] = set()
        self.excused: set[int] = set()  # a log that held them was made anew
        self.done: set[int] = set()
        self.problems: list[str] = []
        self.kills: Counter[int] = Counter()
        self.uncounted: Counter[int] = Counter()
        self.accidents: Counter[int] = Counter()
        self.fell_to: dict[int, str] = {}
        self.overtaken: set[int] = set()  # were in the hands of an owner that others did not wait for
        self.made_anew = False
        self.times = 0
        self.jobs_max = self.random.choice((2, 4, 40))
        self.orderly = self.random.choice((0.2, 0.5, 0.9))
        self.anew = self.random.choice((0.0, 0.0, 0.0, 0.005, 0.03))
        self.deadly = self.random.random() < 0.4
        self.owners = [self._open(self.random.randrange(WORKERS), number) for number in range(SHARDS)]

    # -- what owners tell ----------------------------------------------------------------------------------------------
    def claiming(self, owner: Owner, job: int, version: Version) -> None:
        if version <= owner.told.get(job, NOTHING):
            self.problems.append(f"job {job} is claimed as {version} after an outcome that ends it was known")

    def attempting(self, owner: Owner, job: int, version: Version) -> None:
        own = owner.in_hand.get(job)
        if own is not None and self.logs.now > own.until:
            self.problems.append(f"the attempt of job {job} as {version} begins after its claim has ended")
        if owner not in self.owners or job in self.overtaken or self.made_anew:
            return  # overtaken, or it was handed over first; or what told of the claim may have gone with its log
        for other in self.lingering:
            claim = other.in_hand.get(job)
            if (
                other.handed_over
                and other.number == owner.number
                and other is not owner
                and claim is not None
                and claim.at == version
                and self.logs.now <= claim.until
            ):
                self.problems.append(f"job {job} is attempted as {version} while its former owner has it in hand")

    def interrupted(self, job: int, claim: Claim) -> None:
        if self.fell_to.get(claim.holder) != "killer":
            self.accidents[job] += 1

    def delivered(self, job: int) -> None:
        self.done.add(job)

    def cleared(self, job: int) -> None:
        """Any outcome clears a job's reclaims."""
        self.kills.pop(job, None)
        self.uncounted.pop(job, None)

    def late(self, job: int) -> None:
        self.overtaken.add(job)

    def is_killer(self, job: int) -> bool:
        return job in self.killers

    # -- owners come and go --------------------------------------------------------------------------------------------
    def _open(self, worker: int, number: int) -> Owner:
        """`worker` becomes the owner; if it still has the shard open, it closes it first."""
        for owner in self.lingering:
            if owner.who[:2] == (worker, number):
                owner.closed = True
        disk = self.disks[worker][number]
        if disk.position is not None and disk.epoch != self.logs.shards[number].epoch and self.broken != "old_epoch":
            disk = self.disks[worker][number] = Disk()  # set aside: it belongs to another log
        self.times += 1
        return Owner(Who(worker, number, self.times), self.logs, disk, self.random, self, self.broken)

    def crash(self, worker: int, *, why: str = "crash") -> None:
        """The process is gone, with everything that it had not written; its disks stay, or not."""
        for owner in [*self.owners, *self.lingering]:
            if owner.worker == worker:
                self.fell_to[owner.who.time] = why
                owner.closed = True
                if self.random.random() < 0.4:
                    self.disks[worker][owner.number] = Disk()
        self.lingering = [owner for owner in self.lingering if owner.worker != worker]
        for number, owner in enumerate(self.owners):
            if owner.worker == worker:
                heir = worker if self.random.random() < 0.6 else self.random.randrange(WORKERS)
                self.owners[number] = self._open(heir, number)

    def hand_over(self, number: int, *, orderly: bool) -> None:
        """A rebalance; not orderly: the old owner does not know yet, reads and writes on, but claims nothing more."""
        old = self.owners[number]
        if orderly:
            old.close()
        else:
            self.overtaken |= old.in_hand.keys()
        self.lingering.append(old)
        if self.random.random() < 0.2:
            self.disks[old.worker][number] = Disk()
        others = [worker for worker in range(WORKERS) if worker != old.worker or orderly]
        self.owners[number] = self._open(self.random.choice(others), number)

    def make_anew(self, number: int, topic: str) -> None:
        """A topic was deleted and created again. Jobs that only it knew of are gone with it."""
        shard = self.logs.shards[number]
        self.made_anew = True
        self.excused |= {record.job for _, record in shard.records[topic] if not _is_finished(shard, record)}
        shard.records[topic] = []
        shard.epoch += 1
        if self.broken != "keep_committed":
            shard.committed[topic] = min(shard.committed[topic], 0)
        owner = self.owners[number]
        self.fell_to.setdefault(owner.who.time, "crash")
        owner.closed = True
        self.lingering.append(owner)
        self.owners[number] = self._open(owner.worker, number)

    # -- one step ------------------------------------------------------------------------------------------------------
    def step(self) -> None:
        roll, self.logs.now = self.random.random(), self.logs.now + 1
        owner = self.random.choice(self.owners)
        if roll < 0.15:
            if len(self.homes) < self.jobs_max:
                self._make(self.random.randrange(SHARDS))
        elif roll < 0.17:
            self._replay()
        elif roll < 0.40:
            owner.read(self.random.choice(SOURCES))
        elif roll < 0.53:
            self._start(owner, ok=self.random.random() < 0.4)
        elif roll < 0.75:
            self._run(self.random.choice([*self.owners, *self.lingering]))
        elif roll < 0.85:
            self._aside(owner)
        elif roll < 0.92:
            self._commit(owner)
        elif roll < 0.92 + self.anew:
            self.make_anew(owner.number, self.random.choice(SOURCES))
        elif roll < 0.96:
            self.crash(owner.worker)
        else:
            self.hand_over(owner.number, orderly=self.random.random() < self.orderly)

    def _make(self, number: int) -> None:
        job = len(self.homes) + 1
        self.homes[job] = number
        if self.deadly and self.random.random() < 0.2:
            self.killers.add(job)
        self.logs.append(number, DELIVERIES, Record(job, 1, 0))

    def _replay(self) -> None:
        """Upstream emits a delivery again."""
        tame = [job for job in self.homes if job not in self.killers]
        if tame:
            job = self.random.choice(tame)
            self.logs.append(self.homes[job], DELIVERIES, Record(job, 1, 0))

    def _start(self, owner: Owner, *, ok: bool) -> None:
        """Claims one job, sometimes several at once."""
        for _ in range(self.random.choice((1, 1, 3))):
            mine = [other for other in [*self.owners, *self.lingering] if other.worker == owner.worker]
            in_worker = {job: claim.reclaims for other in mine for job, claim in other.in_hand.items() if claim}
            jobs = owner.startable(in_worker)
            if jobs:
                owner.start(self.random.choice(jobs), ok)

    def _run(self, owner: Owner) -> None:
        try:
            owner.step()
        except Killed as killed:
            self.kills[killed.job] += 1
            overtaken = owner not in self.owners and not owner.handed_over
            if overtaken or (killed.job in owner.unflushed and not owner.careful):
                self.uncounted[killed.job] += 1
            kills, uncounted = self.kills[killed.job], self.uncounted[killed.job]
            if kills > POISONED_FROM + uncounted and killed.job not in self.overtaken and not self.made_anew:
                self.problems.append(f"job {killed.job} killed {kills} workers, {uncounted} of them uncounted")
            self.crash(owner.worker, why="killer")
        self.lingering = [owner for owner in self.lingering if owner.steps]

    def _aside(self, owner: Owner) -> None:
        """What happens beside attempts: looking at claims, flushing one's own, forgetting, waiting jobs."""
        idle = [job for job in owner.startable({}) if job not in self.killers]
        match self.random.randrange(6):
            case 0:
                owner.look()
            case 1:
                self.random.choice([owner, *self.lingering]).flush_claims()
            case 2:
                owner.forget_outcomes()
            case 3 if idle:
                owner.park(self.random.choice(idle))
            case 4 if idle:
                owner.defer(self.random.choice(idle))
            case 5 if idle:
                owner.move(self.random.choice(idle), self.random.randrange(SHARDS))

    def _commit(self, owner: Owner) -> None:
        before = dict(owner.shard.committed)
        owner.commit()
        if self.made_anew:
            return  # what ended a record may have gone with its log
        for topic in SOURCES:
            for _, record in owner.shard.records[topic][before[topic] : owner.shard.committed[topic]]:
                if not _is_finished(owner.shard, record):
                    self.problems.append(f"{topic} is committed past {record}, which is unfinished")

    # -- the end -------------------------------------------------------------------------------------------------------
    def heal(self) -> None:
        """No more accidents: read everything, attempt everything; killers go on killing until they are given up."""
        self.crash(self.owners[0].worker)
        for _ in range(4_000):
            self.logs.now += 1
            for owner in list(self.owners):
                for topic in SOURCES:
                    owner.read(topic)
                if owner.foreign:
                    owner.look()
                self._start(owner, ok=True)
            for owner in [*self.owners, *self.lingering]:
                owner.flush_claims()
                self._run(owner)
            if all(self._at_rest(owner) for owner in self.owners) and not self.lingering:
                break

    def _at_rest(self, owner: Owner) -> bool:
        read = all(owner.position[topic] >= owner.shard.end(topic) for topic in SOURCES)
        return read and not owner.disk.rows and not owner.steps

    def verdict(self) -> str | None:
        """What is wrong, or None."""
        if self.problems:
            return self.problems[0]
        if lost := self.homes.keys() - self.done - self.logs.dead.keys() - self.excused:
            return f"lost {sorted(lost)}"
        for job, reason in self.logs.dead.items():
            if reason == "poisoned" and job not in self.killers and self.accidents[job] < POISONED_FROM - ALONE_FROM:
                return f"job {job} was buried with a killer"
        return None


def _is_finished(shard: ShardLog, record: Record) -> bool:
    """Whether the logs say so: by an outcome, or because a higher version stands for the job."""
    if any(outcome.job == record.job and record.version <= outcome.finishes for outcome in shard.outcomes()):
        return True
    others = (other for topic in SOURCES for _, other in shard.records[topic])
    return any(other.job == record.job and other.version > record.version for other in others)


def run(seed: int, broken: str | None = None) -> str | None:
    """One world, from its seed; what is wrong in it, or None."""
    world = World(seed, broken)
    for _ in range(world.random.randint(40, 250)):
        world.step()
    world.heal()
    return world.verdict()


def first_failure(seeds: range | count[int], broken: str | None = None) -> tuple[int, str] | None:
    for seed in seeds:
        if problem := run(seed, broken):
            return seed, problem
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--break", dest="broken", choices=sorted(BREAKS))
    asked = parser.parse_args()
    failed = first_failure(range(asked.first, asked.first + asked.seeds), asked.broken)
    if failed is None:
        print(f"{asked.seeds} seeds, nothing lost")
        return 0
    print(f"seed {failed[0]}: {failed[1]}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
