"""What one attempt came to. Plain arguments, so that the ground knows nothing of the ports above it."""

from __future__ import annotations

from typing import Final

from hub_app.domain.delivery import Result, ResultKind

FAILURE_KINDS: Final = frozenset({"dns", "blocked_address", "connect", "tls", "timeout", "reset", "malformed"})
"""Every kind of `hub_app.ports.Failure`; all of them are the sink's or the network's, charged, and retried."""

OURS: Final = frozenset({"secret_unavailable", "proxy", "internal"})
"""Why we could not even try: not charged."""

TOO_LARGE: Final = "payload_too_large"


def answered(status: int, retry_after: str | None = None) -> Result:
    """A complete answer with a final status. Every 2xx delivers; all else, 3xx included, failed."""
    if 200 <= status <= 299:
        return Result(ResultKind.DELIVERED, status)
    return Result(ResultKind.FAILED, status, f"http_{status}", "", retry_after)


def unanswered(kind: str, detail: str = "") -> Result:
    """No answer, by failure kind. An unknown kind is charged like any other failure."""
    if kind in OURS:
        return Result(ResultKind.NOT_CHARGED, None, kind, detail)
    return Result(ResultKind.FAILED, None, kind, detail)


def too_large(detail: str = "") -> Result:
    """The sink can never carry it."""
    return Result(ResultKind.TOO_LARGE, None, TOO_LARGE, detail)


def not_tried(error: str, detail: str = "") -> Result:
    """Our own fault: no attempt is spent."""
    return Result(ResultKind.NOT_CHARGED, None, error, detail)
