"""One attempt, the back-off curve and the protocol's versions (docs/delivery.md, docs/protocol.md), as tables."""

from __future__ import annotations

import itertools

import pytest

from hub_app.domain.backoff import DEFAULT_CURVE, Curve
from hub_app.domain.delivery import (
    DEFER_MS_MAX,
    DEFER_MS_MIN,
    MAX_AGE_MS,
    NOTHING,
    Dead,
    DeadReason,
    Deferred,
    Delivered,
    Job,
    Moved,
    NextStep,
    OutcomeKind,
    Result,
    ResultKind,
    Retry,
    deferred,
    finished_up_to,
    finishes,
    is_last,
    moved,
    next_step,
    overstayed,
    parked,
    retried,
    supersedes,
    version,
)
from hub_app.domain.limits import HOUR_MS, MINUTE_MS

RECEIVED = 1_767_323_045_000
NOW = RECEIVED + 60_000
FAILED = Result(ResultKind.FAILED, 500, "http_500")


def job(attempt: int = 1, moves: int = 0) -> Job:
    return Job(
        delivery_id=b"d" * 16,
        attempt=attempt,
        moves=moves,
        tenant="acme",
        destination="https://crm.example.com/in",
        subscription="sub_1",
        series="",
        seq=7,
        topic="lender",
        received_at_ms=RECEIVED,
        not_before_ms=0,
        subscriptions_offset=3,
        reclaims=2,
    )


def step(
    result: Result,
    *,
    attempt: int = 1,
    started_ms: int = NOW,
    now_ms: int = NOW,
    draw: float = 0.5,
    curve: Curve = DEFAULT_CURVE,
) -> NextStep:
    return next_step(job(attempt), result, curve=curve, started_at_ms=started_ms, now_ms=now_ms, draw=draw)


# -- one attempt -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("attempt", range(1, 9))
@pytest.mark.parametrize("age_ms", [0, MAX_AGE_MS - 1, MAX_AGE_MS, 10 * MAX_AGE_MS])
def test_a_success_delivers_whenever_it_comes(attempt: int, age_ms: int) -> None:
    result = Result(ResultKind.DELIVERED, 204)
    assert step(result, attempt=attempt, started_ms=RECEIVED + age_ms) == Delivered()


@pytest.mark.parametrize(
    ("attempt", "tier", "cap_ms"),
    [
        (1, 0, 10_000),
        (2, 1, MINUTE_MS),
        (3, 2, 5 * MINUTE_MS),
        (4, 3, 30 * MINUTE_MS),
        (5, 4, 2 * HOUR_MS),
        (6, 5, 5 * HOUR_MS),
        (7, 6, 10 * HOUR_MS),
    ],
)
@pytest.mark.parametrize("draw", [0.0, 0.5, 0.999999])
def test_a_failure_goes_to_the_tier_of_its_number(attempt: int, tier: int, cap_ms: int, draw: float) -> None:
    assert step(FAILED, attempt=attempt, draw=draw) == Retry(tier, NOW + int(draw * cap_ms), attempt + 1)


@pytest.mark.parametrize("attempt", [8, 9, 50])
def test_the_eighth_failure_is_the_last(attempt: int) -> None:
    assert step(FAILED, attempt=attempt) == Dead(DeadReason.EXHAUSTED)


@pytest.mark.parametrize(
    ("attempt", "age_ms", "expected"),
    [
        (1, MAX_AGE_MS - 1, None),
        (1, MAX_AGE_MS, DeadReason.EXPIRED),
        (7, MAX_AGE_MS - 1, None),
        (7, MAX_AGE_MS, DeadReason.EXPIRED),
        (7, 100 * MAX_AGE_MS, DeadReason.EXPIRED),
        (8, MAX_AGE_MS, DeadReason.EXHAUSTED),
        # The hub's clock stepped back: the fact comes from the future, and is young.
        (1, -HOUR_MS, None),
    ],
)
def test_an_attempt_that_starts_at_24_hours_is_the_last(attempt: int, age_ms: int, expected: DeadReason | None) -> None:
    came = step(FAILED, attempt=attempt, started_ms=RECEIVED + age_ms, now_ms=RECEIVED + age_ms + 10_000)
    assert came == Dead(expected) if expected else isinstance(came, Retry)
    last = is_last(job(attempt), curve=DEFAULT_CURVE, started_at_ms=RECEIVED + age_ms)
    assert last is (expected is not None)


def test_the_start_counts_and_not_the_end() -> None:
    """It began a millisecond before 24 hours and timed out after them: one more attempt."""
    came = step(FAILED, started_ms=RECEIVED + MAX_AGE_MS - 1, now_ms=RECEIVED + MAX_AGE_MS + 9_999)
    assert isinstance(came, Retry)


@pytest.mark.parametrize("attempt", [1, 8])
def test_too_large_is_dead_at_once(attempt: int) -> None:
    assert step(Result(ResultKind.TOO_LARGE), attempt=attempt) == Dead(DeadReason.PAYLOAD_TOO_LARGE)


