"""`hub.subscriptions`: one record per subscription. Key: tenant and id; partitioned by tenant. Value: JSON.

A null value deletes. Headers: `hub-schema`, `hub-idempotency` (a deletion has those too). Secrets are sealed.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from hub_app.domain.idempotency import Answer
from hub_app.domain.subscription import Subscription
from hub_app.domain.subscription_json import from_record, to_record
from hub_app.wire import answers as wire_answers
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, HeadersRead, Record, Unreadable


class Stored(NamedTuple):
    """A record of the topic. `subscription` is None when it was deleted."""

    tenant: str
    id: str
    subscription: Subscription | None
    answers: tuple[Answer, ...]


def join_key(tenant: str, id: str) -> bytes:
    """The message key; its partition is that of `ids.tenant_key(tenant)`."""
    return keyed.join(tenant, id)


def split_key(key: bytes | None) -> tuple[str, str] | Unreadable:
    """(tenant, id) of a message key. Total."""
    parts = keyed.split(key, 2)
    return parts if isinstance(parts, Unreadable) else (parts[0], parts[1])


def write(subscription: Subscription, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that creates or replaces it."""
    value = orjson.dumps(to_record(subscription))
    return Record(join_key(subscription.tenant, subscription.id), value, [SCHEMA_HEADER, *wire_answers.write(answers)])


def write_deleted(tenant: str, id: str, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that deletes it."""
    return Record(join_key(tenant, id), None, [SCHEMA_HEADER, *wire_answers.write(answers)])


def read(key: bytes | None, value: bytes | None, headers: HeadersRead) -> Stored | Unreadable:
    """What a record says. Total."""
    names = split_key(key)
    if isinstance(names, Unreadable):
        return names
    try:
        answers = wire_answers.read(headers)
        if value is None:
            return Stored(*names, None, answers)
        subscription = from_record(orjson.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unreadable(f"subscription: {error!r}")
    if (subscription.tenant, subscription.id) != names:
        return Unreadable("subscription: key and value name different ones")
    return Stored(*names, subscription, answers)
