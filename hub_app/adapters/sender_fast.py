"""The sender the hub exists for: httptools over pooled asyncio protocols, about 10 µs of CPU a request
(performance.md, point 1)."""

from __future__ import annotations

import ssl

from hub_app.adapters.sender_common import SenderLimits
from hub_app.domain.egress import EgressPolicy
from hub_app.ports import Answer, Failure, Request, Resolver


class FastSender:
    """`hub_app.ports.Sender`. Made inside a running loop; `close()` ends its connections."""

    def __init__(
        self,
        *,
        resolver: Resolver,
        policy: EgressPolicy,
        tls: ssl.SSLContext | None = None,
        limits: SenderLimits | None = None,
    ) -> None:
        raise NotImplementedError

    async def send(self, request: Request, *, connect_timeout_ms: int, timeout_ms: int) -> Answer | Failure:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
