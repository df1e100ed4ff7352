"""What the steps share in writing their outputs."""

from __future__ import annotations

from collections.abc import Collection

from hub_app.kafka.outbox import Refused
from hub_app.kafka.producer import Flushed, Outbox
from hub_app.topics import partition_for
from hub_app.wire import quarantine as wire_quarantine
from hub_app.wire.record import OMITTED

_TOO_LARGE = ("MessageSizeTooLarge", "RecordListTooLarge")


class OutputRefused(Exception):
    """The broker refused a record by itself although its size and key were checked: ours to mend. The batch comes
    again, and readiness says why."""


async def flush(outbox: Outbox, *, omits: Collection[str] = ()) -> Flushed:
    """Every output is acknowledged, or this raises. `omits`: see `flush_what_fits`."""
    flushed, refused = await flush_what_fits(outbox, omits=omits)
    for one in refused:
        raise OutputRefused(f"record for {one.topic}/{one.partition}: {one.reason}")
    return flushed


async def flush_what_fits(outbox: Outbox, *, omits: Collection[str] = ()) -> tuple[Flushed, list[Refused]]:
    """Every output is acknowledged but those that the broker refuses for their size. Raises for what it refuses for
    another reason.

    Records of the topics in `omits` are for people, and tell them enough without their value: one that is refused
    (somebody has set the topic's limit below ours) is written once more without it, marked `hub-payload-omitted`."""
    flushed = await outbox.flush()
    refused: list[Refused] = []
    for one in flushed.refused:
        if not too_large(one):
            raise OutputRefused(f"record for {one.topic}/{one.partition}: {one.reason}")
        if one.topic in omits and one.value:
            headers = [OMITTED, ("hub-payload-bytes", b"%d" % len(one.value)), *one.headers]
            outbox.add(one.topic, one.partition, one.key, b"", headers)
        else:
            refused.append(one)
    if len(outbox):
        again = await outbox.flush()
        refused += again.refused
    return flushed, refused


def too_large(refused: Refused) -> bool:
    """Whether its size is why."""
    return refused.reason.startswith(_TOO_LARGE)


def quarantine(
    outbox: Outbox, topic: str, shards: int, record: wire_quarantine.Source, *, reason: str, detail: str
) -> None:
    """Adds a record, as it came, to the quarantine topic."""
    made = wire_quarantine.write(record, reason=reason, detail=detail)
    outbox.add(topic, partition_for(made.partition_key, shards), made.key, made.value, made.headers)
