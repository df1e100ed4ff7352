"""What came of jobs, on its way to the logs: the outcome of each, in words, numbers and records."""

from __future__ import annotations

from typing import NamedTuple

from agents.attempt import Attempted
from agents.dispatch_shard import DispatchShard
from hub_app.domain.backoff import Curve
from hub_app.domain.delivery import (
    OUTCOMES,
    Dead,
    Deferred,
    Delivered,
    NextStep,
    Parked,
    Retry,
    Version,
    finished_up_to,
    version,
)
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics
from hub_app.wire import attempts as wire_attempts
from hub_app.wire.record import Record
from tables.jobs import Row


class Settled(NamedTuple):
    """A job in hand and its next step. `attempted` is None when it goes on, or ends, without an attempt. One that is
    parked is in nobody's hand."""

    shard: DispatchShard
    row: Row
    step: NextStep
    attempted: Attempted | None
    headers: tuple[tuple[str, bytes], ...]
    body: bytes


class Note(NamedTuple):
    """A record that goes with the outcomes of a tick. One that speaks for a shard is not written once that is closed
    here: its next owner may know better."""

    topic: str
    partition: int
    record: Record
    shard: DispatchShard | None = None


def finishes(settled: Settled) -> Version:
    """Up to which version of the job its records are finished."""
    return finished_up_to(OUTCOMES[type(settled.step)], version(settled.row.job))


def outcome(settled: Settled, now_ms: int) -> wire_attempts.Outcome:
    """What the attempts log says."""
    attempted, step, job = settled.attempted, settled.step, settled.row.job
    status, error = answered(attempted)
    due_ms = step.not_before_ms if isinstance(step, Retry) else step.until_ms if isinstance(step, Deferred) else 0
    return wire_attempts.Outcome(
        OUTCOMES[type(step)],
        job._replace(not_before_ms=due_ms),
        attempted.started_ms if attempted else now_ms,
        attempted.took_ms if attempted else 0,
        status,
        error,
        step.reason if isinstance(step, Dead) else "",
        attempted.answer if attempted else b"",
    )


def answered(attempted: Attempted | None) -> tuple[int | None, str]:
    """(status, error) of an attempt, as people read them."""
    if attempted is None:
        return None, ""
    _, status, error, detail, _ = attempted.result
    return status, f"{error}: {detail}" if detail else error


class Counts:
    """Outcomes as metrics and log lines."""

    def __init__(self, metrics: Metrics, curve: Curve) -> None:
        self._metrics, self._curve, self._log = metrics, curve, Log("settle")
        self._delivered = metrics.attempts.labels("delivered")

    def add(self, settled: Settled) -> None:
        step, attempted = settled.step, settled.attempted
        if isinstance(step, Delivered) and attempted is not None:
            self._delivered.inc()
            ended_ms = attempted.started_ms + attempted.took_ms
            self._metrics.latency.only().observe_ms(ended_ms - settled.row.job.received_at_ms)
        elif isinstance(step, Retry):
            self._metrics.attempts.labels("failed").inc()
            self._metrics.retries.labels(self._curve.tiers[step.tier]).inc()
        elif isinstance(step, Dead):
            self._metrics.attempts.labels("dead").inc()
            self._metrics.dead.labels(step.reason).inc()
            self._log.info(Event.DEAD_LETTERED, reason=step.reason, delivery=settled.row.job.delivery_id.hex())
        elif isinstance(step, Parked):
            self._metrics.parked.only().inc()
        elif isinstance(step, Deferred) and attempted is not None:
            self._metrics.not_charged.labels(attempted.result.error).inc()
        if attempted is not None:
            self._metrics.attempt_duration.only().observe_ms(attempted.took_ms)