@pytest.mark.parametrize("attempt", [1, 8])
@pytest.mark.parametrize("age_ms", [0, MAX_AGE_MS])
@pytest.mark.parametrize(("draw", "wait_ms"), [(0.0, DEFER_MS_MIN), (0.5, 22_500), (0.9999999, DEFER_MS_MAX - 1)])
def test_not_charged_spends_nothing_not_even_the_last(attempt: int, age_ms: int, draw: float, wait_ms: int) -> None:
    came = step(Result(ResultKind.NOT_CHARGED), attempt=attempt, started_ms=RECEIVED + age_ms, draw=draw)
    assert came == Deferred(NOW + wait_ms)


def test_every_result_has_a_next_step() -> None:
    for kind, attempt, age_ms in itertools.product(ResultKind, range(1, 10), (0, MAX_AGE_MS)):
        came = step(Result(kind), attempt=attempt, started_ms=RECEIVED + age_ms)
        assert isinstance(came, Delivered | Retry | Dead | Deferred)


def test_another_curve_has_as_many_attempts_as_caps_and_one() -> None:
    curve = Curve((100, 200))
    assert step(FAILED, attempt=2, curve=curve) == Retry(1, NOW + 100, 3)
    assert step(FAILED, attempt=3, curve=curve) == Dead(DeadReason.EXHAUSTED)
    # A job from a longer curve, after the curve was shortened.
    assert step(FAILED, attempt=7, curve=curve) == Dead(DeadReason.EXHAUSTED)


@pytest.mark.parametrize(
    ("asked", "wait_ms"),
    [
        (None, 5_000),
        ("6", 6_000),
        ("4", 5_000),  # shorter than drawn: ignored
        ("11", 10_000),  # never past the cap
        ("99999999", 10_000),
        ("-5", 5_000),
        ("abc", 5_000),
    ],
)
def test_retry_after_only_lengthens_up_to_the_cap(asked: str | None, wait_ms: int) -> None:
    assert step(FAILED._replace(retry_after=asked)) == Retry(0, NOW + wait_ms, 2)


def test_the_jobs_that_steps_leave_behind() -> None:
    one = job(attempt=3, moves=2)
    assert retried(one, Retry(2, 99, 4)) == one._replace(attempt=4, moves=0, not_before_ms=99, reclaims=0)
    assert deferred(one, Deferred(77)) == one._replace(not_before_ms=77, reclaims=0)
    copy = moved(one, Moved("https://new.example.com/", 9))
    assert copy == one._replace(moves=3, destination="https://new.example.com/", subscriptions_offset=9)
    assert supersedes(version(copy), version(one))
    assert supersedes(version(retried(one, Retry(2, 99, 4))), version(copy))
    assert parked(one) == one._replace(moves=3)
    assert not supersedes(version(one), version(one))


# -- outcomes ----------------------------------------------------------------------------------------------------------
VERSIONS = [(n, m) for n in range(1, 5) for m in range(4)]
FINISHED_BY = {
    OutcomeKind.FAILED: lambda at, v: v[0] <= at[0],
    OutcomeKind.DELIVERED: lambda at, v: True,
    OutcomeKind.DEAD: lambda at, v: True,
    OutcomeKind.MOVED: lambda at, v: v <= at,
    OutcomeKind.CLAIMED: lambda at, v: False,
    OutcomeKind.DEFERRED: lambda at, v: False,
    OutcomeKind.PARKED: lambda at, v: False,
}


@pytest.mark.parametrize("kind", OutcomeKind)
def test_what_an_outcome_finishes(kind: OutcomeKind) -> None:
    for at, one in itertools.product(VERSIONS, VERSIONS):
        assert finishes(kind, at, one) is FINISHED_BY[kind](at, one), (kind, at, one)


def test_bounds_of_one_job_combine_by_max() -> None:
    for (kind, at), (other, at_other) in itertools.product(itertools.product(OutcomeKind, VERSIONS), repeat=2):
        bound = max(finished_up_to(kind, at), finished_up_to(other, at_other))
        for one in VERSIONS:
            assert (one <= bound) is (finishes(kind, at, one) or finishes(other, at_other, one))
    assert all(one > NOTHING for one in VERSIONS)


# -- jobs that nobody attempts -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("inactive_for_ms", "deferred_for_ms", "expected"),
    [
        (None, None, None),
        (96 * HOUR_MS - 1, None, None),
        (96 * HOUR_MS, None, DeadReason.DISABLED),
        (None, 96 * HOUR_MS - 1, None),
        (None, 96 * HOUR_MS, DeadReason.DEFERRED),
        (96 * HOUR_MS, 96 * HOUR_MS, DeadReason.DISABLED),
        (0, 96 * HOUR_MS, DeadReason.DEFERRED),
        (-HOUR_MS, -HOUR_MS, None),
    ],
)
def test_96_hours(inactive_for_ms: int | None, deferred_for_ms: int | None, expected: DeadReason | None) -> None:
    came = overstayed(
        inactive_since_ms=None if inactive_for_ms is None else NOW - inactive_for_ms,
        deferred_since_ms=None if deferred_for_ms is None else NOW - deferred_for_ms,
        now_ms=NOW,
    )
    assert came is expected
