"""The agents, in the order of the journey. Registered by call, on channels of their own; nothing is discovered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from agents.channel import BatchChannel
from agents.dispatch import Dispatcher
from agents.dispatch_shard import DispatchShard
from agents.inbox import Inbox
from agents.ingest import Ingest
from agents.observer import Observer
from hub_app.domain.errors import Fenced, StoreFailed
from hub_app.kafka.batch import Batch
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.telemetry.metrics import Metrics

Fail = Callable[[Batch, StoreFailed], None]
Handle = Callable[[Sequence[Batch], Fail], Awaitable[None]]
"""Handles batches of different partitions as one step; each is `done` when its part is. A shard whose table refuses
fails alone (`Fail`); what is raised fails all that are not done."""
STEP_RECORDS_MAX = 4_000


class Channels(NamedTuple):
    """Where the planes put their batches."""

    ingest: BatchChannel
    inbox: BatchChannel
    dispatch: BatchChannel
    observer: BatchChannel


def register(
    app: Any,
    *,
    ingest: Ingest,
    inbox: Inbox,
    dispatcher: Dispatcher,
    observer: Observer,
    shards: dict[int, DispatchShard],
    store_failed: Callable[[str, int, StoreFailed], None],
    metrics: Metrics,
) -> Channels:
    """Registers every agent with the Faust app; returns their channels. `store_failed(agent, shard, error)`: a shard's
    table refused, so that its batches cannot go on before it is opened again."""
    channels = Channels(BatchChannel(app), BatchChannel(app), BatchChannel(app), BatchChannel(app))

    async def take_in(batches: Sequence[Batch], fail: Fail) -> None:
        for batch in batches:
            try:
                dispatcher.take_in(shards[batch.shard], batch)
            except StoreFailed as error:
                fail(batch, error)
            else:
                batch.done()

    async def ingest_all(batches: Sequence[Batch], _fail: Fail) -> None:
        await ingest.handle(batches)

    async def observe(batches: Sequence[Batch], _fail: Fail) -> None:
        await observer.handle(batches)

    for name, channel, handle in (
        ("ingest", channels.ingest, ingest_all),
        ("inbox", channels.inbox, inbox.handle),
        ("dispatch", channels.dispatch, take_in),
        ("observer", channels.observer, observe),
    ):
        app.agent(channel, name=name)(_agent(name, handle, store_failed, metrics))
    return channels


def _agent(
    name: str, handle: Handle, store_failed: Callable[[str, int, StoreFailed], None], metrics: Metrics
) -> Callable[[Any], Awaitable[None]]:
    """An agent that takes what stands in its channel as one step: outputs of several partitions share their batches to
    Kafka, which cost more than the records in them. While a step waits for its acknowledgements the next gathers."""
    log = Log(name)
    done, failed = metrics.batches.labels(name), metrics.batch_failures.labels(name)

    def fail(batch: Batch, error: StoreFailed) -> None:
        failed.inc()
        batch.failed(error)
        store_failed(name, batch.shard, error)

    async def handled(batches: Sequence[Batch]) -> None:
        try:
            await handle(batches, fail)
            done.inc(len(batches))
        except Fenced as error:  # if they are still ours they come again
            log.warning(Event.LEASE_LOST, detail=str(error))
            for batch in batches:
                batch.failed(error)
        except Exception as error:
            log.error(Event.BATCH_FAILED, error=error, batches=", ".join(map(repr, batches)))
            for batch in batches:  # those that are done already take no notice
                failed.inc(batch.live)
                batch.failed(error)
        except asyncio.CancelledError as cancelled:
            for batch in batches:
                batch.failed(cancelled)
            raise

    async def agent(stream: Any) -> None:
        async for first in stream:
            # What is no longer live: its shard moved while it stood in the channel.
            batches = [batch for batch in (first, *_gathered(stream.channel.queue)) if batch.live]
            if batches:
                await handled(batches)

    return agent


def _gathered(queue: asyncio.Queue[Batch]) -> Iterator[Batch]:
    """What else is there, without waiting, up to a bound of records."""
    records = 0
    while records < STEP_RECORDS_MAX and not queue.empty():
        batch = queue.get_nowait()
        records += len(batch.records)
        yield batch
