"""Group commits: one request for everything that is done, the next when the former returned."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.forever import describe
from hub_app.kafka.standing import Standing

INTERVAL_S = 0.01
"""Least time between the starts of two commits: at full speed a commit costs more than it saves."""
SHOWN_AFTER_S = 5.0


class Committer:
    """Offsets to commit, by partition. Survives rebalances: what could not be committed is kept for partitions that
    stay and dropped for those that leave (then the new owner repeats work, with the same ids)."""

    def __init__(self, name: str, *, standing: Standing) -> None:
        self._name = f"{name}/commit"
        self._standing = standing
        self._pending: dict[TopicPartition, int] = {}
        self._sending: dict[TopicPartition, int] = {}
        self._floor: dict[TopicPartition, int] = {}
        self._wanted = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._member = asyncio.Event()
        self.committed: dict[TopicPartition, int] = {}
        self.sending_since: float | None = None

    def add(self, tp: TopicPartition, offset: int) -> None:
        """`offset` is the next one to read after a restart; the latest given wins."""
        self._pending[tp] = offset
        if self._member.is_set():
            self._settled.clear()
        self._wanted.set()

    def raise_to(self, tp: TopicPartition, offset: int) -> None:
        """As `add`, but never below what was given or committed since the partition was opened."""
        if offset > self._floor.get(tp, -1):
            self._floor[tp] = offset
            self.add(tp, offset)

    def opened(self, tp: TopicPartition, committed: int) -> None:
        """The partition starts anew here: `committed` is what the group holds."""
        self._pending.pop(tp, None)
        self._floor[tp] = self.committed[tp] = committed

    def assigned(self, tps: Collection[TopicPartition]) -> None:
        """After a rebalance: only these can be committed from now on."""
        keep = set(tps)
        for known in (self._pending, self._floor, self.committed):
            for tp in [tp for tp in known if tp not in keep]:
                del known[tp]
        self._member.set()
        self._settled.clear()
        self._wanted.set()
        self._look()

    def left(self) -> None:
        """Nothing can be committed until the next assignment: nobody need wait for it."""
        self._member.clear()
        self._settled.set()

    def forget(self, tps: Collection[TopicPartition]) -> None:
        """These were closed here."""
        for tp in tps:
            self._pending.pop(tp, None)
            self._floor.pop(tp, None)
        self._look()

    async def run(self, consumer: AIOKafkaConsumer) -> None:
        """Commits for one consumer, until cancelled."""
        failures = 0
        while True:
            await self._wanted.wait()
            await self._member.wait()
            self._wanted.clear()
            assigned = consumer.assignment()
            self._sending = {tp: offset for tp, offset in self._pending.items() if tp in assigned}
            if not self._sending:
                if self._pending:
                    self.left()
                continue
            for tp in self._sending:
                del self._pending[tp]
            self.sending_since = started = time.monotonic()
            try:
                await consumer.commit(self._sending)
            except (CommitFailedError, IllegalStateError):
                self._put_back()
                self.left()  # the group went on without us: wait for the next assignment
            except KafkaError as exc:
                failures += 1
                self._standing.report(self._name, describe(exc))
                self._put_back()
                await asyncio.sleep(delay_ms(failures, 0.5, cap_ms=5_000) / 1000)
            except BaseException:
                self._put_back()
                raise
            else:
                failures = 0
                self._standing.clear(self._name)
                self.committed.update(self._sending)
                self._sending = {}
            finally:
                self.sending_since = None
            self._look()
            await asyncio.sleep(max(0.0, started + INTERVAL_S - time.monotonic()))

    async def flush(self, timeout_s: float | None) -> bool:
        """Waits until everything given so far is committed or dropped. False when that takes too long, or at once when
        this member cannot commit now (between two assignments)."""
        try:
            await asyncio.wait_for(self._settled.wait(), timeout_s)
        except TimeoutError:
            return False
        return not self._pending and not self._sending

    def look_after(self) -> None:
        """Shows a commit that has not returned for long."""
        if self.sending_since is not None and time.monotonic() - self.sending_since > SHOWN_AFTER_S:
            self._standing.report(self._name, "the broker does not answer a commit")

    def _put_back(self) -> None:
        for tp, offset in self._sending.items():
            self._pending.setdefault(tp, offset)
        self._sending = {}
        if self._pending:
            self._wanted.set()

    def _look(self) -> None:
        if not self._pending and not self._sending:
            self._settled.set()
