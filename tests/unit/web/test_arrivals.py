"""Waiting for facts: nothing arrives unseen, nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest

from hub_app.web import arrivals as module
from hub_app.web.arrivals import Arrivals


async def test_what_arrives_between_entering_and_waiting_is_seen() -> None:
    arrivals = Arrivals()
    waiting = arrivals.enter("t")
    assert waiting is not None
    with waiting:
        arrivals.notify("t")
        assert await waiting.wait(5)
        assert not await waiting.wait(0.001)
        arrivals.notify("t")
        assert await waiting.wait(5)
    assert len(arrivals) == 0


async def test_only_the_tenant_is_woken() -> None:
    arrivals = Arrivals()
    waiting = arrivals.enter("t")
    assert waiting is not None
    with waiting:
        arrivals.notify_many({"u", "tt"})
        assert not await waiting.wait(0.001)
        arrivals.notify_many(["u", "t"])
        assert await waiting.wait(5)


async def test_many_wait_and_all_are_woken() -> None:
    arrivals = Arrivals()

    async def one(tenant: str) -> bool:
        waiting = arrivals.enter(tenant)
        assert waiting is not None
        with waiting:
            return await waiting.wait(5)

    tasks = [asyncio.create_task(one(f"t{n % 3}")) for n in range(30)]
    while len(arrivals) < 30:
        await asyncio.sleep(0)
    arrivals.notify_all()
    assert all(await asyncio.gather(*tasks))
    assert len(arrivals) == 0


async def test_a_cancelled_waiter_is_forgotten() -> None:
    arrivals = Arrivals()

    async def one() -> None:
        waiting = arrivals.enter("t")
        assert waiting is not None
        with waiting:
            await waiting.wait(60)

    task = asyncio.create_task(one())
    while not len(arrivals):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(arrivals) == 0
    arrivals.notify_all()


async def test_the_number_of_waiters_is_bounded() -> None:
    arrivals = Arrivals()
    entered = [arrivals.enter("t") for _ in range(module.WAITERS_MAX)]
    for waiting in entered:
        assert waiting is not None
        waiting.__enter__()
    assert arrivals.enter("t") is None
    for waiting in entered:
        assert waiting is not None
        waiting.__exit__()
    assert arrivals.enter("t") is not None
