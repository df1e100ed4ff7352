"""The agents, in the order of the journey. Registered by call, on channels of their own; nothing is discovered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from agents.channel import BatchChannel
from agents.dispatch import Dispatcher
from agents.dispatch_shard import DispatchShard
from agents.inbox import Inbox
from agents.ingest import Ingest
from hub_app.domain.errors import StoreFailed
from hub_app.kafka.batch import Batch
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics

Handle = Callable[[Batch], Awaitable[None]]


class Channels(NamedTuple):
    """Where the planes put their batches."""

    ingest: BatchChannel
    inbox: BatchChannel
    dispatch: BatchChannel


def register(
    app: Any,
    *,
    ingest: Ingest,
    inbox: Inbox,
    dispatcher: Dispatcher,
    shards: dict[int, DispatchShard],
    store_failed: Callable[[str, int, StoreFailed], None],
    metrics: Metrics,
) -> Channels:
    """Registers every agent with the Faust app; returns their channels. `store_failed(agent, shard, error)`: a shard's
    table refused, so that its batches cannot go on before it is opened again."""
    channels = Channels(BatchChannel(app), BatchChannel(app), BatchChannel(app))

    async def take_in(batch: Batch) -> None:
        dispatcher.take_in(shards[batch.shard], batch)
        batch.done()

    for name, channel, handle in (
        ("ingest", channels.ingest, ingest.handle),
        ("inbox", channels.inbox, inbox.handle),
        ("dispatch", channels.dispatch, take_in),
    ):
        app.agent(channel, name=name)(_agent(name, handle, store_failed, metrics))
    return channels


def _agent(
    name: str, handle: Handle, store_failed: Callable[[str, int, StoreFailed], None], metrics: Metrics
) -> Callable[[Any], Awaitable[None]]:
    """An agent that handles batches side by side: a plane has one batch of a partition in flight, so their order is
    kept, and their number is bounded by the partitions owned."""
    log = Log(name)
    done, failed = metrics.batches.labels(name), metrics.batch_failures.labels(name)
    running: set[asyncio.Task[None]] = set()

    async def handled(batch: Batch) -> None:
        if not batch.live:
            return  # its shard moved while it stood in the channel
        try:
            await handle(batch)
            done.inc()
        except StoreFailed as error:
            failed.inc()
            batch.failed(error)
            store_failed(name, batch.shard, error)
        except Exception as error:
            log.error(Event.BATCH_FAILED, error=error, topic=batch.topic, partition=batch.partition)
            failed.inc()
            batch.failed(error)
        except asyncio.CancelledError as cancelled:
            batch.failed(cancelled)
            raise

    async def agent(stream: Any) -> None:
        async for batch in stream:
            task = asyncio.create_task(handled(batch))
            running.add(task)
            task.add_done_callback(running.discard)

    return agent
