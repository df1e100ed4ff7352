"""What both senders share: bounds, the TLS context, the Host header, and the words of failures. One contract, two
adapters."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import Final

from hub_app.ports import Failure, Target

DETAIL_CHARS_MAX: Final = 300
RETRY_AFTER_CHARS_MAX: Final = 128
ADDRESSES_TRIED_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    """Bounds of a sender. How many requests are in flight is the caller's bound (DISPATCH_WORKERS); these bound what
    is kept between requests, and what one answer may take."""

    body_bytes_max: int = 64 * 1024
    """A longer body is cut here, and its connection closed."""
    head_bytes_max: int = 32 * 1024
    """Status line and headers of an answer, those of its 1xx included."""
    answer_bytes_max: int = 1024 * 1024
    """Everything read for one answer, framing and trailers included: a body in one-byte chunks takes six times its
    size."""
    idle_per_target_max: int = 64
    idle_max: int = 512
    idle_ms_max: int = 15_000
    """Most servers keep an idle connection for 5 to 75 s. One that they close first costs a retry, not a failure."""
    connection_age_ms_max: int = 300_000
    """So that a name which moves is followed, however busy the old connection is."""


def client_tls(cafile: str | None = None) -> ssl.SSLContext:
    """A verifying client context (TLS 1.2 or later, ALPN http/1.1), trusting the system's roots or only `cafile`."""
    context = ssl.create_default_context(cafile=cafile)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def host_header(target: Target) -> str:
    """The value of Host: the port only where it is not the scheme's own, IPv6 in brackets."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return host if target.port == (443 if target.scheme == "https" else 80) else f"{host}:{target.port}"


def dns_failure(exc: OSError) -> Failure:
    return Failure("dns", _cut(f"the name does not resolve: {exc.strerror or exc}"), False)


def blocked_failure(problem: str) -> Failure:
    return Failure("blocked_address", _cut(f"refused address {problem}"), False)


def connect_failure(exc: OSError, *, handshaking: bool) -> Failure:
    """No connection. What breaks while TLS is set up is `tls`, whatever the peer did to break it."""
    if isinstance(exc, ssl.SSLCertVerificationError):
        return Failure("tls", _cut(f"certificate refused: {exc.verify_message}"), False)
    if isinstance(exc, ssl.SSLError):
        return Failure("tls", _cut(f"no TLS connection: {exc.reason or exc}"), False)
    if handshaking:
        return Failure("tls", "the connection ended during the TLS handshake", False)
    # Not `strerror`: asyncio writes the address there, and leaves the reason out.
    return Failure("connect", _cut(f"no connection: {os.strerror(exc.errno) if exc.errno else exc}"), False)


def lost_failure(exc: BaseException | None, received: int) -> Failure:
    """The connection ended before the answer did."""
    when = "before an answer" if received == 0 else "in the middle of the answer"
    if isinstance(exc, ssl.SSLError):
        return Failure("tls", _cut(f"TLS failed {when}: {exc.reason or exc}"), True)
    return Failure("reset", f"the connection was {'reset' if exc else 'closed'} {when}", True)


def malformed_failure(why: object) -> Failure:
    return Failure("malformed", _cut(f"not an HTTP answer: {why}"), True)


def timeout_failure(waited_ms: int, *, sent: bool) -> Failure:
    return Failure("timeout", f"no {'answer' if sent else 'connection'} within {waited_ms} ms", sent)


def closed_failure() -> Failure:
    return Failure("connect", "this sender is closed", False)


def _cut(text: str) -> str:
    return text[:DETAIL_CHARS_MAX]
