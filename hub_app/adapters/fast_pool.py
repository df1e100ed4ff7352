"""Connections of the fast sender: making them to checked addresses, and keeping them between exchanges."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from time import monotonic

from hub_app.adapters.fast_connection import Connection
from hub_app.adapters.sender_common import (
    SenderLimits,
    blocked_failure,
    closed_failure,
    connect_failure,
    dns_failure,
    timeout_failure,
)
from hub_app.domain.egress import EgressPolicy, check_addresses
from hub_app.domain.limits import ADDRESSES_TRIED_MAX
from hub_app.ports import Failure, Resolver, Target


class ConnectionPool:
    """Idle connections per target, the latest used first; bounded per target and in all, the longest idle go first.
    The bound on those in use is the caller's."""

    def __init__(self, *, resolver: Resolver, policy: EgressPolicy, tls: ssl.SSLContext, limits: SenderLimits) -> None:
        self._resolver, self._policy, self._tls, self._limits = resolver, policy, tls, limits
        self._age_s = limits.connection_age_ms_max / 1000
        # Targets stand in the order in which their stack began: near enough to the longest idle first.
        self._idle: dict[Target, list[Connection]] = {}
        self._idle_count = 0
        self._open: set[Connection] = set()
        self._closed = False

    def take(self, target: Target) -> Connection | None:
        """An idle connection, or None."""
        stack = self._idle.get(target)
        if stack is None:
            return None
        connection = stack.pop()
        self._idle_count -= 1
        if not stack:
            del self._idle[target]
        return connection

    def idle(self, connection: Connection, now: float) -> None:
        """`fast_connection.Owner`."""
        if now - connection.born > self._age_s or self._closed:
            connection.abort()
            return
        stack = self._idle.get(connection.target)
        if stack is None:
            self._idle[connection.target] = [connection]
        elif len(stack) < self._limits.idle_per_target_max:
            stack.append(connection)
        else:
            connection.abort()
            return
        self._idle_count += 1
        if self._idle_count > self._limits.idle_max:
            next(iter(self._idle.values()))[0].abort()

    def gone(self, connection: Connection) -> None:
        """`fast_connection.Owner`."""
        self._open.discard(connection)
        stack = self._idle.get(connection.target)
        if stack is not None and connection in stack:
            stack.remove(connection)
            self._idle_count -= 1
            if not stack:
                del self._idle[connection.target]

    async def open(self, target: Target, connect_timeout_ms: int, deadline: float) -> Connection | Failure:
        """A new connection to one of the target's addresses, all of which were checked. Resolving, connecting and TLS
        together end at the time-out, and at the `deadline` (of time.monotonic), whichever comes first."""
        if self._closed:
            return closed_failure()
        now = monotonic()
        deadline = min(deadline, now + connect_timeout_ms / 1000)
        try:
            async with asyncio.timeout(deadline - now):
                try:
                    addresses = await self._resolver.resolve(target.host)
                except OSError as exc:
                    return dns_failure(exc)
                problem = check_addresses(addresses, self._policy)
                if problem is not None:
                    return blocked_failure(problem)
                return await self._dial(target, addresses[:ADDRESSES_TRIED_MAX], deadline)
        except TimeoutError:
            return timeout_failure(round((deadline - now) * 1000), sent=False)

    async def close(self) -> None:
        """End every connection; exchanges in hand fail."""
        self._closed = True
        for connection in tuple(self._open):
            connection.fail(closed_failure())
        # Transports tell of their end one turn of the loop later.
        await asyncio.sleep(0)

    async def _dial(self, target: Target, addresses: tuple[str, ...], deadline: float) -> Connection | Failure:
        """Try addresses in the resolver's order. Each gets its share of the time left, so that one that swallows
        packets does not take it all (Go's dialer does the same)."""
        failure: Failure | None = None
        for left, address in zip(range(len(addresses), 0, -1), addresses, strict=True):
            try:
                async with asyncio.timeout((deadline - monotonic()) / left):
                    sock = await self._connect(address, target.port)
            except TimeoutError:
                if left == 1:
                    raise
            except OSError as exc:
                failure = connect_failure(exc, handshaking=False)
            else:
                return await self._adopt(sock, target)
        return failure or closed_failure()

    async def _connect(self, address: str, port: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().sock_connect(sock, (address, port))
        except BaseException:
            sock.close()
            raise
        return sock

    async def _adopt(self, sock: socket.socket, target: Target) -> Connection | Failure:
        """Set up TLS, if any: the certificate must be the name's, whatever the address."""
        secure = target.scheme == "https"
        connection = Connection(target, self, self._limits, asyncio.get_running_loop())
        self._open.add(connection)
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection,
                sock=sock,
                ssl=self._tls if secure else None,
                server_hostname=target.host if secure else None,
            )
        except OSError as exc:
            self._discard(connection, sock)
            return connect_failure(exc, handshaking=secure)
        except BaseException:
            self._discard(connection, sock)
            raise
        if self._closed:
            connection.abort()
            return closed_failure()
        return connection

    def _discard(self, connection: Connection, sock: socket.socket) -> None:
        connection.abort()
        with suppress(OSError):
            sock.close()
