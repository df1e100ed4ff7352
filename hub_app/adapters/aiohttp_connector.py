"""aiohttp's connector, made to connect only where it may, and to tell the attempt what it did."""

from __future__ import annotations

import socket
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakSet

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import Connection

from hub_app.domain.egress import EgressPolicy, check_addresses
from hub_app.domain.limits import ADDRESSES_TRIED_MAX
from hub_app.ports import Resolver


class Progress:
    """How far one attempt came, as its connector saw it. `sent`: a connection was there to send on; `reused`: it was a
    kept one."""

    __slots__ = ("reused", "sent")

    def __init__(self) -> None:
        self.sent = self.reused = False


# The connector is called in the attempt's own task, by aiohttp, which hands nothing of ours through.
PROGRESS: Final[ContextVar[Progress]] = ContextVar("progress of the attempt")


class ProgressConnector(aiohttp.TCPConnector):
    """Tells the attempt about its connection, and refuses a kept one that has said something nobody asked for: aiohttp
    would take that for the answer to the next request."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[object] = WeakSet()

    async def connect(
        self, req: aiohttp.ClientRequest, traces: list[Any], timeout: aiohttp.ClientTimeout
    ) -> Connection:
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                break
            connection.close()
        progress = PROGRESS.get()
        progress.sent = True
        progress.reused = protocol in self._used
        self._used.add(protocol)
        return connection


class Blocked(OSError):
    """A name resolved to an address that may not be connected to."""


class CheckedResolver(AbstractResolver):
    """What the connector connects to is exactly what was checked here. It is not asked about literal addresses."""

    def __init__(self, resolver: Resolver, policy: EgressPolicy) -> None:
        self._resolver, self._policy = resolver, policy

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        addresses = await self._resolver.resolve(host)
        problem = check_addresses(addresses, self._policy)
        if problem is not None:
            raise Blocked(problem)
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses[:ADDRESSES_TRIED_MAX]
        ]

    async def close(self) -> None:
        """The resolver is the composition's to close."""
