"""`hub.operations`: one record per bulk operation. Key: tenant and id; partitioned by tenant. Value: JSON.

A null value deletes. Headers: `hub-schema`, `hub-idempotency`."""

from __future__ import annotations

from typing import NamedTuple

import orjson

from hub_app.domain.idempotency import Answer
from hub_app.domain.operation import Operation, from_record, to_record
from hub_app.wire import answers as wire_answers
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, HeadersRead, Record, Unreadable


class Stored(NamedTuple):
    """A record of the topic. `operation` is None when it was deleted."""

    tenant: str
    id: str
    operation: Operation | None
    answers: tuple[Answer, ...]


def write(operation: Operation, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that creates or replaces it."""
    key = keyed.join(operation.tenant, operation.id)
    return Record(key, orjson.dumps(to_record(operation)), [SCHEMA_HEADER, *wire_answers.write(answers)])


def write_deleted(tenant: str, id: str, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that deletes it."""
    return Record(keyed.join(tenant, id), None, [SCHEMA_HEADER, *wire_answers.write(answers)])


def read(key: bytes | None, value: bytes | None, headers: HeadersRead) -> Stored | Unreadable:
    """What a record says. Total."""
    names = keyed.split(key, 2)
    if isinstance(names, Unreadable):
        return names
    tenant, id = names
    try:
        answers = wire_answers.read(headers)
        if value is None:
            return Stored(tenant, id, None, answers)
        operation = from_record(orjson.loads(value))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return Unreadable(f"operation: {error!r}")
    if (operation.tenant, operation.id) != (tenant, id):
        return Unreadable("operation: key and value name different ones")
    return Stored(tenant, id, operation, answers)
