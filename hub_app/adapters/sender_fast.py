"""The sender the hub exists for: httptools over pooled asyncio protocols, about 10 µs of CPU a request
(docs/performance.md, "The sender"). `fast_answer` reads, `fast_connection` is the
protocol, `fast_pool` makes and keeps connections."""

from __future__ import annotations

import ssl
from time import monotonic

from hub_app.adapters.fast_connection import Connection
from hub_app.adapters.fast_pool import ConnectionPool
from hub_app.adapters.sender_common import SenderLimits, client_tls, lost_failure
from hub_app.domain.egress import EgressPolicy
from hub_app.ports import Answer, Failure, Request, Resolver


class FastSender:
    """`hub_app.ports.Sender`, of one event loop; `close()` ends its connections.

    The address is checked and pinned when a connection is made; a kept connection stays with the address that was
    checked, so a request on it looks up and checks nothing.
    """

    def __init__(
        self,
        *,
        resolver: Resolver,
        policy: EgressPolicy,
        tls: ssl.SSLContext | None = None,
        limits: SenderLimits | None = None,
    ) -> None:
        self._pool = ConnectionPool(
            resolver=resolver, policy=policy, tls=tls or client_tls(), limits=limits or SenderLimits()
        )

    async def send(self, request: Request, *, connect_timeout_ms: int, timeout_ms: int) -> Answer | Failure:
        """One attempt. A kept connection that ends before any byte of an answer (the sink closed it as idle while the
        request was on its way) is replaced once, by a new one, inside the same deadline."""
        deadline = monotonic() + timeout_ms / 1000
        connection = self._pool.take(request.target)
        if connection is not None:
            waiter = connection.exchange(_encode(request, connection), deadline, timeout_ms)
            try:
                outcome = await waiter
            except BaseException:
                connection.abandon(waiter)
                raise
            if outcome is not None:
                return outcome
        opened = await self._pool.open(request.target, connect_timeout_ms, deadline)
        if not isinstance(opened, Connection):
            # The connection before it may have carried the request as far as the sink.
            return opened if connection is None else opened._replace(sent=True)
        waiter = opened.exchange(_encode(request, opened), deadline, timeout_ms)
        try:
            outcome = await waiter
        except BaseException:
            opened.abandon(waiter)
            raise
        return outcome or lost_failure(None, 0)

    async def close(self) -> None:
        await self._pool.close()


def _encode(request: Request, connection: Connection) -> bytes:
    _, method, path, head, body = request
    return b"".join((method, b" ", path, connection.host_line, head, b"Content-Length: %d\r\n\r\n" % len(body), body))
