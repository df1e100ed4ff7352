"""Reading one answer after another off a connection, with httptools.

The parser and its containers live as long as the connection, and the parser's callbacks for headers and body are the
containers' own methods, which never enter the interpreter.
"""

from __future__ import annotations

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from hub_app.adapters.sender_common import SenderLimits, malformed_failure
from hub_app.domain.limits import RETRY_AFTER_CHARS_MAX
from hub_app.ports import Answer, Failure


class AnswerReader:
    """Base of a connection. `begin` before each request; then `feed` what comes; `answer` is there once `complete`.

    `spoiled` tells that this connection must not carry another request: it closes, it said more than it was asked, or
    not all of what it says was read.
    """

    __slots__ = ("_headers", "_limits", "_parser", "_parts", "answer", "complete", "head_done", "on_body", "on_header",
                 "received", "spoiled")  # fmt: skip

    def __init__(self, limits: SenderLimits) -> None:
        self._limits = limits
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self.answer: Answer | Failure | None = None
        self.received = 0  # Bytes since the request, whatever they were.
        self.head_done = self.complete = self.spoiled = False
        # The parser looks its callbacks up once, as it is made.
        self.on_header = self._headers.__setitem__
        self.on_body = self._parts.append
        self._parser = HttpResponseParser(self)

    def begin(self) -> None:
        """A new request is about to be sent."""
        self.received = 0
        self.head_done = self.complete = False

    def feed(self, data: bytes) -> Failure | None:
        """Take bytes of an answer; a failure if they cannot be one, or pass a bound."""
        before = self.received
        self.received = before + len(data)
        limits = self._limits
        try:
            if self.head_done or self.received <= limits.head_bytes_max:
                self._parser.feed_data(data)
            else:
                self._feed_long(data, limits.head_bytes_max - before)
        except (HttpParserError, HttpParserUpgrade) as exc:
            self.spoiled = True
            # An answer that was whole before the nonsense began is one.
            if self.complete:
                return None
            return malformed_failure("it switches protocols" if isinstance(exc, HttpParserUpgrade) else exc)
        if self.received > limits.body_bytes_max and not self.complete:
            return self._check_size()
        return None

    def end(self) -> bool:
        """No more will come, in an orderly way: whether that was the end of the answer."""
        if self.head_done and self._header(b"content-length") is None and self._header(b"transfer-encoding") is None:
            self._complete()
        return self.complete

    def _feed_long(self, data: bytes, head_left: int) -> None:
        """Feed what passes the bound of the head, in two: the head must be over by the bound."""
        view = memoryview(data)
        self._parser.feed_data(view[:head_left])
        if not self.head_done:
            raise HttpParserError(f"headers of more than {self._limits.head_bytes_max} bytes")
        self._parser.feed_data(view[head_left:])

    def _check_size(self) -> Failure | None:
        body = b"".join(self._parts)
        self._parts[:] = (body,)
        if len(body) > self._limits.body_bytes_max:
            self._complete()
        elif self.received > self._limits.answer_bytes_max:
            return malformed_failure(f"more than {self._limits.answer_bytes_max} bytes around a short body")
        return None

    def _complete(self) -> None:
        """Make the answer, at once: the same bytes may begin another message, and overwrite what it is made of."""
        self.complete = True
        status = self._parser.get_status_code()
        body = b"".join(self._parts)
        truncated = len(body) > self._limits.body_bytes_max
        if truncated:
            body = body[: self._limits.body_bytes_max]
        if truncated or not self._parser.should_keep_alive():
            self.spoiled = True
        retry_after = None if status < 300 else self._header(b"retry-after")
        self.answer = Answer(status, retry_after, body, truncated)
        self._headers.clear()
        self._parts.clear()

    def _header(self, name: bytes) -> str | None:
        for key, value in self._headers.items():
            if key.lower() == name:
                return value[:RETRY_AFTER_CHARS_MAX].decode("latin-1")
        return None

    # -- what the parser tells (on_header and on_body are methods of the containers) -----------------------------------

    def on_message_begin(self) -> None:
        if self.complete:
            self.spoiled = True

    def on_headers_complete(self) -> None:
        self.head_done = True

    def on_message_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        if status >= 200:
            self._complete()
        elif status >= 100:
            # 100, 102, 103: the answer is still to come. `received` goes on, so that they too are bounded.
            self.head_done = False
            self._headers.clear()
        else:
            self.complete = self.spoiled = True
            self.answer = malformed_failure(f"status {status}")
