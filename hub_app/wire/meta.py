"""`hub.meta`: what all workers must agree on. One partition, compacted. Key: what it is; value: JSON.

    schema              {"version": 1}
    epoch U+001F <p>    {"epoch": 1, "reason": "...", "at": "2026-01-02T03:04:05.678Z"}

An epoch belongs to a shard's `hub.facts` partition; it rises when the log was made anew or ends below a position
that was stored.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.domain.limits import EPOCH_MAX
from hub_app.wire import keyed
from hub_app.wire.record import SCHEMA_HEADER, Headers, Record, Unreadable


class Schema(NamedTuple):
    """Version of everything the hub keeps in Kafka; a worker that finds a higher one does not start."""

    version: int


class Epoch(NamedTuple):
    """The epoch of a shard, why it rose, and when."""

    shard: int
    epoch: int
    reason: str
    at_ms: int


def write(value: Schema | Epoch) -> Record:
    """The record of a fact about the deployment; partition 0."""
    headers: Headers = [SCHEMA_HEADER]
    if isinstance(value, Schema):
        return Record(b"schema", _dump({"version": value.version}), headers)
    body = {"epoch": value.epoch, "reason": value.reason, "at": rfc3339(value.at_ms)}
    return Record(keyed.join("epoch", str(value.shard)), _dump(body), headers)


def read(key: bytes | None, value: bytes | None) -> Schema | Epoch | Unreadable:
    """What a record says. Total."""
    try:
        body = json.loads(value or b"")
        if key == b"schema":
            return Schema(_count(body["version"]))
        parts = keyed.split(key, 2)
        if isinstance(parts, Unreadable) or parts[0] != "epoch" or not (parts[1].isascii() and parts[1].isdigit()):
            return Unreadable("meta: unknown key")
        epoch = _count(body["epoch"])
        if epoch > EPOCH_MAX:
            return Unreadable("meta: no such epoch")
        return Epoch(int(parts[1]), epoch, str(body["reason"]), parse_rfc3339(body["at"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        return Unreadable(f"meta: {error!r}")


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError("not a count")
    return value


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
