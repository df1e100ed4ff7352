"""One dispatch shard on a table in memory, for tests of the agents around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agents.dispatch_shard import DispatchShard
from agents.health import SinkHealth
from agents.health_log import HealthLog
from agents.notices import Notices
from agents.settle import Settler
from hub_app.domain.breaker import BreakerPolicy
from hub_app.domain.delivery import Job
from hub_app.domain.ids import delivery_id
from hub_app.ports import Clock
from hub_app.topics import names
from hub_app.wire import jobs as wire_jobs
from tables.health import HealthTable
from tables.history import FAMILIES as HISTORY_FAMILIES
from tables.jobs import FAMILIES, JobTable, LastRule, Row
from tables.shard import Identity
from tables.subscriptions import SubscriptionsTable
from tests.fakes.store import Disk, MemoryStore
from tests.simulation.broker import Rec

NAMES = names("hub.")
RETRY = NAMES.retry("10s")
TOPICS = (NAMES.deliveries, RETRY, NAMES.parked)
NOW_MS = 1_767_323_045_000
CARRIED = (("ce-id", b"1"), ("ce-source", b"lender"), ("ce-type", b"studio.lerian.lender.loan.approved"))
LASTS = LastRule(8, 24 * 3_600_000)
PLACE = ("t", "https://a.example/")


def job(
    seq: int = 1, attempt: int = 1, moves: int = 0, *, place: tuple[str, str] = PLACE, due_ms: int = 0, **more: Any
) -> Job:
    """A delivery of the fact `seq`; due at once unless it says otherwise."""
    made = Job(
        delivery_id(place[0], seq, "sub"), attempt, moves, *place, "sub", "", seq, "lender", NOW_MS, due_ms, 0, 0
    )
    return made._replace(**more)


def open_store(disk: Disk, number: int = 0) -> MemoryStore:
    folder = Path(f"/dispatch/{number}")
    identity = Identity("cluster", 0, 1)
    return MemoryStore.open(
        disk, folder, plane="dispatch", shard=number, families=(*FAMILIES, *HISTORY_FAMILIES), identity=identity
    )


def open_shard(disk: Disk | None = None, number: int = 0, start: int = 0) -> DispatchShard:
    """Every topic is read from `start`."""
    store: Any = open_store(disk or Disk(), number)
    shard = DispatchShard(number, JobTable(store, number, LASTS))
    shard.start_reading(dict.fromkeys(TOPICS, start), dict.fromkeys(TOPICS, start), [])
    return shard


class Feed:
    """Writes records of jobs, each topic with its own offsets, and has the shard take them in."""

    def __init__(self, shard: DispatchShard) -> None:
        self.shard = shard
        self._next = dict.fromkeys(TOPICS, 0)

    def records(self, topic: str, *jobs: Job, value: bytes = b"{}") -> list[Rec]:
        made = []
        for one in jobs:
            offset, self._next[topic] = self._next[topic], self._next[topic] + 1
            headers = tuple(wire_jobs.write(one, CARRIED))
            made.append(Rec(topic, self.shard.number, offset, NOW_MS, b"key", value, headers))
        return made

    def take(self, topic: str, *jobs: Job) -> Any:
        records = self.records(topic, *jobs)
        return self.shard.take_in(topic, records, self._next[topic])


def calm_health(clock: Clock, settler: Settler, shards: int = 1) -> SinkHealth:
    """Breakers that never open: for tests of other things, where sinks fail often."""
    return SinkHealth(
        table=HealthTable(NAMES.health),
        subscriptions=SubscriptionsTable(NAMES.subscriptions),
        shards=shards,
        clock=clock,
        breakers=BreakerPolicy(failures=1 << 30),
        disabling=None,
        log=HealthLog(NAMES.health, clock, settler.note),
        notices=Notices(topic=NAMES.operator, shards=shards, clock=clock, note=settler.note),
    )


async def nothing_to_read(_shard: int) -> None:
    """Nothing is known of sinks."""


def stored(shard: DispatchShard) -> dict[tuple[int, int, int], Row]:
    """Every row of the table by (seq, attempt, moves)."""
    rows = [row for some in shard.table.slices() for row in some]
    return {(row.job.seq, row.job.attempt, row.job.moves): row for row in rows}
