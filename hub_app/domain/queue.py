"""The lock of one event in one queue: its states, what may be asked of it, and what comes of it, as a table.

A row is one event of one queue. It is ready, delayed after a release, or locked by whoever received it until a moment;
a lock that ran out is a state of its own, for nothing is written when it does. Its number of deliveries fences: a token
speaks for one delivery, and is void when there was a later one (docs/queues.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from hub_app.domain.limits import QUEUE_RENEW_MS_MAX


class Rules(NamedTuple):
    """What a queue's subscription says."""

    lock_ms: int
    deliveries_max: int
    ttl_ms: int


class Row(NamedTuple):
    """One event of one queue. `until_ms` is the end of its lock, or of its delay; `first_lock_ms` when this delivery
    was received; `at_ms` where it stands in the table's order of visibility (0: with those that are ready);
    `series` is empty, or the operation that put the event there once more."""

    seq: int
    received_at_ms: int
    deliveries: int = 0
    locked: bool = False
    until_ms: int = 0
    first_lock_ms: int = 0
    at_ms: int = 0
    series: str = ""


class State(Enum):
    READY = "ready"
    DELAYED = "delayed"
    """Released, and to be received later."""
    HELD = "held"
    """Locked."""
    AGED = "aged"
    """Locked, and renewed for so long that it is renewed no more."""
    EXPIRED = "expired"
    """Its lock ran out; nobody has received it since."""
    SPENT = "spent"
    """Not locked, and delivered as often as its queue allows."""
    OLD = "old"
    """Not locked, and past its time to live."""
    GONE = "gone"
    """Not there: settled, dead, never there, or (asked with a token) delivered again since."""


class Operation(Enum):
    RECEIVE = "receive"
    ACKNOWLEDGE = "acknowledge"
    RELEASE = "release"
    REJECT = "reject"
    RENEW = "renewLock"
    TICK = "tick"
    """Time goes by."""


class Effect(Enum):
    KEEP = "keep"
    """Nothing changes."""
    LOST = "lost"
    """Nothing changes, and the token is refused."""
    LOCK = "lock"
    RETURN = "return"
    """It is with the ready ones again, at its own place."""
    FREE = "free"
    EXTEND = "extend"
    REMOVE = "remove"
    BURY_REJECTED = "Rejected"
    BURY_SPENT = "MaxDeliveryAttemptsExceeded"
    BURY_OLD = "TimeToLiveExceeded"


BURIALS: Final = frozenset((Effect.BURY_REJECTED, Effect.BURY_SPENT, Effect.BURY_OLD))
"""Their values are the reasons of the dead letters."""


def _line(receive: Effect, tick: Effect, **tokens: Effect) -> Mapping[Operation, Effect]:
    """Operations with a token are refused unless said otherwise."""
    asked = {op: tokens.pop(op.name.lower(), Effect.LOST) for op in Operation}
    assert not tokens, tokens
    return {**asked, Operation.RECEIVE: receive, Operation.TICK: tick}


_HELD: Final = {"acknowledge": Effect.REMOVE, "release": Effect.FREE, "reject": Effect.BURY_REJECTED}

TABLE: Final[Mapping[State, Mapping[Operation, Effect]]] = {
    State.READY: _line(Effect.LOCK, Effect.KEEP),
    State.DELAYED: _line(Effect.KEEP, Effect.KEEP),
    State.HELD: _line(Effect.KEEP, Effect.KEEP, renew=Effect.EXTEND, **_HELD),
    State.AGED: _line(Effect.KEEP, Effect.KEEP, **_HELD),
    State.EXPIRED: _line(Effect.LOCK, Effect.RETURN),
    State.SPENT: _line(Effect.BURY_SPENT, Effect.BURY_SPENT),
    State.OLD: _line(Effect.BURY_OLD, Effect.BURY_OLD),
    State.GONE: _line(Effect.KEEP, Effect.KEEP),
}


def state_of(row: Row | None, *, now_ms: int, rules: Rules) -> State:
    """Ends are exclusive: a lock until t is over at t."""
    if row is None:
        return State.GONE
    if row.locked and now_ms < row.until_ms:
        return State.HELD if now_ms - row.first_lock_ms <= QUEUE_RENEW_MS_MAX else State.AGED
    if row.deliveries >= rules.deliveries_max:
        return State.SPENT
    if now_ms - row.received_at_ms >= rules.ttl_ms:
        return State.OLD
    if row.locked:
        return State.EXPIRED
    return State.DELAYED if now_ms < row.until_ms else State.READY


def effect_of(row: Row | None, operation: Operation, *, now_ms: int, rules: Rules, delivery: int = 0) -> Effect:
    """What comes of `operation`. `delivery` is that of the token, 0 where there is none: a row that was delivered again
    since is gone for it."""
    if row is not None and delivery and row.deliveries != delivery:
        row = None
    return TABLE[state_of(row, now_ms=now_ms, rules=rules)][operation]


def locked(row: Row, *, now_ms: int, rules: Rules) -> Row:
    """The next delivery."""
    until_ms = now_ms + rules.lock_ms
    return row._replace(
        deliveries=row.deliveries + 1, locked=True, until_ms=until_ms, first_lock_ms=now_ms, at_ms=until_ms
    )


def extended(row: Row, *, now_ms: int, rules: Rules) -> Row:
    """Locked for a whole duration from now; never shorter than before."""
    until_ms = max(row.until_ms, now_ms + rules.lock_ms)
    return row._replace(until_ms=until_ms, at_ms=until_ms)


def freed(row: Row, *, now_ms: int, delay_ms: int) -> Row:
    """Released: to be received again, at its own place, after the delay."""
    until_ms = now_ms + delay_ms if delay_ms else 0
    return row._replace(locked=False, until_ms=until_ms, at_ms=until_ms)


def returned(row: Row) -> Row:
    """In the order of those that are ready. Its lock or delay stays as it was: over."""
    return row._replace(at_ms=0)
