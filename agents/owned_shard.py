"""One shard's transactional producer, the writes that wait for it, and the task that brings them together."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from hub_app.domain.errors import BrokerTrouble, Fenced, OutcomeUnknown, RecordTooLarge
from hub_app.domain.limits import RECORD_BYTES_MAX
from hub_app.kafka.closing import ended
from hub_app.kafka.transactions import NotWritten, Sent, Uncertain
from hub_app.wire.record import Headers, Record, record_bytes

log = logging.getLogger(__name__)

GROUP_MAX = 256
"""Writes in one transaction."""
WAITING_MAX = 4_096
"""Writes of a shard that may wait for their transaction; more are refused."""
_AGAIN_S_FIRST, _AGAIN_S_MAX = 0.05, 2.0


class Transactions(Protocol):
    """`hub_app.kafka.transactions.TransactionalProducer`. `start` fences its predecessors."""

    async def start(self) -> None: ...
    async def write(self, group: Sequence[Sent]) -> list[int]: ...
    async def close(self) -> None: ...


Apply = Callable[[str, int, int, bytes, bytes | None, Headers], None]
"""(topic, partition, offset, key, value, headers): what was just written, for the global table of that topic."""


class LookAgain(NamedTuple):
    """A write failed, and the state has been read to its end since: whether the record is there can be seen, and if it
    is not, what it was decided on may have changed. Decide again."""

    detail: str


class OwnerSetup(NamedTuple):
    """What the owner of any shard needs.

    `producers(transactional id)` makes an unstarted one. `lease()`: may this worker act as owner now. `catch_up(shard)`
    returns when the global tables have read that partition of every owned topic to its end. `deadline_ms` bounds each
    write and each start.
    """

    prefix: str
    producers: Callable[[str], Transactions]
    lease: Callable[[], bool]
    catch_up: Callable[[int], Awaitable[None]]
    apply: Apply
    deadline_ms: int = 10_000


class _Write(NamedTuple):
    sent: Sent
    written: asyncio.Future[int | LookAgain]


class OwnedShard:
    """Take over, serve, write, close; then make a new one. `lost` once another worker owns the shard."""

    def __init__(self, setup: OwnerSetup, number: int) -> None:
        self._setup, self._number = setup, number
        self._id = f"{setup.prefix}owner.{number}"
        self._producer: Transactions | None = None
        self._waiting: deque[_Write] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.lost = False
        """Fenced without a valid lease: somebody else's now."""

    # -- owning --------------------------------------------------------------------------------------------------
    async def take_over(self) -> None:
        """Start a producer, which fences every other of this id, and read the state to its end."""
        self._may_own()
        producer = self._setup.producers(self._id)
        try:
            async with asyncio.timeout(self._setup.deadline_ms / 1000):
                await producer.start()
                self._may_own()
                await self._setup.catch_up(self._number)
        except TimeoutError:
            await producer.close()
            raise BrokerTrouble(f"{self._id}: not started within {self._setup.deadline_ms} ms") from None
        except BaseException:
            await producer.close()
            raise
        self._producer = producer

    def _may_own(self) -> None:
        if not self._setup.lease():
            raise Fenced(f"{self._id}: no valid lease")

    def serve(self) -> None:
        self._task = asyncio.create_task(self._run(), name=self._id)

    async def close(self) -> None:
        self.lost = True
        if self._task is not None:
            await ended(self._task)
        self._refuse()
        await self._drop_producer()

    async def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.close()

    def _refuse(self) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), Fenced(f"{self._id}: not owned here any more"))

    # -- writing -------------------------------------------------------------------------------------------------
    async def write(self, topic: str, record: Record) -> int | LookAgain:
        size = record_bytes(*record)
        if size > RECORD_BYTES_MAX:
            raise RecordTooLarge(f"{topic}: {size} bytes")
        if len(self._waiting) >= WAITING_MAX:
            raise BrokerTrouble(f"{self._id}: too many writes wait")
        written: asyncio.Future[int | LookAgain] = asyncio.get_running_loop().create_future()
        mine = _Write(Sent(topic, self._number, record.key or b"", record.value, record.headers), written)
        self._waiting.append(mine)
        self._wake.set()
        try:
            async with asyncio.timeout(self._setup.deadline_ms / 1000):
                return await written
        except TimeoutError:
            if mine in self._waiting:
                self._waiting.remove(mine)
                raise BrokerTrouble(f"{self._id}: no answer in time") from None
            raise OutcomeUnknown(f"{self._id}: no acknowledgement in time") from None

    async def _run(self) -> None:
        while not self.lost:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                if self._producer is None:
                    await self._own_again()
                if self.lost:
                    return
                group = [self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting)))]
                group = [write for write in group if not write.written.done()]
                if group:
                    await self._transact(group)

    async def _transact(self, group: list[_Write]) -> None:
        """One transaction. Whatever goes wrong costs the producer, and the next one starts by reading to the end."""
        try:
            self._may_own()
            assert self._producer is not None
            async with asyncio.timeout(self._setup.deadline_ms / 1000):
                offsets = await self._producer.write([write.sent for write in group])
        except (Fenced, NotWritten) as error:
            await self._recover(group, str(error), Fenced(f"{self._id}: not owned here any more"))
        except (Uncertain, TimeoutError) as error:
            detail = str(error) or "no acknowledgement in time"
            await self._recover(group, detail, OutcomeUnknown(f"{self._id}: {detail}"))
        except BaseException:
            for write in group:
                _fail(write, OutcomeUnknown(f"{self._id}: interrupted"))
            raise
        else:
            self._settle(group, offsets)

    async def _recover(self, group: list[_Write], detail: str, if_lost: Exception) -> None:
        """Own the shard again, then tell the writers: who looks again sees the state as it has become."""
        log.warning("%s: %d writes failed: %s", self._id, len(group), detail)
        try:
            await self._drop_producer()
            await self._own_again()
        except BaseException:
            for write in group:
                _fail(write, OutcomeUnknown(f"{self._id}: interrupted"))
            raise
        for write in group:
            if self.lost:
                _fail(write, if_lost)
            elif not write.written.done():
                write.written.set_result(LookAgain(detail))

    def _settle(self, group: list[_Write], offsets: list[int]) -> None:
        """Apply all, in the order of their offsets, before anybody is answered."""
        for (sent, _), offset in zip(group, offsets, strict=True):
            self._setup.apply(sent.topic, self._number, offset, sent.key, sent.value, list(sent.headers))
        for (_, written), offset in zip(group, offsets, strict=True):
            if not written.done():
                written.set_result(offset)

    async def _own_again(self) -> None:
        """A new producer, as often as it takes while the lease holds; without it the shard is lost."""
        pause_s = _AGAIN_S_FIRST
        while not self.lost:
            try:
                await self.take_over()
            except Fenced:
                log.warning("%s: fenced without a valid lease, left to its new owner", self._id)
                self.lost = True
                self._refuse()
                return
            except Exception as error:
                log.warning("%s: cannot be taken over, tried again: %s", self._id, error)
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _AGAIN_S_MAX)
            else:
                return


def _fail(write: _Write, failure: Exception) -> None:
    if not write.written.done():
        write.written.set_exception(failure)
