"""Tasks that are to end, and lose the cancellation that tells them so."""

from __future__ import annotations

import asyncio
from typing import Any

from hub_app.kafka.closing import CANCEL_AGAIN_S, ended


class Requests:
    """Makes one request after another, as aiokafka's tasks do: each with a time-out, by `wait_for`."""

    def __init__(self) -> None:
        self.made: list[asyncio.Future[None]] = []

    async def run(self) -> None:
        while True:
            self.made.append(asyncio.get_running_loop().create_future())
            await asyncio.wait_for(self.made[-1], 60)


async def running(work: Any) -> asyncio.Task[Any]:
    task = asyncio.create_task(work)
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_a_cancellation_that_comes_as_its_work_ends_is_lost() -> None:
    """Why `ended` cancels again. When this fails, Python's `wait_for` keeps cancellations, and it need not."""
    requests = Requests()
    task = await running(requests.run())
    requests.made[-1].set_result(None)
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    assert len(requests.made) == 2
    await ended(task)


async def test_a_task_ends_all_the_same() -> None:
    requests = Requests()
    task = await running(requests.run())
    requests.made[-1].set_result(None)
    async with asyncio.timeout(10 * CANCEL_AGAIN_S):
        await ended(task)
    assert task.cancelled()


async def test_what_tasks_raise_and_tasks_that_have_ended_are_no_matter() -> None:
    async def fails() -> None:
        raise ConnectionError("away")

    failed = await running(fails())
    await ended(failed, await running(asyncio.sleep(0)), await running(asyncio.sleep(60)))
    assert failed.done()
