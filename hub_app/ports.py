"""What the rooms above need from the outside world, as protocols. Every port has a real adapter and a fake, and both
pass one contract suite (tests/contract)."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Clock(Protocol):
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch, UTC. May step; never use it to measure a duration."""

    def monotonic_ms(self) -> int:
        """Milliseconds that only grow; for durations, deadlines inside this process, and the lease."""


class Entropy(Protocol):
    def draw(self) -> float:
        """Uniform in [0, 1)."""

    def token(self, size: int) -> bytes:
        """`size` unpredictable bytes."""


class Target(NamedTuple):
    """Where a request goes. `host` is the name used for Host, SNI and certificate checks; `port` is explicit."""

    scheme: str
    host: str
    port: int


class Request(NamedTuple):
    """One HTTP request, already encoded: `head` is every header line after the request line but for Host and
    Content-Length (each ended by CRLF), so that the static part can be prepared once per subscription."""

    target: Target
    method: bytes
    path: bytes
    head: bytes
    body: bytes


class Answer(NamedTuple):
    """A complete answer: final status (never 1xx), the headers the hub reads, and at most `body_bytes_max` of body."""

    status: int
    retry_after: str | None
    body: bytes
    truncated: bool


class Failure(NamedTuple):
    """No answer. `kind` is one of: dns, blocked_address, connect, tls, timeout, reset, malformed.
    `detail` is for people (no credentials, no query string). `sent`: the sink may have seen the request."""

    kind: str
    detail: str
    sent: bool


class Sender(Protocol):
    """Makes exactly one attempt. Never raises for anything a peer or a network can do; follows no redirect."""

    async def send(self, request: Request, *, connect_timeout_ms: int, timeout_ms: int) -> Answer | Failure: ...

    async def close(self) -> None: ...


class Resolver(Protocol):
    async def resolve(self, host: str) -> tuple[str, ...]:
        """Every address of `host` as literal IPv4/IPv6 text; raises OSError when the name does not resolve."""


class SecretUnavailable(Exception):
    """A stored secret cannot be opened (no key for it, damaged). Our fault, never the sink's: nothing is charged."""


class Keyring(Protocol):
    """Envelope encryption: a random data key per secret, AES-256-GCM, wrapped by the key-encryption key."""

    def seal(self, plaintext: bytes, *, context: str) -> str:
        """`context` (tenant, subscription and field) is authenticated. Raises SecretUnavailable without a key."""

    def open(self, sealed: str, *, context: str) -> bytes:
        """Raises SecretUnavailable when no named key opens it."""
