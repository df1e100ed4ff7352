"""What survives everything in the model of the dispatch protocol: the logs of each shard, and what the group committed.

Time is a counter. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

DELIVERIES, RETRY, PARKED = "deliveries", "retry", "parked"
SOURCES = (DELIVERIES, RETRY, PARKED)

Version = tuple[int, int]
"""(attempt, moves), as in `hub_app.domain.delivery`."""
NOTHING: Version = (0, 0)
ALL: Version = (99, 99)


class Record(NamedTuple):
    """Stands for a job in one of the source topics."""

    job: int
    attempt: int
    moves: int
    reclaims: int = 0

    @property
    def version(self) -> Version:
        return self.attempt, self.moves


class Outcome(NamedTuple):
    """What became of one version of a job."""

    kind: str
    job: int
    at: Version

    @property
    def finishes(self) -> Version:
        """The highest version that it ends."""
        match self.kind:
            case "failed":
                return self.at[0], 99
            case "delivered" | "dead":
                return ALL
            case "moved":
                return self.at
        return NOTHING


class Claim(NamedTuple):
    """In somebody's hands until its outcome, or past `until`. `holder` names who, for the checks alone."""

    at: Version
    reclaims: int
    until: int
    holder: int


class Claimed(NamedTuple):
    """The claims of one tick."""

    claims: dict[int, Claim]


class ShardLog:
    """Source topics and attempts log of one shard. `epoch` rises whenever one of them is made anew."""

    def __init__(self) -> None:
        self.records: dict[str, list[tuple[int, Record]]] = {topic: [] for topic in SOURCES}
        self.attempts: list[tuple[int, Outcome | Claimed]] = []
        self.committed = dict.fromkeys(SOURCES, 0)
        self.epoch = 0

    def end(self, topic: str) -> int:
        return len(self.records[topic])

    def outcomes(self) -> Iterator[Outcome]:
        return (entry for _, entry in self.attempts if isinstance(entry, Outcome))


class Logs:
    def __init__(self, shards: int) -> None:
        self.now = 0
        self.shards = [ShardLog() for _ in range(shards)]
        self.dead: dict[int, str] = {}

    def append(self, shard: int, topic: str, record: Record) -> None:
        self.now += 1
        self.shards[shard].records[topic].append((self.now, record))

    def tell(self, shard: int, entry: Outcome | Claimed) -> None:
        """Appends to the attempts log."""
        self.now += 1
        self.shards[shard].attempts.append((self.now, entry))

    def bury(self, job: int, reason: str) -> None:
        """Appends to the dead letters."""
        self.now += 1
        self.dead[job] = reason
