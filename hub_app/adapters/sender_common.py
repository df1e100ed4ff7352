"""What both senders share: their options, the TLS context, and the failures' words (one contract, two adapters)."""

from __future__ import annotations

import ssl
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    """Bounds of a sender. The number of requests in flight is the caller's bound (DISPATCH_WORKERS); these bound what
    stays between requests, and what one answer may take."""

    body_bytes_max: int = 64 * 1024
    head_bytes_max: int = 32 * 1024
    answer_bytes_max: int = 1024 * 1024
    idle_per_target_max: int = 64
    idle_max: int = 512
    idle_ms_max: int = 15_000
    connection_age_ms_max: int = 300_000


def client_tls(cafile: str | None = None) -> ssl.SSLContext:
    """A verifying client context (TLS 1.2 or later, ALPN http/1.1), trusting the system's roots or only `cafile`."""
    raise NotImplementedError
