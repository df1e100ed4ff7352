"""Sinks without a network."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from hub_app.ports import Answer, Failure, Request

Sink = Callable[[Request], Awaitable[Answer | Failure]]


async def accepts(_request: Request) -> Answer:
    return Answer(204, None, b"", False)


def answers(status: int) -> Sink:
    async def sink(_request: Request) -> Answer:
        return Answer(status, None, b"", False)

    return sink


def fails(kind: str, detail: str) -> Sink:
    async def sink(_request: Request) -> Failure:
        return Failure(kind, detail, False)

    return sink


class FakeSender:
    """`hub_app.ports.Sender` that hands every request to `sink` and keeps it."""

    def __init__(self, sink: Sink = accepts) -> None:
        self.sink = sink
        self.requests: list[Request] = []
        self.timeouts_ms: list[tuple[int, int]] = []

    async def send(self, request: Request, *, connect_timeout_ms: int, timeout_ms: int) -> Answer | Failure:
        self.requests.append(request)
        self.timeouts_ms.append((connect_timeout_ms, timeout_ms))
        return await self.sink(request)

    async def close(self) -> None:
        pass
