"""One keep-alive HTTP/1.1 connection that carries one exchange at a time.

This is the hottest code of the hub, so an exchange on a kept connection costs one future, and no task and no timer.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from hub_app.adapters.fast_answer import AnswerReader
from hub_app.adapters.sender_common import SenderLimits, host_header, lost_failure, timeout_failure
from hub_app.ports import Answer, Failure, Target

if TYPE_CHECKING:
    Waiter = asyncio.Future["Answer | Failure | None"]


class Owner(Protocol):
    """Who keeps the connections."""

    def idle(self, connection: Connection, now: float) -> None:
        """It may carry another exchange."""

    def gone(self, connection: Connection) -> None:
        """It is closing; forget it. Told once or more."""


class Connection(AnswerReader, asyncio.Protocol):
    """`exchange` gives a future of the Answer, of the Failure, or of None: a reused connection ended before any byte
    of an answer, which the caller may repeat on a new one.

    One timer, armed again only when it fires too early or would fire too late, serves all exchanges and the idle time
    between them: an answer within the deadline costs no timer at all.
    """

    __slots__ = ("_answered", "_deadline", "_idle_s", "_idle_since", "_loop", "_owner", "_timeout_ms", "_timer",
                 "_timer_at", "_transport", "_waiter", "born", "host_line", "target")  # fmt: skip

    def __init__(self, target: Target, owner: Owner, limits: SenderLimits, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limits)
        self.target = target
        self.host_line = b" HTTP/1.1\r\nHost: %s\r\n" % host_header(target).encode("ascii")
        self.born = self._idle_since = monotonic()
        self._owner, self._loop = owner, loop
        self._idle_s = limits.idle_ms_max / 1000
        self._transport: Any = None
        self._waiter: Waiter | None = None
        self._deadline, self._timeout_ms = 0.0, 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._answered = False

    # -- what the sender asks ------------------------------------------------------------------------------------------

    def exchange(self, data: bytes, deadline: float, timeout_ms: int) -> Waiter:
        """Send a whole request; `deadline` on the clock of time.monotonic, `timeout_ms` for the words of a failure."""
        waiter = self._waiter = self._loop.create_future()
        if self._transport is None:
            self._settle(None if self._answered else lost_failure(None, 0))
            return waiter
        self.begin()
        self._deadline, self._timeout_ms = deadline, timeout_ms
        if deadline < self._timer_at:
            self._arm(deadline)
        self._transport.write(data)
        return waiter

    def abandon(self, waiter: Waiter) -> None:
        """The caller of this exchange is gone. If it is over, the connection may serve another one already."""
        if self._waiter is waiter:
            self.abort()

    def abort(self) -> None:
        """Close at once; an exchange in hand gets no result from here."""
        self._waiter = None
        self._owner.gone(self)
        if self._transport is not None:
            self._transport.abort()

    def fail(self, failure: Failure) -> None:
        """Close at once; an exchange in hand ends so."""
        self._settle(failure)
        self.abort()

    # -- what the transport tells --------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._waiter is None:
            # Nobody asked. Whatever this is, it must not become the answer to the next request.
            self.abort()
            return
        failure = self.feed(data)
        if failure is not None:
            self.fail(failure)
        elif self.complete:
            self._finish(self._waiter)

    def eof_received(self) -> bool:
        # A sink that has shut its side will not answer any more, whether or not it still reads.
        self._ended(None)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended(exc)

    # -- the end of an exchange ----------------------------------------------------------------------------------------

    def _finish(self, waiter: Waiter) -> None:
        """The answer is there. The connection is kept if nothing of the exchange is left behind: unsent bytes mean that
        the sink answered early, and what it makes of the rest is unknown; a waiter that is done means a caller that was
        cancelled and is about to say so."""
        keep = not self.spoiled and not waiter.done() and self._transport.get_write_buffer_size() == 0
        self._settle(self.answer)
        if not keep:
            self.abort()
            return
        self._answered = True
        now = self._idle_since = monotonic()
        if now + self._idle_s < self._timer_at:
            self._arm(now + self._idle_s)
        self._owner.idle(self, now)

    def _ended(self, exc: Exception | None) -> None:
        """No more bytes will come."""
        if self._waiter is not None:
            if exc is None and self.end():
                self._settle(self.answer)
            elif self.received == 0 and self._answered:
                self._settle(None)
            else:
                self._settle(lost_failure(exc, self.received))
        self.abort()

    def _settle(self, outcome: Answer | Failure | None) -> None:
        waiter, self._waiter = self._waiter, None
        # Done already: the caller was cancelled, and nobody waits.
        if waiter is not None and not waiter.done():
            waiter.set_result(outcome)

    # -- time ----------------------------------------------------------------------------------------------------------

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_later(max(0.0, at - monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_at = None, inf
        due = self._deadline if self._waiter is not None else self._idle_since + self._idle_s
        if monotonic() < due:
            self._arm(due)
        elif self._waiter is not None:
            self.fail(timeout_failure(self._timeout_ms, sent=True))
        else:
            self.abort()
