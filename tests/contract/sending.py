"""Words shared by the senders' contract tests."""

from __future__ import annotations

from hub_app.ports import Answer, Failure, Request, Sender, Target
from tests.contract.hostile import Hostile

HEAD = b"User-Agent: streaming-hub/test\r\nContent-Type: application/json\r\nX-Env: a b\r\n"
TIMEOUT_MS = 1000


def post(
    server: Hostile, body: bytes = b"{}", *, path: bytes = b"/in", host: str = "127.0.0.1", scheme: str = "http"
) -> Request:
    return Request(Target(scheme, host, server.port), b"POST", path, HEAD, body)


async def send(
    sender: Sender, request: Request, *, timeout_ms: int = TIMEOUT_MS, connect_timeout_ms: int = TIMEOUT_MS
) -> Answer | Failure:
    return await sender.send(request, connect_timeout_ms=connect_timeout_ms, timeout_ms=timeout_ms)


def kind(outcome: Answer | Failure) -> tuple[str, bool]:
    """Kind of a failure, and whether the sink may have seen the request."""
    assert isinstance(outcome, Failure), outcome
    assert outcome.detail
    return outcome.kind, outcome.sent


def status(outcome: Answer | Failure) -> int:
    assert isinstance(outcome, Answer), outcome
    return outcome.status
