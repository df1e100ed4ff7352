"""The lock of one event in one queue: every state, every operation, every edge of time."""

from __future__ import annotations

import pytest

from hub_app.domain.limits import HOUR_MS
from hub_app.domain.queue import (
    BURIALS,
    TABLE,
    Effect,
    Operation,
    Row,
    Rules,
    State,
    effect_of,
    extended,
    freed,
    locked,
    returned,
    state_of,
)

NOW = 10_000_000
RULES = Rules(lock_ms=60_000, deliveries_max=3, ttl_ms=24 * HOUR_MS)
FRESH = Row(7, NOW)
TOKENS = (Operation.ACKNOWLEDGE, Operation.RELEASE, Operation.REJECT, Operation.RENEW)


def test_the_table_is_total() -> None:
    assert {state: set(line) for state, line in TABLE.items()} == {state: set(Operation) for state in State}


def test_only_a_held_event_answers_to_tokens() -> None:
    for state, line in TABLE.items():
        held = state in (State.HELD, State.AGED)
        for operation in TOKENS:
            wanted = held and not (state is State.AGED and operation is Operation.RENEW)
            assert (line[operation] is not Effect.LOST) == wanted, (state, operation)


def test_receiving_and_time_never_refuse_and_never_take_from_the_holder() -> None:
    for state, line in TABLE.items():
        for operation in (Operation.RECEIVE, Operation.TICK):
            assert line[operation] is not Effect.LOST
            if state in (State.HELD, State.AGED, State.DELAYED, State.GONE):
                assert line[operation] is Effect.KEEP


def test_what_is_buried_says_why() -> None:
    assert {effect.value for effect in BURIALS} == {"Rejected", "MaxDeliveryAttemptsExceeded", "TimeToLiveExceeded"}


HELD = locked(FRESH, now_ms=NOW, rules=RULES)
LAST = HELD._replace(deliveries=3)


@pytest.mark.parametrize(
    ("row", "now_ms", "state"),
    [
        (None, NOW, State.GONE),
        (FRESH, NOW, State.READY),
        (FRESH, NOW - HOUR_MS, State.READY),  # a clock that stepped back
        (HELD, NOW, State.HELD),
        (HELD, NOW + 59_999, State.HELD),
        (HELD, NOW + 60_000, State.EXPIRED),
        (HELD._replace(until_ms=NOW + 2 * HOUR_MS), NOW + HOUR_MS, State.HELD),
        (HELD._replace(until_ms=NOW + 2 * HOUR_MS), NOW + HOUR_MS + 1, State.AGED),
        (LAST, NOW + 59_999, State.HELD),
        (LAST, NOW + 60_000, State.SPENT),
        (freed(LAST, now_ms=NOW, delay_ms=10_000), NOW, State.SPENT),
        (freed(HELD, now_ms=NOW, delay_ms=10_000), NOW + 9_999, State.DELAYED),
        (freed(HELD, now_ms=NOW, delay_ms=10_000), NOW + 10_000, State.READY),
        (freed(HELD, now_ms=NOW, delay_ms=0), NOW, State.READY),
        (FRESH, NOW + RULES.ttl_ms - 1, State.READY),
        (FRESH, NOW + RULES.ttl_ms, State.OLD),
        (HELD, NOW + RULES.ttl_ms, State.OLD),
        (HELD._replace(until_ms=NOW + RULES.ttl_ms + 1), NOW + RULES.ttl_ms, State.AGED),
        (freed(HELD, now_ms=NOW + RULES.ttl_ms - 1, delay_ms=10_000), NOW + RULES.ttl_ms, State.OLD),
    ],
)
def test_states_at_their_edges(row: Row | None, now_ms: int, state: State) -> None:
    assert state_of(row, now_ms=now_ms, rules=RULES) is state


@pytest.mark.parametrize("operation", TOKENS)
def test_a_token_speaks_for_one_delivery(operation: Operation) -> None:
    again = locked(HELD, now_ms=NOW + 60_000, rules=RULES)
    assert again.deliveries == 2
    asked = {"now_ms": NOW + 60_001, "rules": RULES}
    assert effect_of(again, operation, delivery=1, **asked) is Effect.LOST  # type: ignore[arg-type]
    assert effect_of(again, operation, delivery=2, **asked) is not Effect.LOST  # type: ignore[arg-type]


def test_renewing_gives_a_whole_duration_and_never_takes() -> None:
    later = extended(HELD, now_ms=NOW + 30_000, rules=RULES)
    assert (later.until_ms, later.at_ms, later.first_lock_ms) == (NOW + 90_000, NOW + 90_000, NOW)
    assert extended(later, now_ms=NOW, rules=RULES).until_ms == NOW + 90_000
    assert effect_of(later, Operation.RENEW, now_ms=NOW + 89_999, rules=RULES, delivery=1) is Effect.EXTEND


def test_a_released_event_stands_at_its_own_place() -> None:
    assert freed(HELD, now_ms=NOW, delay_ms=0) == Row(7, NOW, deliveries=1, first_lock_ms=NOW)
    waiting = freed(HELD, now_ms=NOW, delay_ms=10_000)
    assert (waiting.at_ms, returned(waiting).at_ms, returned(waiting).seq) == (NOW + 10_000, 0, 7)
    assert state_of(returned(HELD), now_ms=NOW + 60_000, rules=RULES) is State.EXPIRED
