"""Bounds of one group member."""

from __future__ import annotations

from dataclasses import dataclass

from hub_app.kafka.client import SESSION_TIMEOUT_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`buffer_bytes_max` counts decoded records buffered and in flight, over all partitions.
    `partition_buffer_bytes_max` counts those of one partition that wait; past it no more is decoded until half of it
    is gone. `partition_fetch_bytes_max` and `fetch_bytes_max` are what one partition and one node bring per fetch,
    compressed.

    A fetch returns at once with what has come, so a long wait costs no latency while every partition is being read. One
    that was full or held is left out of it and waits for its end (with half a buffer to go on with): a plane at work
    waits `fetch_wait_ms`, one where everything rests `quiet_wait_ms` (`hub_app.kafka.pace`)."""

    batch_records_max: int = 1_000
    batch_bytes_max: int = 1 << 20
    buffer_bytes_max: int = 24 << 20
    partition_buffer_bytes_max: int = 2 << 20
    partition_fetch_bytes_max: int = 1 << 19
    fetch_bytes_max: int = 1 << 22
    fetch_wait_ms: int = 40
    quiet_wait_ms: int = 500
    retry_first_ms: int = 100
    retry_cap_ms: int = 30_000
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    no_contact_ms: int = 60_000
