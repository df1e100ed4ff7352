"""Faults to be planted in worlds of days: one for each thing that is checked there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hub_app.domain.autodisable import DisablePolicy
from hub_app.domain.backoff import DEFAULT_CURVE, Curve
from hub_app.domain.delivery import NOTHING, OutcomeKind
from hub_app.domain.limits import HOUR_MS
from tests.support.dispatch_bench import Worker


def ninth_attempt(worker: Worker) -> None:
    """A ninth attempt follows the eighth."""
    curve = Curve((*DEFAULT_CURVE.caps_ms, DEFAULT_CURVE.caps_ms[-1]))
    worker.attempter._curve = worker.settler._carrier._curve = worker.settler._counts._curve = curve


def ageless(worker: Worker) -> None:
    """An attempt of a job a day old is not its last."""
    worker.attempter._max_age_ms = 1_000 * HOUR_MS


def no_breaker(worker: Worker) -> None:
    """Attempts go on while the breaker is open."""
    worker.health.block = lambda place, until_ms, at_most: None


def many_probes(worker: Worker) -> None:
    """A half-open breaker lets more than one attempt through."""
    block = worker.health.block
    worker.health.block = lambda place, until_ms, at_most: block(place, until_ms, None)


def greedy(worker: Worker) -> None:
    """One destination may have all workers."""
    scheduler: Any = worker.heads.scheduler
    scheduler.half = scheduler._window_min = scheduler.workers


def early(worker: Worker) -> None:
    """Jobs are taken an hour before they are due."""
    heads: Any = worker.heads
    pick = heads.pick
    heads.pick = lambda now_ms, mono_ms: pick(now_ms + HOUR_MS, mono_ms)


def hasty(worker: Worker) -> None:
    """A lone failure disables once it is old enough."""
    health: Any = worker.health
    health._disabling = DisablePolicy(spread_ms=0)


def patient(worker: Worker) -> None:
    """Nobody is ever disabled."""
    health: Any = worker.health
    health._disabling = None


def unforgiving(worker: Worker) -> None:
    """A success does not clear the streak."""
    health: Any = worker.health
    health._end_streak = lambda sink, subscription: None


def forgetful(worker: Worker) -> None:
    """A worker that opens a shard knows nothing of streaks."""
    health: Any = worker.health
    health._take_over = lambda sink, recorded: None


def deaf(worker: Worker) -> None:
    """Attempts go on for a subscription that is to be disabled."""
    worker.attempter._unwanted = frozenset()


def restless(worker: Worker) -> None:
    """A job that was delivered stays in the table."""
    settler: Any = worker.settler
    settle = settler._settle

    def stays(shard: Any, batch: Any, settled: Any) -> Any:
        if settled.attempted is not None and settled.attempted.result.kind == OutcomeKind.DELIVERED:
            return shard.settle(batch, settled.row, NOTHING)
        return settle(shard, batch, settled)

    settler._settle = stays


def lost_retry(worker: Worker) -> None:
    """The record that carries a job on is not written."""
    settler: Any = worker.settler
    settler._carrier._add_job = lambda *arguments: None


PLANTED_IN_DAYS: dict[str, Callable[[Worker], None]] = {
    fault.__name__: fault
    for fault in (
        ninth_attempt,
        ageless,
        no_breaker,
        many_probes,
        greedy,
        early,
        hasty,
        patient,
        unforgiving,
        forgetful,
        deaf,
        restless,
        lost_retry,
    )
}
