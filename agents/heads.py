"""The heads: of each destination's jobs the first few by due time, in memory, offered to the scheduler.

The rest lies in the shard's table, so memory does not grow with a backlog. Invariant, per destination: while `more` is
set, every row in memory is due no later than `horizon_ms`, every row left in the table no earlier. New rows land on the
side they belong to. `more` may be set with nothing left behind (a refill finds out), never the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from agents.dispatch_shard import DispatchShard, Place
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fairness import Scheduler
from tables.jobs import Payload, Row

HEAD_ROWS = 64
LOW_ROWS = 16
PAYLOADS_BYTES_MAX = 16 << 20
"""Payloads kept with the heads, so that a job that is soon claimed is not read again."""
_OVERHEAD_BYTES = 2_048  # headers, and what Python adds


class Waiting:
    """One destination of an open shard."""

    __slots__ = ("horizon_ms", "latest_ms", "more", "rows")

    def __init__(self, *, more: bool = False) -> None:
        self.rows: dict[Row, None] = {}  # offered; a dict, since a set's order differs from run to run
        self.more = more  # the table may hold rows that are not in memory
        self.horizon_ms = 0
        self.latest_ms = 0  # an upper bound of what is offered


class Heads:
    def __init__(
        self,
        scheduler: Scheduler[Row],
        *,
        store_failed: Callable[[DispatchShard, StoreFailed], None],
        head_rows: int = HEAD_ROWS,
        low_rows: int = LOW_ROWS,
    ) -> None:
        """`head_rows`: how many of a destination's rows a refill brings; below `low_rows` it is refilled. A table that
        cannot be read is `store_failed`'s, which suspends the shard; nothing here raises for it."""
        self.scheduler, self._store_failed = scheduler, store_failed
        self._head_rows, self._low_rows = head_rows, low_rows
        self.on_place: Callable[[Place], None] = lambda place: None
        """Called with a place before its first row is offered."""
        self.shards: dict[int, DispatchShard] = {}
        self._waiting: dict[int, dict[Place, Waiting]] = {}
        self._payload_bytes = 0

    # -- shards come and go --------------------------------------------------------------------------------------------
    def open(self, shard: DispatchShard, stored: Iterable[Place]) -> None:
        """`stored`: where the table holds rows. Nothing is offered before `resume`."""
        self.shards[shard.number] = shard
        self._waiting[shard.number] = {place: Waiting(more=True) for place in stored}

    def close(self, shard: DispatchShard) -> None:
        self.suspend(shard)
        self.shards.pop(shard.number, None)
        self._waiting.pop(shard.number, None)

    def suspend(self, shard: DispatchShard) -> None:
        """Takes every row back from the scheduler; attempts in hand go on."""
        shard.suspended = True
        for row in list(shard.offered.values()):
            self._take_back(shard, row)
        for waiting in self._waiting.get(shard.number, {}).values():
            waiting.horizon_ms = 0

    def resume(self, shard: DispatchShard) -> None:
        shard.suspended = False
        for place in list(self._waiting[shard.number]):
            self._refill(shard, place)

    # -- rows come and go ----------------------------------------------------------------------------------------------
    def accept(self, shard: DispatchShard, row: Row) -> None:
        """Puts a waiting row, already in the table, into the order."""
        key = row.job.delivery_id
        if key in shard.offered or key in shard.in_hand:
            return  # a refill found it in the table before this call came
        if key in shard.foreign:
            shard.held[key] = row
            return
        place = (row.job.tenant, row.job.destination)
        places = self._waiting[shard.number]
        waiting = places.get(place)
        if waiting is None:
            waiting = places[place] = Waiting()
            self.on_place(place)
        if shard.suspended:
            waiting.more, waiting.horizon_ms = True, 0
        elif waiting.more:
            if row.due_ms < waiting.horizon_ms:
                self._offer(shard, waiting, row)
        elif len(waiting.rows) >= self._head_rows and row.due_ms >= waiting.latest_ms:
            waiting.more, waiting.horizon_ms = True, row.due_ms
        else:
            self._offer(shard, waiting, row)
        if len(waiting.rows) > 2 * self._head_rows:
            self._shed(shard, waiting)
        elif waiting.more and len(waiting.rows) < self._low_rows:
            self._refill(shard, place)

    def withdraw(self, shard: DispatchShard, row: Row) -> None:
        """The row no longer stands for anything (its table rows are gone or replaced already)."""
        shard.held.pop(row.job.delivery_id, None)
        self._give_up(shard, row.job.delivery_id)

    def hold(self, shard: DispatchShard, delivery_id: bytes) -> None:
        """Somebody else was found to have the job in hand: it waits for what comes of that."""
        row = self._give_up(shard, delivery_id)
        if row is not None:
            shard.held[delivery_id] = row

    def take(self, shard: DispatchShard, row: Row) -> Row | None:
        """Takes a waiting row of the table in hand, to end or move it without an attempt. None when somebody has it in
        hand already."""
        key = row.job.delivery_id
        if key in shard.in_hand or key in shard.foreign:
            return None
        offered = shard.offered.get(key)
        shard.in_hand[key] = offered or row
        if offered is not None:
            self._give_up(shard, key)
        return offered or row

    def let_pass(self, shard: DispatchShard, row: Row) -> Row:
        """Offers a waiting row of the table that nobody has in hand, whatever blocks its destination: its last attempt.
        One at a time. Returns the row that is offered."""
        offered = shard.offered.get(row.job.delivery_id)
        if offered is not None:
            self._take_out(shard, offered)
        waiting = self._waiting[shard.number].setdefault((row.job.tenant, row.job.destination), Waiting(more=True))
        self._offer(shard, waiting, offered or row, passes=True)
        return offered or row

    def look_again(self, shard: DispatchShard, place: Place) -> None:
        """Rows of the place were given other due times, in the table alone."""
        waiting = self._waiting[shard.number].setdefault(place, Waiting(more=True))
        for row in list(waiting.rows):
            self._take_back(shard, row)
        waiting.more, waiting.horizon_ms = True, 0
        self._refill(shard, place)

    def pick(self, now_ms: int, monotonic_ms: int) -> Row | None:
        """The next row to attempt. It is in hand until it is settled (`DispatchShard.settle`, `let_go`)."""
        row = self.scheduler.pick(now_ms, monotonic_ms)
        if row is None:
            return None
        shard, place = self.shards[row.shard], (row.job.tenant, row.job.destination)
        waiting = self._waiting[row.shard][place]
        waiting.rows.pop(row, None)
        self._unload(row)
        del shard.offered[row.job.delivery_id]
        shard.in_hand[row.job.delivery_id] = row  # before the refill, which would find it in the table
        if waiting.more and len(waiting.rows) < self._low_rows:
            self._refill(shard, place)
        if not waiting.rows and not waiting.more:
            del self._waiting[row.shard][place]
        return row

    # -- inside --------------------------------------------------------------------------------------------------------
    def _offer(self, shard: DispatchShard, waiting: Waiting, row: Row, *, passes: bool = False) -> None:
        waiting.latest_ms = max(waiting.latest_ms, row.due_ms) if waiting.rows else row.due_ms
        waiting.rows[row] = None
        self._load(row)
        shard.offered[row.job.delivery_id] = row
        self.scheduler.offer(row.job.tenant, row.job.destination, row.due_ms, row, passes=passes)

    def _give_up(self, shard: DispatchShard, delivery_id: bytes) -> Row | None:
        row = shard.offered.get(delivery_id)
        if row is not None:
            waiting = self._take_out(shard, row)
            if len(waiting.rows) < self._low_rows:
                self._refill(shard, (row.job.tenant, row.job.destination))
        return row

    def _take_out(self, shard: DispatchShard, row: Row) -> Waiting:
        self._unload(row)
        del shard.offered[row.job.delivery_id]
        self.scheduler.remove(row)
        waiting = self._waiting[shard.number][row.job.tenant, row.job.destination]
        waiting.rows.pop(row, None)
        return waiting

    def _take_back(self, shard: DispatchShard, row: Row) -> None:
        """From memory to the table alone."""
        waiting = self._take_out(shard, row)
        waiting.horizon_ms = min(waiting.horizon_ms, row.due_ms) if waiting.more else row.due_ms
        waiting.more = True

    def _load(self, row: Row) -> None:
        size = _bytes_of(row.payload)
        if self._payload_bytes + size > PAYLOADS_BYTES_MAX:
            row.payload = None
        else:
            self._payload_bytes += size

    def _unload(self, row: Row) -> None:
        self._payload_bytes -= _bytes_of(row.payload)

    def _shed(self, shard: DispatchShard, waiting: Waiting) -> None:
        """Too many came in before the horizon: the latest of them go back to the table."""
        rows = sorted(waiting.rows, key=lambda row: row.due_ms)
        for row in rows[self._head_rows :]:
            self._take_back(shard, row)
        waiting.latest_ms = rows[self._head_rows - 1].due_ms

    def _refill(self, shard: DispatchShard, place: Place) -> None:
        waiting = self._waiting[shard.number][place]
        if not waiting.more or shard.suspended or shard.closed:
            return
        try:
            offered = self._look_behind(shard, place, waiting)
        except StoreFailed as error:
            self._store_failed(shard, error)
            return
        for row in offered:
            self._offer(shard, waiting, row)

    def _look_behind(self, shard: DispatchShard, place: Place, waiting: Waiting) -> list[Row]:
        """What is next in the table; moves the horizon."""
        # The table also holds rows that are offered, in hand, held, or to be held: they are passed over.
        passed = len(waiting.rows) + len(shard.in_hand) + len(shard.held) + len(shard.foreign)
        limit = self._head_rows + passed
        found = shard.table.earliest(*place, from_ms=waiting.horizon_ms, limit=limit)
        offered: list[Row] = []
        for key, due_ms, value in found:
            if len(waiting.rows) + len(offered) >= self._head_rows:
                waiting.horizon_ms = due_ms  # this one stays behind, and what follows it
                break
            if key in shard.foreign:
                if key not in shard.held:
                    shard.held[key] = shard.table.row(key, value)
            elif key not in shard.offered and key not in shard.in_hand and key not in shard.held:
                offered.append(shard.table.row(key, value))
            waiting.horizon_ms = due_ms
        else:
            waiting.more = len(found) == limit
        return offered


def _bytes_of(payload: Payload | bytes | None) -> int:
    """What it takes in memory, about: packed it is bytes, else Python adds to each header."""
    if payload is None:
        return 0
    return len(payload[1]) + _OVERHEAD_BYTES if isinstance(payload, tuple) else len(payload)
