"""How often a consumer asks, where aiokafka (tried: 0.14.0) has no public setting for it.

An idle consumer costs what its round trips cost: a fetch of a hundred partitions is some 0.7 ms of CPU. So it waits
long at the broker where nothing can be kept waiting by that: one connection carries one request at a time, and what is
asked while a fetch waits (offsets; a partition that was not part of it) waits with it."""

from __future__ import annotations

from aiokafka import AIOKafkaConsumer

LOOK_AGAIN_S = 1.0
PREFETCH_BACKOFF_S = 0.005


def calm(consumer: AIOKafkaConsumer) -> None:
    """Its fetching task looks for something to do once a second, not five times; what happens wakes it all the same.
    For a consumer that was started."""
    consumer._fetcher._fetcher_timeout = LOOK_AGAIN_S


def never_hold_back(consumer: AIOKafkaConsumer) -> None:
    """aiokafka holds a node's next fetch back while something fetched waits to be taken, up to 100 ms. For who takes
    what is new within a loop's turn: what waits longer waits on purpose, and must not delay the others."""
    consumer._fetcher._prefetch_backoff = PREFETCH_BACKOFF_S


def wait(consumer: AIOKafkaConsumer, wait_ms: int) -> None:
    """How long its next fetches may wait at the broker for a first record."""
    consumer._fetcher._fetch_max_wait_ms = wait_ms
