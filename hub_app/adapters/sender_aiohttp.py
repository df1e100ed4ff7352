"""The second sender, on aiohttp's client: same port, same contract suite, several times the CPU.

Where it differs from the fast one, because aiohttp does not let it do otherwise:

| what | fast | aiohttp |
|---|---|---|
| bound of an answer's head | 32 KiB in all, its 1xx included | 32 KiB a line, 512 headers; 1xx only by the deadline |
| a kept connection closed after a 1xx, or reset inside the head | failed | repeated once, as if unanswered |
| the repeat | the same request | with `Connection: close`, and its connection is not kept |
| header lines of the request | bytes as given | must be UTF-8 |
| a body cut at the bound, that had arrived whole | connection closed | kept |
| garbage in one packet with a whole answer | the answer stands | malformed |
| idle connections | bounded per target and in all | bounded by their time alone |
"""

from __future__ import annotations

import asyncio
import io
import ssl
from typing import Any, Final

import aiohttp
from aiohttp import hdrs
from multidict import CIMultiDict
from yarl import URL

from hub_app.adapters.aiohttp_connector import PROGRESS, Blocked, CheckedResolver, Progress, ProgressConnector
from hub_app.adapters.sender_common import (
    SenderLimits,
    blocked_failure,
    client_tls,
    closed_failure,
    connect_failure,
    dns_failure,
    host_header,
    lost_failure,
    malformed_failure,
    timeout_failure,
)
from hub_app.domain.egress import EgressPolicy, address_problem
from hub_app.domain.limits import RETRY_AFTER_CHARS_MAX
from hub_app.ports import Answer, Failure, Request, Resolver

HEADERS_MAX: Final = 512
RAW_BODY_BYTES_MAX: Final = 1 << 20
"""aiohttp warns of longer ones: it would copy them in one piece."""


class AiohttpSender:
    """`hub_app.ports.Sender`, of one event loop; `close()` ends its connections."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        policy: EgressPolicy,
        tls: ssl.SSLContext | None = None,
        limits: SenderLimits | None = None,
    ) -> None:
        self._policy = policy
        self._limits = limits or SenderLimits()
        self._resolver = CheckedResolver(resolver, policy)
        self._tls = tls or client_tls()
        # aiohttp repeats no POST by itself, and gives a new connection for certain only by a connector that keeps none:
        # so there is a session that keeps connections, and one for repeats. They want a running loop to be made in.
        self._sessions: tuple[aiohttp.ClientSession, aiohttp.ClientSession] | None = None
        self._closed = False

    def _session(self, **pooling: Any) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=ProgressConnector(
                resolver=self._resolver, use_dns_cache=False, ssl=self._tls, limit=0, **pooling
            ),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=(hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE, hdrs.USER_AGENT),
            max_line_size=self._limits.head_bytes_max,
            max_field_size=self._limits.head_bytes_max,
            max_headers=HEADERS_MAX,
        )

    async def send(self, request: Request, *, connect_timeout_ms: int, timeout_ms: int) -> Answer | Failure:
        """One attempt, as `hub_app.ports.Sender` says; a kept connection that ended unanswered is replaced once."""
        if self._closed:
            return closed_failure()
        if self._sessions is None:
            keepalive = self._session(keepalive_timeout=self._limits.idle_ms_max / 1000)
            self._sessions = keepalive, self._session(force_close=True)
        kept, fresh = self._sessions
        # aiohttp asks no resolver about a literal address.
        literal = request.target.host if _is_literal(request.target.host) else None
        problem = address_problem(literal, self._policy) if literal is not None else None
        if problem is not None:
            return blocked_failure(f"{literal}: {problem}")
        progress = Progress()
        token = PROGRESS.set(progress)
        repeats = False
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                try:
                    return await self._once(kept, request, connect_timeout_ms)
                except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as exc:
                    if not (progress.reused and _is_unanswered(exc)):
                        raise
                repeats = True
                return await self._once(fresh, request, connect_timeout_ms)
        except aiohttp.ConnectionTimeoutError:
            return timeout_failure(min(connect_timeout_ms, timeout_ms), sent=repeats)
        except TimeoutError:
            return timeout_failure(timeout_ms, sent=progress.sent)
        except aiohttp.ClientError as exc:
            failure = _failure(exc, request.target.scheme == "https")
            return failure._replace(sent=failure.sent or repeats)
        finally:
            PROGRESS.reset(token)

    async def close(self) -> None:
        self._closed = True
        for session in self._sessions or ():
            await session.close()

    async def _once(
        self, session: aiohttp.ClientSession, request: Request, connect_timeout_ms: int
    ) -> Answer | Failure:
        target, method, path, head, body = request
        url = URL(f"{target.scheme}://{host_header(target)}{path.decode('ascii')}", encoded=True)
        async with session.request(
            method.decode("ascii"),
            url,
            data=body if len(body) <= RAW_BODY_BYTES_MAX else io.BytesIO(body),
            headers=_headers(head, len(body)),
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_timeout_ms / 1000, ceil_threshold=1e9),
        ) as response:
            if response.status < 200:
                response.close()
                return malformed_failure(f"status {response.status}")
            return await self._read(response)

    async def _read(self, response: aiohttp.ClientResponse) -> Answer:
        body = bytearray()
        while chunk := await response.content.readany():
            body += chunk
            if len(body) > self._limits.body_bytes_max:
                response.close()
                break
        kept = bytes(body[: self._limits.body_bytes_max])
        retry_after = None if response.status < 300 else response.headers.get(hdrs.RETRY_AFTER)
        return Answer(response.status, retry_after and retry_after[:RETRY_AFTER_CHARS_MAX], kept, len(body) > len(kept))


def _is_literal(host: str) -> bool:
    """Whether aiohttp takes it for an address (its own rule, so that nothing falls between the two)."""
    return ":" in host or host.replace(".", "").isdigit()


def _headers(head: bytes, body_bytes: int) -> CIMultiDict[str]:
    headers: CIMultiDict[str] = CIMultiDict()
    for line in head.decode().split("\r\n"):
        if line:
            name, _, value = line.partition(":")
            headers.add(name, value.strip(" "))
    headers[hdrs.CONTENT_LENGTH] = str(body_bytes)
    return headers


def _is_unanswered(exc: aiohttp.ClientError) -> bool:
    """Whether no byte of an answer came, as far as aiohttp tells: an answer cut off in its head is in the exception."""
    if isinstance(exc, aiohttp.ClientConnectorError):
        return False
    return not isinstance(exc, aiohttp.ServerDisconnectedError) or isinstance(exc.message, str)


def _failure(exc: aiohttp.ClientError, secure: bool) -> Failure:
    """No text of aiohttp's own gets into a failure: it names the URL, query included."""
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        cause = exc.certificate_error
        return connect_failure(cause if isinstance(cause, OSError) else ssl.SSLError(str(cause)), handshaking=True)
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        blocked = isinstance(exc.os_error, Blocked)
        return blocked_failure(str(exc.os_error)) if blocked else dns_failure(exc.os_error)
    if isinstance(exc, aiohttp.ClientConnectorError):
        broken = isinstance(exc.os_error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
        return connect_failure(exc.os_error, handshaking=secure and broken)
    if isinstance(exc, aiohttp.ClientResponseError):
        return malformed_failure(exc.message.strip().split("\n")[0])
    cause_of = exc.__cause__ if exc.__cause__ is not None else exc
    answered = not _is_unanswered(exc) or isinstance(exc, aiohttp.ClientPayloadError)
    return lost_failure(cause_of if isinstance(cause_of, OSError) else None, 1 if answered else 0)
