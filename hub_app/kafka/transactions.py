"""A transactional producer: groups of records that are written whole or not at all, by one writer at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from hub_app.kafka.client import KafkaConfig, make_producer
from hub_app.kafka.closing import ended

CLOSE_TIMEOUT_S = 2.0
TRANSACTION_TIMEOUT_MS = 15_000
"""How long the transaction of a writer that vanished may hold readers up, if nobody takes its id over."""


class Sent(NamedTuple):
    """One record of a group."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class NotWritten(Exception):
    """The transaction failed before it was asked to commit: none of it will ever be seen."""


class Uncertain(Exception):
    """The transaction failed while it was being committed: all of it may be seen, or nothing."""


class TransactionalProducer:
    """Used once: after any exception it is closed and another one is started."""

    def __init__(self, config: KafkaConfig, transactional_id: str) -> None:
        self._producer = make_producer(
            config, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )

    async def start(self) -> None:
        """Returns once every other producer of this id is fenced, and what it had not committed is aborted. Waits for
        the broker without limit; an exception (not allowed, wrong broker) is for people."""
        await self._producer.start()

    async def write(self, group: Sequence[Sent]) -> list[int]:
        """One transaction; the offset of each record. Raises NotWritten or Uncertain; waits without limit.

        Cancelled, it is as if Uncertain had been raised.
        """
        try:
            await self._producer.begin_transaction()
            futures = [
                await self._producer.send(
                    sent.topic, value=sent.value, key=sent.key, partition=sent.partition, headers=list(sent.headers)
                )
                for sent in group
            ]
            answers = await asyncio.gather(*futures)
        except Exception as error:
            raise NotWritten(f"{type(error).__name__}: {error}") from error
        try:
            await self._producer.commit_transaction()
        except Exception as error:
            raise Uncertain(f"{type(error).__name__}: {error}") from error
        return [answer.offset for answer in answers]

    async def close(self) -> None:
        """Within a bound, whatever the broker does; never raises."""
        self._look_at_failures()
        stopping = asyncio.ensure_future(self._producer.stop())
        done, _ = await asyncio.wait([stopping], timeout=CLOSE_TIMEOUT_S)
        if not done:
            # aiokafka's stop waits for every batch without limit; without its connections it has nothing to wait for.
            await self._producer.client.close()
            await asyncio.wait([stopping], timeout=CLOSE_TIMEOUT_S)
        await ended(stopping)

    def _look_at_failures(self) -> None:
        """aiokafka 0.14 puts the failure of a transaction also into futures that nobody awaits; each would be logged as
        an error with its traceback when it is collected, at a moment of the collector's choice."""
        accumulator, transaction = self._producer._message_accumulator, self._producer._txn_manager
        waiters = [batch._drain_waiter for batches in accumulator._batches.values() for batch in batches]
        for waiter in (transaction._transaction_waiter, *waiters):
            if waiter is not None and waiter.done() and not waiter.cancelled():
                waiter.exception()
