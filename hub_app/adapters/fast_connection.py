"""One keep-alive HTTP/1.1 connection that carries one exchange at a time.

This is the hottest code of the hub, so it spends nothing per exchange but one future: the parser, the timer and the
containers live as long as the connection, and the parser's callbacks for headers and body are the containers' own
methods, which never enter the interpreter.
"""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hub_app.adapters.sender_common import (
    RETRY_AFTER_CHARS_MAX,
    SenderLimits,
    host_header,
    lost_failure,
    malformed_failure,
    timeout_failure,
)
from hub_app.ports import Answer, Failure, Target

if TYPE_CHECKING:
    Waiter = asyncio.Future["Answer | Failure | None"]


class Owner(Protocol):
    """Who keeps the connections."""

    def idle(self, connection: Connection, now: float) -> None:
        """It may carry another exchange."""

    def gone(self, connection: Connection) -> None:
        """It is closing; forget it. Told once or more."""


class Connection(asyncio.Protocol):
    """`exchange` gives a future of the Answer, of the Failure, or of None: a reused connection ended before any byte
    of an answer, which the caller may repeat on a new one.

    One timer, armed again only when it fires too early or would fire too late, serves all exchanges and the idle time
    between them: an answer within the deadline costs no timer at all.
    """

    __slots__ = (
        "_answer",
        "_answered",
        "_complete",
        "_deadline",
        "_head_done",
        "_headers",
        "_idle_s",
        "_keep",
        "_limits",
        "_loop",
        "_owner",
        "_parser",
        "_parts",
        "_received",
        "_surplus",
        "_timeout_ms",
        "_timer",
        "_timer_at",
        "_transport",
        "_waiter",
        "born",
        "host_line",
        "idle_since",
        "on_body",
        "on_header",
        "target",
    )

    def __init__(self, target: Target, owner: Owner, limits: SenderLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.target = target
        self.host_line = b" HTTP/1.1\r\nHost: %s\r\n" % host_header(target).encode("ascii")
        self.born = self.idle_since = monotonic()
        self._owner, self._limits, self._loop = owner, limits, loop
        self._idle_s = limits.idle_ms_max / 1000
        self._transport: Any = None
        self._waiter: Waiter | None = None
        self._deadline = 0.0
        self._timeout_ms = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf
        self._answered = 0
        self._answer: Answer | Failure | None = None
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        # Read once by the parser, as it is made.
        self.on_header = self._headers.__setitem__
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)
        self._received = 0
        self._head_done = self._complete = self._keep = self._surplus = False

    # -- what the sender asks ------------------------------------------------------------------------------------------

    def exchange(self, data: bytes, deadline: float, timeout_ms: int) -> Waiter:
        """Send a whole request; `deadline` on the clock of time.monotonic, `timeout_ms` for the words of a failure."""
        waiter = self._waiter = self._loop.create_future()
        if self._transport is None:
            self._settle(None if self._answered else lost_failure(None, 0))
            return waiter
        self._received = 0
        self._head_done = self._complete = False
        self._deadline = deadline
        self._timeout_ms = timeout_ms
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
        before = self._received
        self._received = before + len(data)
        try:
            if self._head_done or self._received <= self._limits.head_bytes_max:
                self._parser.feed_data(data)
            else:
                self._feed_long(data, self._limits.head_bytes_max - before)
        except (HttpParserError, HttpParserUpgrade) as exc:
            if not self._complete:
                self.fail(malformed_failure(_reason(exc)))
                return
            self._surplus = True
        if self._complete:
            self._finish()
        elif self._received > self._limits.body_bytes_max:
            self._check_size()

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

    # -- what the parser tells (on_header and on_body are methods of the containers) -----------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._surplus = True

    def on_headers_complete(self) -> None:
        self._head_done = True

    def on_message_complete(self) -> None:
        if self._complete:
            return
        if 100 <= self._parser.get_status_code() < 200:
            # 100, 102, 103: the answer is still to come. `_received` goes on, so that they too are bounded.
            self._head_done = False
            self._headers.clear()
            return
        # Taken here, for the same bytes may begin another message and overwrite it.
        self._complete = True
        self._answer = self._take_answer()
        self._keep = self._parser.should_keep_alive()

    # -- the end of an exchange ----------------------------------------------------------------------------------------

    def _feed_long(self, data: bytes, head_left: int) -> None:
        """Feed what passes the bound of the head, in two: the head must be over by the bound."""
        view = memoryview(data)
        self._parser.feed_data(view[:head_left])
        if not self._head_done:
            raise HttpParserError(f"headers of more than {self._limits.head_bytes_max} bytes")
        self._parser.feed_data(view[head_left:])

    def _check_size(self) -> None:
        body = b"".join(self._parts)
        self._parts[:] = (body,)
        if len(body) > self._limits.body_bytes_max:
            self._settle(self._take_answer())
            self.abort()
        elif self._received > self._limits.answer_bytes_max:
            self.fail(malformed_failure(f"more than {self._limits.answer_bytes_max} bytes around a short body"))

    def _finish(self) -> None:
        """The answer is complete, or long enough."""
        answer = self._answer
        if self._surplus or not self._keep or not self._is_quiet():
            self._settle(answer)
            self.abort()
        else:
            self._answered += 1
            self._headers.clear()
            self._parts.clear()
            self._settle(answer)
            now = self.idle_since = monotonic()
            if now + self._idle_s < self._timer_at:
                self._arm(now + self._idle_s)
            self._owner.idle(self, now)

    def _is_quiet(self) -> bool:
        """Whether nothing of this exchange is left behind: unsent bytes mean that the sink answered early, and what it
        makes of the rest is unknown; a waiter that is done means a caller that was cancelled and is about to say so."""
        waiter = self._waiter
        return waiter is not None and not waiter.done() and self._transport.get_write_buffer_size() == 0

    def _take_answer(self) -> Answer | Failure:
        status = self._parser.get_status_code()
        if status < 200:
            return malformed_failure(f"status {status}")
        body = b"".join(self._parts)
        limit = self._limits.body_bytes_max
        retry_after = None if status < 300 else self._header(b"retry-after")
        return Answer(status, retry_after and retry_after[:RETRY_AFTER_CHARS_MAX], body[:limit], len(body) > limit)

    def _header(self, name: bytes) -> str | None:
        for key, value in self._headers.items():
            if key.lower() == name:
                return value.decode("latin-1")
        return None

    def _ended(self, exc: Exception | None) -> None:
        """No more bytes will come."""
        if self._waiter is not None:
            until_eof = (
                exc is None
                and self._head_done
                and self._header(b"content-length") is None
                and self._header(b"transfer-encoding") is None
            )
            if until_eof:
                self._settle(self._take_answer())
            elif self._received == 0 and self._answered:
                self._settle(None)
            else:
                self._settle(lost_failure(exc, self._received))
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
        due = self._deadline if self._waiter is not None else self.idle_since + self._idle_s
        if monotonic() < due:
            self._arm(due)
        elif self._waiter is not None:
            self.fail(timeout_failure(self._timeout_ms, sent=True))
        else:
            self.abort()


def _reason(exc: Exception) -> str:
    return "it switches protocols" if isinstance(exc, HttpParserUpgrade) else str(exc)
