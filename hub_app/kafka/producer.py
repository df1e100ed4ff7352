"""Producing without loss: one idempotent producer, outputs grouped by target partition, every future awaited.

A batch that a broker refuses spoils its partition for the producer object (every later batch there is out of order),
so the object is replaced, and what was refused is sent again by halves until the bad record is found (kafka.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import mode
from aiokafka import AIOKafkaProducer
from aiokafka import errors as err
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.default_records import DefaultRecordBatch

from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.client import BATCH_BYTES_MAX, InvalidRecord, KafkaConfig, make_producer
from hub_app.kafka.closing import ended
from hub_app.kafka.forever import describe
from hub_app.kafka.outbox import DeadlinePassed, Flushed, Headers, Outbox, Part, Record, Refused, Target, TooLarge
from hub_app.kafka.standing import Standing

__all__ = ["DeadlinePassed", "Flushed", "Headers", "HubProducer", "Outbox", "Refused", "TooLarge"]

STALLED_AFTER_S = 5.0
CLOSE_TIMEOUT_S = 5.0
CODEC_LZ4 = DefaultRecordBatch.CODEC_LZ4

# The broker will never take this batch, whoever sends it: one of its records is at fault.
REFUSED = (
    InvalidRecord,
    err.MessageSizeTooLargeError,
    err.RecordListTooLargeError,
    err.InvalidTimestampError,
    err.CorruptRecordException,
    err.PolicyViolationError,
    err.UnsupportedForMessageFormatError,
)
# The producer object is spoiled; the batch is innocent, and was not written.
SPOILED = (
    err.OutOfOrderSequenceNumber,
    err.UnknownProducerId,
    err.InvalidProducerIdMapping,
    err.InvalidProducerEpoch,
    err.ProducerFenced,
    err.ProducerClosed,
)
# People have to act; the caller's batch fails and is tried again later.
FORBIDDEN = (
    err.TopicAuthorizationFailedError,
    err.ClusterAuthorizationFailedError,
    err.TransactionalIdAuthorizationFailed,
    err.SecurityDisabled,
    err.InvalidTopicError,
)


class Link:
    """One producer object and how many flushes still use it; a spoiled one is closed when nobody does."""

    __slots__ = ("producer", "spoiled", "users")

    def __init__(self, producer: AIOKafkaProducer) -> None:
        self.producer = producer
        self.users = 0
        self.spoiled = False


class HubProducer(mode.Service):  # type: ignore[misc]
    """Owns the process's idempotent producer and replaces it when it is spoiled. Starting does not wait for a broker;
    flushes do."""

    def __init__(
        self,
        config: KafkaConfig,
        *,
        standing: Standing,
        message_bytes_max: int = 5 << 19,
        name: str = "producer",
        **producer_options: Any,
    ) -> None:
        super().__init__()
        self.message_bytes_max = message_bytes_max
        self._config = config
        self._standing = standing
        self._name = name
        self._options = producer_options
        self._link: Link | None = None
        self._linked = asyncio.Event()
        self._replacing = asyncio.Lock()
        self._background: set[asyncio.Task[Any]] = set()
        self._waiting: dict[object, tuple[float, int]] = {}
        self._stopping = False
        self.replaced = 0

    # -- service ----------------------------------------------------------------------------------------------------

    async def on_start(self) -> None:
        """Connects and watches in the background."""
        self.add_future(self._connect())
        self.add_future(self._watch())

    async def on_stop(self) -> None:
        """Waits a little for what is under way, then closes. Flushes still waiting stay unanswered: cancel them."""
        self._stopping = True
        if self._background:
            _, late = await asyncio.wait(self._background, timeout=CLOSE_TIMEOUT_S)
            await ended(*late)
        if self._link is not None:
            await _close(self._link.producer)
        self._linked.clear()
        self._standing.clear(self._name)

    async def _connect(self) -> None:
        link = Link(await self._make())
        self._link = link
        self._linked.set()

    async def _make(self) -> AIOKafkaProducer:
        """A started producer; waits for the broker as long as it takes, visibly."""
        failures = 0
        while True:
            producer = make_producer(self._config, **self._options)
            try:
                await producer.start()
            except Exception as exc:
                await _close(producer)
                failures += 1
                self._standing.report(self._name, f"cannot connect: {describe(exc)}")
                await asyncio.sleep(delay_ms(failures, 0.5, cap_ms=5_000) / 1000)
            except asyncio.CancelledError:
                await _close(producer)
                raise
            else:
                self._standing.clear(self._name)
                return producer

    async def _watch(self) -> None:
        """Shows a flush that is not answered, and clears it."""
        shown = False
        while True:
            await asyncio.sleep(1)
            if self.stalled_since_ms is not None:
                shown = True
                self._standing.report(self._name, f"{len(self._waiting)} flushes are not acknowledged by the broker")
            elif shown:
                shown = False
                self._standing.clear(self._name)

    # -- what callers use -------------------------------------------------------------------------------------------

    def outbox(self) -> Outbox:
        """A new, empty outbox."""
        return Outbox(self)

    def whole_outbox(self) -> Outbox:
        """A new one whose records for a partition go as one Kafka batch, written whole or not at all, as long as they
        are smaller than `message_bytes_max` together."""
        return Outbox(self, self.create_whole_batch)

    @property
    def stalled_since_ms(self) -> int | None:
        """Wall-clock start of the oldest flush unanswered for more than five seconds."""
        if not self._waiting:
            return None
        started, wall_ms = min(self._waiting.values())
        return wall_ms if time.monotonic() - started > STALLED_AFTER_S else None

    def create_batch(self) -> Any:
        """An empty batch builder of this producer's codec and size. Needs no connection."""
        return BatchBuilder(BATCH_BYTES_MAX, CODEC_LZ4)

    def create_whole_batch(self) -> Any:
        """As large as the broker takes."""
        return BatchBuilder(self.message_bytes_max, CODEC_LZ4)

    # -- sending ----------------------------------------------------------------------------------------------------

    async def send_until(self, targets: Sequence[Target], deadline_ms: int) -> Flushed:
        """As `send`, but gives up waiting after `deadline_ms`; the sending itself goes on."""
        task = asyncio.ensure_future(self.send(targets))
        self._background.add(task)
        task.add_done_callback(self._forget)
        done, _ = await asyncio.wait([task], timeout=deadline_ms / 1000)
        if not done:
            raise DeadlinePassed(f"not acknowledged within {deadline_ms} ms")
        return task.result()

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()

    async def send(self, targets: Sequence[Target]) -> Flushed:
        """Hands every batch over, waits for every answer, repairs what was refused."""
        token = object()
        self._waiting[token] = (time.monotonic(), int(time.time() * 1000))
        try:
            link = await self._acquire()
            try:
                answers = await self._send_waves(link, targets)
            finally:
                self._release(link)
            refused: list[Refused] = []
            offsets: dict[tuple[str, int], list[int | None]] = {}
            total = 0
            for target, parts in zip(targets, answers, strict=True):
                mine: list[int | None] = []
                offsets[(target.topic, target.partition)] = mine
                for index, answer in enumerate(parts):
                    total += len(target.parts[index].records)
                    if isinstance(answer, BaseException):
                        await self._repair(link, target, index, answer, mine, refused)
                    else:
                        _note(mine, answer, len(target.parts[index].records))
            return Flushed(total - len(refused), refused, offsets)
        finally:
            del self._waiting[token]

    async def _send_waves(self, link: Link, targets: Sequence[Target]) -> list[list[Any]]:
        """The first batch of every target, then the second of each, ...: a partition takes one at a time, and a target
        with many must not hold the others up. Returns an answer or exception per batch of each target."""
        futures: list[list[Any]] = [[] for _ in targets]
        wave = 0
        while any(wave < len(t.parts) for t in targets):
            for target, mine in zip(targets, futures, strict=True):
                if wave < len(target.parts):
                    mine.append(await self._submit(link, target, target.parts[wave]))
            wave += 1
        flat = [f for mine in futures for f in mine if not isinstance(f, BaseException)]
        if flat:
            await asyncio.wait(flat)
        return [[f if isinstance(f, BaseException) else f.exception() or f.result() for f in mine] for mine in futures]

    async def _submit(self, link: Link, target: Target, part: Part) -> Any:
        """The future of the batch, or the error with which the producer would not take it."""
        while True:
            try:
                return await link.producer.send_batch(part.builder, target.topic, partition=target.partition)
            except (err.KafkaTimeoutError, err.UnknownTopicOrPartitionError) as exc:
                # An earlier batch of that partition still waits (outage), or the topic is not there: not taken.
                self._standing.report(self._name, f"{target.topic}/{target.partition}: {describe(exc)}")
            except Exception as exc:
                return exc

    # -- repair -----------------------------------------------------------------------------------------------------

    async def _repair(
        self,
        spoiled: Link,
        target: Target,
        index: int,
        failure: BaseException,
        offsets: list[int | None],
        refused: list[Refused],
    ) -> None:
        """Sends one batch that failed again, in its place (everything before it in its partition is settled)."""
        records = target.parts[index].records
        await self._replace(spoiled)
        pending: list[tuple[Sequence[Record], BaseException | None]] = [(records, failure)]
        failures = 0
        while pending:
            some, why = pending.pop()
            if why is not None and (
                self._stopping or isinstance(why, FORBIDDEN) or not isinstance(why, err.KafkaError)
            ):
                raise why
            if isinstance(why, REFUSED):
                if len(some) == 1:
                    refused.append(Refused(target.topic, target.partition, *some[0], describe(why)))
                    offsets.append(None)
                    failures = 0
                    continue
                half = len(some) // 2
                pending += [(some[half:], None), (some[:half], None)]
                continue
            if why is not None and not isinstance(why, SPOILED):
                failures += 1
                self._standing.report(self._name, f"{target.topic}/{target.partition}: {describe(why)}")
                await asyncio.sleep(delay_ms(failures, 0.5, cap_ms=5_000) / 1000)
            answer = await self._send_alone(target, some)
            if isinstance(answer, BaseException):
                pending.append((some, answer))
            else:
                failures = 0
                _note(offsets, answer, len(some))
        self._standing.clear(self._name)

    async def _send_alone(self, target: Target, records: Sequence[Record]) -> Any:
        """One batch of `records` through the current producer; the answer or the exception. Spoils it when refused."""
        link = await self._acquire()
        try:
            alone = Target(target.topic, target.partition)
            builder = self.create_whole_batch()  # whatever its size was, it is that of one batch
            for key, value, headers in records:
                builder.append(timestamp=None, key=key, value=value, headers=headers)
            alone.parts.append(Part(builder, records[0]))
            [[answer]] = await self._send_waves(link, [alone])
        finally:
            self._release(link)
        if isinstance(answer, BaseException):
            await self._replace(link)
        return answer

    async def _acquire(self) -> Link:
        await self._linked.wait()
        link = self._link
        assert link is not None
        link.users += 1
        return link

    def _release(self, link: Link) -> None:
        link.users -= 1
        if link.spoiled and not link.users:
            self._retire(link)

    async def _replace(self, spoiled: Link) -> None:
        """A fresh producer in place of `spoiled`, unless someone did that already."""
        async with self._replacing:
            if self._link is not spoiled or self._stopping:
                return
            fresh = Link(await self._make())
            self._link = fresh
            self.replaced += 1
            spoiled.spoiled = True
            if not spoiled.users:
                self._retire(spoiled)

    def _retire(self, link: Link) -> None:
        task = asyncio.ensure_future(_close(link.producer))
        self._background.add(task)
        task.add_done_callback(self._forget)


def _note(offsets: list[int | None], answer: Any, count: int) -> None:
    """`answer` is the batch's RecordMetadata; its offset is -1 when the broker knew the batch but not where it is."""
    base = answer.offset if answer is not None else -1
    if base is None or base < 0:
        offsets.extend([None] * count)
    else:
        offsets.extend(range(base, base + count))


async def _close(producer: AIOKafkaProducer) -> None:
    """Closes within a bound, whatever the broker does. aiokafka's own stop waits for every batch without limit; when it
    may not, the batches fail with ProducerClosed, so that nobody waits for them for ever."""
    stopping = asyncio.ensure_future(producer.stop())
    done, _ = await asyncio.wait([stopping], timeout=CLOSE_TIMEOUT_S)
    if not done:
        producer._message_accumulator.fail_all(err.ProducerClosed())
        await producer.client.close()
        await asyncio.wait([stopping], timeout=CLOSE_TIMEOUT_S)
    await ended(stopping)
