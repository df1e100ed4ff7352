"""A delivery (job): one fact for one subscription, and the attempts it takes.

What an attempt's result makes of the job, and which records an outcome finishes. Source of the rules: the delivery
rules "One attempt" and "Back-off curve", and the protocol's "Dispatch shard".
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from hub_app.domain.backoff import Curve, retry_after_ms
from hub_app.domain.limits import HOUR_MS, SUSPENDED_MS_MAX

MAX_AGE_MS: Final = 24 * HOUR_MS
DEFER_MS_MIN: Final = 15_000
DEFER_MS_MAX: Final = 30_000
ALONE_FROM: Final = 2
"""Interrupted so often, a job runs alone in its worker, so that bystanders of a killer are not buried with it."""

Version = tuple[int, int]
"""(attempt, moves): a retry is (n + 1, 0), a copy of a waiting job (n, m + 1). The higher stands for the job."""

NOTHING: Final[Version] = (0, 0)
_ALL: Final = 1 << 31


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


def version(job: Job) -> Version:
    """Of two records of a delivery the higher version stands for it; the older is finished."""
    return job.attempt, job.moves


def supersedes(new: Version, old: Version) -> bool:
    """Whether a record of version `new` stands for a job known as `old`, whose records then count as finished.
    An equal version stands beside it; a lower one is itself finished."""
    return new > old


class OutcomeKind(StrEnum):
    """What a record of hub.attempts says."""

    CLAIMED = "claimed"
    DEFERRED = "deferred"
    PARKED = "parked"
    MOVED = "moved"
    FAILED = "failed"
    DELIVERED = "delivered"
    DEAD = "dead"


class DeadReason(StrEnum):
    EXHAUSTED = "exhausted"
    EXPIRED = "expired"
    PAYLOAD_TOO_LARGE = "payload_too_large"
    POISONED = "poisoned"
    DISABLED = "disabled"
    DEFERRED = "deferred"
    SUBSCRIPTION_DELETED = "subscription_deleted"


def finished_up_to(kind: OutcomeKind, at: Version) -> Version:
    """The highest version that an outcome of version `at` finishes, `NOTHING` if none: bounds of one job combine by
    `max`, so that what is known of it is one version. Total over `OutcomeKind`."""
    match kind:
        case OutcomeKind.FAILED:
            return (at[0], _ALL)
        case OutcomeKind.DELIVERED | OutcomeKind.DEAD:
            return (_ALL, _ALL)
        case OutcomeKind.MOVED:
            return at
        case OutcomeKind.CLAIMED | OutcomeKind.DEFERRED | OutcomeKind.PARKED:
            return NOTHING


def finishes(kind: OutcomeKind, at: Version, version: Version) -> bool:
    """Whether an outcome `kind` of a job's version `at` finishes its records of `version`."""
    return version <= finished_up_to(kind, at)


class ResultKind(StrEnum):
    """What came of one attempt, before the job's next step is known."""

    DELIVERED = "delivered"
    FAILED = "failed"
    TOO_LARGE = "too_large"
    NOT_CHARGED = "not_charged"


class Result(NamedTuple):
    """`error` is a short token (`http_500`, `timeout`, …; empty when delivered); `detail` is for people; `retry_after`
    the header's text as it came."""

    kind: ResultKind
    status: int | None = None
    error: str = ""
    detail: str = ""
    retry_after: str | None = None


class Delivered(NamedTuple):
    """The sink took it."""


class Retry(NamedTuple):
    """`tier` is the index into the curve; `attempt` the number of the attempt to come."""

    tier: int
    not_before_ms: int
    attempt: int


class Dead(NamedTuple):
    reason: DeadReason


class Deferred(NamedTuple):
    """No attempt was spent: the same version waits until `until_ms`."""

    until_ms: int


class Moved(NamedTuple):
    """The same attempt goes on at the subscription's new address. `subscriptions_offset`: where that was read."""

    destination: str
    subscriptions_offset: int


class Parked(NamedTuple):
    """A waiting job is copied to where the log will be kept for longer; nothing else changes."""


NextStep = Delivered | Retry | Dead | Deferred | Moved | Parked

OUTCOMES: Final = {
    Delivered: OutcomeKind.DELIVERED,
    Retry: OutcomeKind.FAILED,
    Dead: OutcomeKind.DEAD,
    Deferred: OutcomeKind.DEFERRED,
    Moved: OutcomeKind.MOVED,
    Parked: OutcomeKind.PARKED,
}
"""What the attempts log says of each step."""


def is_last(job: Job, *, curve: Curve, started_at_ms: int, max_age_ms: int = MAX_AGE_MS) -> bool:
    """Whether an attempt that starts at `started_at_ms` is the job's last (age boundary inclusive)."""
    return job.attempt >= curve.attempts_max or started_at_ms - job.received_at_ms >= max_age_ms


def next_step(
    job: Job,
    result: Result,
    *,
    curve: Curve,
    started_at_ms: int,
    now_ms: int,
    draw: float,
    max_age_ms: int = MAX_AGE_MS,
) -> NextStep:
    """What becomes of `job` after one attempt that started at `started_at_ms` (wall clock). Total over `ResultKind`.
    A last attempt that fails is `exhausted` when it was the last by number, else `expired`."""
    match result.kind:
        case ResultKind.DELIVERED:
            return Delivered()
        case ResultKind.TOO_LARGE:
            return Dead(DeadReason.PAYLOAD_TOO_LARGE)
        case ResultKind.NOT_CHARGED:
            return Deferred(now_ms + DEFER_MS_MIN + int(draw * (DEFER_MS_MAX - DEFER_MS_MIN)))
        case ResultKind.FAILED:
            if job.attempt >= curve.attempts_max:
                return Dead(DeadReason.EXHAUSTED)
            if is_last(job, curve=curve, started_at_ms=started_at_ms, max_age_ms=max_age_ms):
                return Dead(DeadReason.EXPIRED)
            asked_ms = retry_after_ms(result.retry_after, now_ms=now_ms)
            delay_ms = curve.delay_ms(job.attempt, draw=draw, asked_ms=asked_ms)
            return Retry(job.attempt - 1, now_ms + delay_ms, job.attempt + 1)


def retried(job: Job, step: Retry) -> Job:
    """The job that a failed attempt leaves behind. Any outcome clears its reclaims."""
    return job._replace(attempt=step.attempt, moves=0, not_before_ms=step.not_before_ms, reclaims=0)


def deferred(job: Job, step: Deferred) -> Job:
    """The same version with a later due time; an outcome, so its reclaims are cleared."""
    return job._replace(not_before_ms=step.until_ms, reclaims=0)


def moved(job: Job, step: Moved) -> Job:
    """The copy that carries a waiting job on, to where its destination lies now."""
    destination, offset = step
    return job._replace(moves=job.moves + 1, destination=destination, subscriptions_offset=offset)


def parked(job: Job) -> Job:
    """The copy of a waiting job."""
    return job._replace(moves=job.moves + 1)


def overstayed(*, inactive_since_ms: int | None, deferred_since_ms: int | None, now_ms: int) -> DeadReason | None:
    """Why a job that nobody attempts must end (96 hours, boundary inclusive), or None. `inactive_since_ms`: when its
    subscription stopped being enabled and active; `deferred_since_ms`: when the job was first deferred."""
    if inactive_since_ms is not None and now_ms - inactive_since_ms >= SUSPENDED_MS_MAX:
        return DeadReason.DISABLED
    if deferred_since_ms is not None and now_ms - deferred_since_ms >= SUSPENDED_MS_MAX:
        return DeadReason.DEFERRED
    return None
