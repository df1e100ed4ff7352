"""What owners of shards write about a tenant: subscriptions, API keys, operations. One compacted topic each.

One record per thing. Key: tenant and id; partitioned by `ids.tenant_key(tenant)`. Value: JSON; a null value
deletes. Headers: `hub-schema`, `hub-idempotency` (a deletion has those too).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import orjson

from hub_app.domain.idempotency import Answer
from hub_app.wire import answers as wire_answers
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, HeadersRead, Record, Unreadable


class Owned(Protocol):
    """What is written, as far as its key goes."""

    @property
    def tenant(self) -> str: ...
    @property
    def id(self) -> str: ...


Row = TypeVar("Row", bound=Owned)


class Stored(NamedTuple, Generic[Row]):
    """A record of such a topic. `row` is None when it was deleted."""

    tenant: str
    id: str
    row: Row | None
    answers: tuple[Answer, ...]


def write_deleted(tenant: str, id: str, answers: tuple[Answer, ...] = ()) -> Record:
    """The record that deletes a row."""
    return Record(keyed.join(tenant, id), None, [SCHEMA_HEADER, *wire_answers.write(answers)])


class Codec(Generic[Row]):
    """Rows of one topic as records. `of` raises ValueError, TypeError, KeyError or AttributeError for a body that is
    none of `to`'s; `what` names the row in reasons."""

    def __init__(self, what: str, to: Callable[[Row], Mapping[str, Any]], of: Callable[[Any], Row]) -> None:
        self._what, self._to, self._of = what, to, of

    def write(self, row: Row, answers: tuple[Answer, ...] = ()) -> Record:
        """The record that creates or replaces it."""
        headers = [SCHEMA_HEADER, *wire_answers.write(answers)]
        return Record(keyed.join(row.tenant, row.id), orjson.dumps(self._to(row)), headers)

    def read(self, key: bytes | None, value: bytes | None, headers: HeadersRead) -> Stored[Row] | Unreadable:
        """What a record says. Total."""
        parts = keyed.split(key, 2)
        if isinstance(parts, Unreadable):
            return parts
        tenant, id = parts
        try:
            answers = wire_answers.read(headers)
            if value is None:
                return Stored(tenant, id, None, answers)
            row = self._of(orjson.loads(value))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            return Unreadable(f"{self._what}: {error!r}")
        if (row.tenant, row.id) != (tenant, id):
            return Unreadable(f"{self._what}: the record's key and value name different ones")
        return Stored(tenant, id, row, answers)
