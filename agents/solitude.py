"""A job that was interrupted twice runs alone in its worker, so that bystanders of a killer are not buried with it
(docs/protocol.md, "Crash"): what is in flight ends first, and nothing else begins until it has ended.
"""

from __future__ import annotations

from typing import NamedTuple

from agents.dispatch_shard import DispatchShard
from hub_app.domain.subscription import Subscription
from tables.jobs import Row


class Turn(NamedTuple):
    shard: DispatchShard
    row: Row
    subscription: Subscription


class Solitude:
    def __init__(self) -> None:
        self._waiting: Turn | None = None
        self._running: Row | None = None

    @property
    def busy(self) -> bool:
        """Whether a job waits to be alone, or is: nothing else may be claimed."""
        return self._waiting is not None or self._running is not None

    def ask(self, turn: Turn) -> None:
        """A picked job is to run alone, as soon as it can."""
        self._waiting = turn

    def begin(self, in_flight: int) -> Turn | None:
        """The job that may begin now, if any."""
        turn = self._waiting
        if turn is None or in_flight:
            return None
        self._waiting, self._running = None, turn.row
        return turn

    def ended(self, row: Row) -> None:
        if self._running is row:
            self._running = None

    def give_up(self, shard: DispatchShard) -> Row | None:
        """The shard is about to go: a job of it that waits has not begun."""
        turn = self._waiting
        if turn is None or turn.shard is not shard:
            return None
        self._waiting = None
        return turn.row
