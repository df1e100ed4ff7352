"""One delivery: a fact for one subscription, and the attempts it takes."""

from __future__ import annotations

from typing import NamedTuple


class Job(NamedTuple):
    """A delivery as its record carries it. A NamedTuple because one is made for every record read.

    `delivery_id` is 16 raw bytes (hex on the wire); `attempt` is the attempt to make next, from 1; `moves` counts
    copies of the waiting job; `series` is empty for the ordinary delivery, else the id of the operation behind it;
    `topic` is the fact's; `not_before_ms` 0 means at once; `reclaims` counts interrupted claims since the last outcome.
    """

    delivery_id: bytes
    attempt: int
    moves: int
    tenant: str
    destination: str
    subscription: str
    series: str
    seq: int
    topic: str
    received_at_ms: int
    not_before_ms: int
    subscriptions_offset: int
    reclaims: int


def version(job: Job) -> tuple[int, int]:
    """(attempt, moves): of two records of a delivery the higher stands for it; the older is finished."""
    return job.attempt, job.moves
