"""What the steps share in writing their outputs."""

from __future__ import annotations

from hub_app.kafka.producer import Flushed, Outbox
from hub_app.topics import partition_for
from hub_app.wire import quarantine as wire_quarantine


class OutputRefused(Exception):
    """The broker refused a record by itself although its size and key were checked: ours to mend. The batch comes
    again, and readiness says why."""


async def flush(outbox: Outbox) -> Flushed:
    """Every output is acknowledged, or this raises."""
    flushed = await outbox.flush()
    if flushed.refused:
        first = flushed.refused[0]
        raise OutputRefused(f"record for {first.topic}/{first.partition}: {first.reason}")
    return flushed


def quarantine(
    outbox: Outbox, topic: str, shards: int, record: wire_quarantine.Source, *, reason: str, detail: str
) -> None:
    """Adds a record, as it came, to the quarantine topic."""
    made = wire_quarantine.write(record, reason=reason, detail=detail)
    outbox.add(topic, partition_for(made.partition_key, shards), made.key, made.value, made.headers)
