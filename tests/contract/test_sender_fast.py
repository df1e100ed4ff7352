"""What only the fast sender promises: its pool's bounds, and that it costs nothing it need not."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from hub_app.adapters.sender_common import SenderLimits, host_header
from hub_app.adapters.sender_fast import FastSender
from hub_app.domain.egress import EgressPolicy
from hub_app.ports import Answer, Target
from tests.contract.hostile import Hostile, Peer, hostile, serving
from tests.contract.sending import kind, post, send, status
from tests.fakes.resolver import FakeResolver

Make = Callable[..., FastSender]


@pytest_asyncio.fixture
async def make() -> AsyncIterator[Make]:
    made: list[FastSender] = []

    def sender(**limits: Any) -> FastSender:
        names = {f"{n}.example": ("127.0.0.1",) for n in range(20)}
        made.append(
            FastSender(
                resolver=FakeResolver(names),
                policy=EgressPolicy(allow_private=True),
                limits=SenderLimits(**limits),
            )
        )
        return made[-1]

    yield sender
    for one in made:
        await one.close()


async def _all_at_once(sender: FastSender, server: Hostile, hosts: list[str]) -> None:
    answers = await asyncio.gather(*(send(sender, post(server, host=host)) for host in hosts))
    assert {status(answer) for answer in answers} == {200}


async def test_idle_connections_are_bounded_per_target(make: Make) -> None:
    async with hostile(serving) as server:
        sender = make(idle_per_target_max=2)
        await _all_at_once(sender, server, ["0.example"] * 6)
        await server.until_gone(4)
        await _all_at_once(sender, server, ["0.example"] * 2)
        assert (server.connections, server.gone) == (6, 4)


async def test_idle_connections_are_bounded_in_all_and_the_oldest_go_first(make: Make) -> None:
    async with hostile(serving) as server:
        sender = make(idle_max=3)
        for n in (0, 1, 2, 3):
            await _all_at_once(sender, server, [f"{n}.example"])
        await server.until_gone(1)
        for n in (3, 2, 1):
            await _all_at_once(sender, server, [f"{n}.example"])
        assert (server.connections, server.gone) == (4, 1)
        await _all_at_once(sender, server, ["0.example"])
        assert server.connections == 5


async def test_a_busy_connection_grows_old_all_the_same(make: Make) -> None:
    async with hostile(serving) as server:
        sender = make(connection_age_ms_max=100)
        end = asyncio.get_running_loop().time() + 0.3
        while asyncio.get_running_loop().time() < end:
            assert status(await send(sender, post(server))) == 200
            await asyncio.sleep(0.01)
        assert 2 <= server.connections <= 5


async def test_a_body_over_the_bound_closes_even_if_it_is_whole(make: Make) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.answer(b"x" * 11)

    async with hostile(script) as server:
        sender = make(body_bytes_max=10)
        assert await send(sender, post(server)) == Answer(200, None, b"x" * 10, True)
        await server.until_gone(1)


async def test_framing_is_bounded_too(make: Make) -> None:
    """Chunks of next to nothing, in extensions without end."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await peer.flood(b"1;" + b"e" * 1000 + b"\r\nx\r\n")

    async with hostile(script) as server:
        assert kind(await send(make(), post(server), timeout_ms=3000)) == ("malformed", True)
        await server.until_gone(1)


async def test_1xx_without_end_is_bounded(make: Make) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.flood(b"HTTP/1.1 102 Processing\r\n\r\n" * 10)

    async with hostile(script) as server:
        assert kind(await send(make(), post(server), timeout_ms=3000)) == ("malformed", True)
        await server.until_gone(1)


async def test_a_request_on_a_kept_connection_makes_one_future_and_no_task_or_timer(make: Make) -> None:
    async with hostile(serving) as server:
        sender = make()
        assert status(await send(sender, post(server))) == 200
        loop = asyncio.get_running_loop()
        made = {"future": 0, "task": 0, "timer": 0}
        counted = CountingLoop(loop, made)
        connection = next(iter(sender._pool._open))
        connection._loop = counted  # type: ignore[assignment]
        for _ in range(5):
            assert status(await send(sender, post(server), timeout_ms=60_000)) == 200
        assert made == {"future": 5, "task": 0, "timer": 0}


class CountingLoop:
    """The loop, counted."""

    def __init__(self, loop: asyncio.AbstractEventLoop, made: dict[str, int]) -> None:
        self._loop, self._made = loop, made

    def create_future(self) -> asyncio.Future[Any]:
        self._made["future"] += 1
        return self._loop.create_future()

    def create_task(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        self._made["task"] += 1
        return self._loop.create_task(*args, **kwargs)

    def call_later(self, *args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        self._made["timer"] += 1
        return self._loop.call_later(*args, **kwargs)


async def test_closed_connections_are_forgotten(make: Make) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer((await peer.request()).body)

    async with hostile(script) as server:
        sender = make()
        for n in range(1, 20):
            assert status(await send(sender, post(server, host=f"{n}.example"))) == 200
            await server.until_gone(n)
        assert status(await send(sender, post(server))) == 200
        gc.collect()
        pool = sender._pool
        assert len(pool._open) <= 1
        assert len(pool._idle) <= 1


@pytest.mark.parametrize(
    ("target", "host"),
    [
        (Target("https", "crm.example.com", 443), "crm.example.com"),
        (Target("https", "crm.example.com", 80), "crm.example.com:80"),
        (Target("http", "crm.example.com", 80), "crm.example.com"),
        (Target("http", "crm.example.com", 443), "crm.example.com:443"),
        (Target("https", "2606:4700::1111", 443), "[2606:4700::1111]"),
        (Target("https", "2606:4700::1111", 8443), "[2606:4700::1111]:8443"),
    ],
)
def test_host_header(target: Target, host: str) -> None:
    assert host_header(target) == host
