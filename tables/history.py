"""What came of a subscription's attempts, newest first, in its dispatch shard's store (docs/http-api.md, "Attempts").

    history   subscription U+001F inverted time, delivery, attempt  -> outcome, start of the answer

Written with the outcomes themselves; bounded by count: whenever a thousand more have come, what is older than the
thousand before them goes. Of one destination's attempts: a subscription that moved has the rest where it was before.
"""

from __future__ import annotations

import marshal
from collections.abc import Iterable
from typing import NamedTuple

from hub_app.domain.limits import ANSWER_START_BYTES_MAX
from hub_app.wire.attempts import Outcome
from tables.memory import Family
from tables.shard import OFFSETS, Batch, ShardStore

FAMILIES = (Family("history", buffer_bytes=2 << 20),)
KEPT = 1_000
"""Of a subscription, at least (while there are as many)."""
_SEP = b"\x1f"
_AFTER_SEP = b"\x20"
_LATEST = (1 << 63) - 1
_POSITION = b"\0history"
_FORMAT = 4  # of marshal, as in tables.inbox
_KEY_BYTES = 8 + 6 + 1


class Attempt(NamedTuple):
    """One outcome. `place` is its cursor. `kind` as in `delivery.OutcomeKind`; `number` is that of the attempt."""

    place: bytes
    tenant: str
    delivery_id: bytes
    seq: int
    series: str
    number: int
    kind: str
    at_ms: int
    duration_ms: int
    status: int | None
    error: str
    reason: str
    next_at_ms: int
    answer: bytes


class _Counted:
    """How many came since the last mark, and where that lies."""

    __slots__ = ("count", "mark")

    def __init__(self, mark: bytes) -> None:
        self.count, self.mark = 0, mark


class HistoryTable:
    """One per opening of a shard. Callers batch."""

    def __init__(self, store: ShardStore) -> None:
        self.store = store
        self._counted: dict[str, _Counted] = {}

    def note(self, batch: Batch, outcomes: Iterable[Outcome], *, old: bool = False) -> None:
        """More outcomes, in the order of time; the same one twice is one. `old`: they belong behind what is here, and
        are not counted."""
        rows: list[tuple[bytes, bytes]] = []
        counted = self._counted
        for kind, job, at_ms, duration_ms, status, error, reason, answer in outcomes:
            subscription = job.subscription.encode() + _SEP
            place = (_LATEST - at_ms).to_bytes(8, "big") + job.delivery_id[:6] + bytes((min(job.attempt, 255),))
            fields = (
                job.tenant,
                job.delivery_id,
                job.seq,
                job.series,
                job.attempt,
                kind.value,
                at_ms,
                duration_ms,
                status,
                error,
                str(reason),  # an enumeration, from a worker that settles
                job.not_before_ms,
                answer[:ANSWER_START_BYTES_MAX],
            )
            rows.append((subscription + place, marshal.dumps(fields, _FORMAT)))
            if old:
                continue
            seen = counted.get(job.subscription)
            if seen is None:
                seen = counted[job.subscription] = _Counted(place)
            seen.count += 1
            if seen.count >= KEPT:
                batch.delete_range("history", subscription + seen.mark, subscription[:-1] + _AFTER_SEP)
                seen.count, seen.mark = 0, place
        batch.put_many("history", rows)

    def newest(
        self, subscription: str, after: bytes, *, limit: int, since_ms: int = 0, seq: int | None = None
    ) -> tuple[list[Attempt], bool]:
        """Newest first, behind the cursor `after` (empty: from the newest); whether there is more. Not older than
        `since_ms`; of one event where `seq` is given."""
        head = subscription.encode() + _SEP
        start = head + (after + b"\0" if after else b"")
        end = head + (_LATEST - since_ms + 1).to_bytes(8, "big")
        rows = self.store.scan("history", start, end, (2 * KEPT if seq is not None else limit) + 1)
        with self.store.decoding("history"):
            found = [Attempt(key[len(head) :], *marshal.loads(value)) for key, value in rows]
        if seq is not None:
            found = [attempt for attempt in found if attempt.seq == seq]
        return found[:limit], len(found) > limit

    # -- how far it is whole -------------------------------------------------------------------------------------
    def position(self) -> int | None:
        """Everything of hub.attempts below this is in the table, as far as it was there; None: never said."""
        return self.store.number(_POSITION)

    def set_position(self, batch: Batch, offset: int) -> None:
        batch.put(OFFSETS, _POSITION, offset.to_bytes(8, "big"))


def is_place(data: bytes) -> bool:
    """Whether it can be a cursor."""
    return len(data) == _KEY_BYTES
