"""A publisher and receivers with the public clients of Event Grid, going on through whatever happens to the worker.

What counts: every event whose publish was answered is received, and none comes again after its acknowledgement was
answered."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from azure.core.exceptions import AzureError
from azure.core.messaging import CloudEvent

from tests.support.event_grid import consumer, publisher

BATCH = 20


class Storm:
    """`start`, then kill workers, then `finish`. `total` events go through one queue."""

    def __init__(
        self, url: str, tenant: str, key: str, topic: str, name: str, *, total: int, receivers: int = 2
    ) -> None:
        self.total = total
        self.published: set[str] = set()
        self.received: dict[str, int] = {}
        self.acknowledged: dict[str, int] = {}
        self.repeated: list[tuple[str, int]] = []
        self.failures = 0
        self._make = (url, tenant, key, topic)
        self._name, self._lock, self._over = name, threading.Lock(), threading.Event()
        self.pause_s = 0.0
        self._threads = [
            threading.Thread(target=self._publish, daemon=True),
            *(threading.Thread(target=self._receive, daemon=True) for _ in range(receivers)),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    @property
    def lost(self) -> set[str]:
        return self.published - self.received.keys()

    @property
    def open(self) -> set[str]:
        """Published, and not known to be acknowledged."""
        return self.published - self.acknowledged.keys()

    def finish(self, seconds: float) -> bool:
        """True when all are published, and all are acknowledged or nothing more comes for those that are not (their
        acknowledgement took effect, and its answer was lost)."""
        ends, quiet_since, before = time.monotonic() + seconds, time.monotonic(), -1
        while time.monotonic() < ends:
            seen = len(self.acknowledged)
            if seen != before:
                before, quiet_since = seen, time.monotonic()
            done = len(self.published) == self.total and not self.lost
            if done and (not self.open or time.monotonic() - quiet_since > 12):
                break
            time.sleep(0.1)
        self._over.set()
        for thread in self._threads:
            thread.join(30)
        return len(self.published) == self.total

    def _publish(self) -> None:
        client: Any = publisher(*self._make, retry_total=0, connection_timeout=2, read_timeout=12)
        for start in range(0, self.total, BATCH):
            events = [
                CloudEvent("/storm", "storm.made", id=str(i), data={"n": i})
                for i in range(start, min(start + BATCH, self.total))
            ]
            while not self._over.is_set() and not self._tried(lambda events=events: client.send(events)):
                pass
            self.published.update(event.id for event in events)
            time.sleep(self.pause_s)

    def _receive(self) -> None:
        client: Any = consumer(*self._make, self._name, retry_total=0, connection_timeout=2, read_timeout=20)
        while not self._over.is_set():
            self._tried(lambda: self._receive_once(client))

    def _receive_once(self, client: Any) -> None:
        got = client.receive(max_events=BATCH, max_wait_time=10)
        ids: dict[str, tuple[str, int]] = {}
        with self._lock:
            for one in got:
                id, count = one.event.id, one.broker_properties.delivery_count
                self.received[id] = count
                if count > self.acknowledged.get(id, count):
                    self.repeated.append((id, count))
                ids[one.broker_properties.lock_token] = (id, count)
        if ids:
            done = client.acknowledge(lock_tokens=list(ids))
            with self._lock:
                for token in done.succeeded_lock_tokens:
                    id, count = ids[token]
                    self.acknowledged[id] = count

    def _tried(self, call: Callable[[], object]) -> bool:
        try:
            call()
        except AzureError:
            self.failures += 1
            time.sleep(0.05)
            return False
        return True
