"""A bulk operation: a replay of past events, or a redrive of dead letters. It goes on in bounded steps, each of which
is written down before the next, so that whoever owns the shard after a crash goes on where it stood.

running -> done | cancelled | failed. What is over stays as it is.
"""

from __future__ import annotations

from base64 import b32encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from hub_app.domain.ids import SEP
from hub_app.domain.instants import rfc3339
from hub_app.domain.limits import DAY_MS

KEPT_MS: Final = 7 * DAY_MS
"""How long an operation that is over can be looked at."""
RUNNING_PER_TENANT_MAX: Final = 10
SEQ_MAX: Final = (1 << 63) - 1


class OperationKind(StrEnum):
    REPLAY = "replay"
    REDRIVE = "redrive"


class OperationState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """Which events: seqs, both ends included, and when the hub received them, the end excluded. All conditions hold."""

    from_seq: int = 0
    to_seq: int = SEQ_MAX
    from_ms: int = 0
    to_ms: int = SEQ_MAX

    def covers(self, seq: int, received_at_ms: int) -> bool:
        return self.from_seq <= seq <= self.to_seq and self.from_ms <= received_at_ms < self.to_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """`subscription` is empty where a redrive is about all. `where`: the redrive's filter, as the request gave it.
    `cursor`: everything at or below this place is finished. `made`: deliveries made, or that would be (`dry_run`)."""

    id: str
    tenant: str
    kind: OperationKind
    subscription: str
    span: Span
    where: Mapping[str, str]
    dry_run: bool
    state: OperationState
    cursor: int
    looked_at: int
    made: int
    detail: str
    created_at_ms: int
    updated_at_ms: int

    @property
    def over(self) -> bool:
        return self.state is not OperationState.RUNNING


def operation_id(tenant: str, *parts: str) -> str:
    """`parts` is what makes it unique: an idempotency key, or entropy."""
    text = SEP.join((tenant, "operation", *parts))
    return "opn_" + b32encode(blake2b(text.encode(), digest_size=16).digest()).decode().rstrip("=").lower()


def begun(
    *,
    id: str,
    tenant: str,
    kind: OperationKind,
    subscription: str,
    span: Span,
    now_ms: int,
    dry_run: bool = False,
    where: Mapping[str, str] | None = None,
) -> Operation:
    return Operation(
        id=id,
        tenant=tenant,
        kind=kind,
        subscription=subscription,
        span=span,
        where=dict(where or {}),
        dry_run=dry_run,
        state=OperationState.RUNNING,
        cursor=span.from_seq - 1,
        looked_at=0,
        made=0,
        detail="",
        created_at_ms=now_ms,
        updated_at_ms=now_ms,
    )


def advanced(operation: Operation, *, cursor: int, looked_at: int, made: int, done: bool, now_ms: int) -> Operation:
    """After one more step; the counts are the step's."""
    return replace(
        operation,
        cursor=cursor,
        looked_at=operation.looked_at + looked_at,
        made=operation.made + made,
        state=OperationState.DONE if done else operation.state,
        updated_at_ms=now_ms,
    )


def ended(operation: Operation, state: OperationState, *, now_ms: int, detail: str = "") -> Operation:
    """Cancelled or failed; the same object when it was over already."""
    return operation if operation.over else replace(operation, state=state, detail=detail, updated_at_ms=now_ms)


def forgettable(operation: Operation, now_ms: int) -> bool:
    return operation.over and now_ms - operation.updated_at_ms >= KEPT_MS


# -- as JSON -----------------------------------------------------------------------------------------------------------
def to_record(operation: Operation) -> dict[str, object]:
    """Plain JSON values for the log. Instants stay integers of milliseconds."""
    plain: dict[str, object] = {name: getattr(operation, name) for name in operation.__slots__}
    span = operation.span
    return plain | {"span": [span.from_seq, span.to_seq, span.from_ms, span.to_ms], "where": dict(operation.where)}


def from_record(record: Mapping[str, Any]) -> Operation:
    """The inverse of `to_record`. ValueError, TypeError or KeyError when the record cannot be one."""
    span, where = record["span"], record["where"]
    if len(span) != 4 or not all(type(part) is int for part in span) or not isinstance(where, dict):
        raise ValueError("span or where has another shape")
    texts = {name: record[name] for name in ("id", "tenant", "subscription", "detail")}
    counts = {name: record[name] for name in ("cursor", "looked_at", "made", "created_at_ms", "updated_at_ms")}
    if not all(isinstance(text, str) for text in (*texts.values(), *where.values())):
        raise ValueError("not a text")
    if not all(type(count) is int for count in counts.values()):
        raise ValueError("not a whole number")
    return Operation(
        **texts,
        **counts,
        kind=OperationKind(record["kind"]),
        state=OperationState(record["state"]),
        span=Span(from_seq=span[0], to_seq=span[1], from_ms=span[2], to_ms=span[3]),
        where=where,
        dry_run=record["dry_run"] is True,
    )


def to_public(operation: Operation) -> dict[str, object]:
    """The read model of the API."""
    return {
        "id": operation.id,
        "kind": operation.kind.value,
        "state": operation.state.value,
        "subscription": operation.subscription or None,
        "dry_run": operation.dry_run,
        "looked_at": operation.looked_at,
        "made": operation.made,
        "detail": operation.detail or None,
        "created_at": rfc3339(operation.created_at_ms),
        "updated_at": rfc3339(operation.updated_at_ms),
    }
