"""`hub.health`: what dispatch owners know of sinks. Compacted; partitioned by tenant and destination. Value: JSON.

    tenant U+001F destination                      {"state": "open", "failures": 5, "opened_at": "…", "open_ms": 30000,
                                                    "changed_at": "…"}
    tenant U+001F destination U+001F subscription  {"first_failure": "…", "last_failure": "…", "warned_percent": 50,
                                                    "disable_wanted": false}

A null value: nothing is held against it. `state` is for people; `opened_at` is null unless it is open.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import Breaker
from hub_app.domain.health import BreakerHealth, Health, StreakHealth
from hub_app.domain.ids import SEP
from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, Record, Unreadable


class Key(NamedTuple):
    """`subscription` is None in the key of a breaker."""

    tenant: str
    destination: str
    subscription: str | None


def join_key(tenant: str, destination: str, subscription: str | None = None) -> bytes:
    """The message key; its partition is that of `ids.destination_key(tenant, destination)`."""
    return keyed.join(tenant, destination, *(() if subscription is None else (subscription,)))


def split_key(key: bytes | None) -> Key | Unreadable:
    """Total."""
    parts = keyed.split(key, 3 if (key or b"").count(SEP.encode()) == 2 else 2)
    return parts if isinstance(parts, Unreadable) else Key(parts[0], parts[1], parts[2] if len(parts) == 3 else None)


def write(health: Health) -> Record:
    if isinstance(health, StreakHealth):
        tenant, destination, subscription, streak, warned_percent, disable_wanted = health
        body: dict[str, Any] = {
            "first_failure": rfc3339(streak.first_ms),
            "last_failure": rfc3339(streak.last_ms),
            "warned_percent": warned_percent,
            "disable_wanted": disable_wanted,
        }
        return Record(join_key(tenant, destination, subscription), orjson.dumps(body), [SCHEMA_HEADER])
    tenant, destination, breaker, changed_ms = health
    body = {
        "state": "open" if breaker.open_ms else "closed",
        "failures": breaker.failures,
        "opened_at": rfc3339(breaker.opened_at_ms) if breaker.open_ms else None,
        "open_ms": breaker.open_ms,
        "changed_at": rfc3339(changed_ms),
    }
    return Record(join_key(tenant, destination), orjson.dumps(body), [SCHEMA_HEADER])


def write_cleared(tenant: str, destination: str, subscription: str | None = None) -> Record:
    """The record that says that nothing is held against it."""
    return Record(join_key(tenant, destination, subscription), None, [SCHEMA_HEADER])


def read(key: bytes | None, value: bytes | None) -> Health | Unreadable | None:
    """What a record says, None when it clears. Total."""
    names = split_key(key)
    if isinstance(names, Unreadable) or value is None:
        return names if isinstance(names, Unreadable) else None
    tenant, destination, subscription = names
    try:
        body = orjson.loads(value)
        if subscription is None:
            return BreakerHealth(tenant, destination, _breaker(body), parse_rfc3339(body["changed_at"]))
        streak = Streak(parse_rfc3339(body["first_failure"]), parse_rfc3339(body["last_failure"]))
        if type(body["disable_wanted"]) is not bool:
            raise ValueError("disable_wanted is true or false")
        warned, wanted = _count(body["warned_percent"]), body["disable_wanted"]
        return StreakHealth(tenant, destination, subscription, streak, warned, wanted)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unreadable(f"health: {error!r}")


def _breaker(body: dict[str, Any]) -> Breaker:
    open_ms = _count(body["open_ms"])
    return Breaker(_count(body["failures"]), parse_rfc3339(body["opened_at"]) if open_ms else 0, open_ms)


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value
