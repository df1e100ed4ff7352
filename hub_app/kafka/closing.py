"""Ends that are reached: closing clients within a bound, and not half, when the closer is cancelled meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from aiokafka import AIOKafkaConsumer

from hub_app.kafka.forever import describe

log = logging.getLogger(__name__)

CLOSE_TIMEOUT_S = 10.0
CANCEL_AGAIN_S = 1.0


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancels tasks, again and again, until they have ended; what they raised is dropped.

    Once is not enough: `asyncio.wait_for` of Python 3.11 returns its result when it is cancelled in the moment its work
    ends, the cancellation is lost, and whoever waits for the task's end waits for ever. aiokafka sends every request
    through one."""
    left = {task for task in tasks if not task.done()}
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)
    await asyncio.gather(*tasks, return_exceptions=True)


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Runs `work` (which must be bounded) to its end even when the caller is cancelled; then the cancellation goes
    on. For `finally` blocks: a second cancellation would leave connections open there."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    task.result()


async def close_consumer(consumer: AIOKafkaConsumer) -> None:
    """Leaves the group and closes, within a bound: an unreachable broker must not hold a worker's end up."""
    await to_the_end(_close_consumer(consumer))


async def _close_consumer(consumer: AIOKafkaConsumer) -> None:
    stopping = asyncio.ensure_future(consumer.stop())
    await asyncio.wait([stopping], timeout=CLOSE_TIMEOUT_S)
    await ended(stopping)
    failed = None if stopping.cancelled() else stopping.exception()
    if stopping.cancelled() or failed is not None:
        # aiokafka stops at the first step that fails, and would leave its connections open.
        log.warning("a consumer did not stop cleanly: %s", "in time" if failed is None else describe(failed))
        if consumer._fetcher is not None:
            consumer._fetcher._fetch_task.cancel()
        await consumer._client.close()
