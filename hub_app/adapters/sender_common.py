"""What both senders share: bounds, the TLS context, the Host header, and the words of failures. One contract, two
adapters."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

from hub_app.domain import limits
from hub_app.ports import Failure, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderLimits:
    """Bounds of a sender. How many requests are in flight is the caller's bound (DISPATCH_WORKERS); these bound what
    is kept between requests, and what one answer may take."""

    body_bytes_max: int = limits.ANSWER_BODY_BYTES_MAX
    head_bytes_max: int = limits.ANSWER_HEAD_BYTES_MAX
    answer_bytes_max: int = limits.ANSWER_BYTES_MAX
    idle_per_target_max: int = limits.CONNECTIONS_IDLE_PER_TARGET_MAX
    idle_max: int = limits.CONNECTIONS_IDLE_MAX
    idle_ms_max: int = limits.CONNECTION_IDLE_MS_MAX
    connection_age_ms_max: int = limits.CONNECTION_AGE_MS_MAX


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
    return text[: limits.FAILURE_CHARS_MAX]
