"""Ingest: every verdict, written where it belongs before its offset is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from agents.ingest import Ingest
from hub_app.domain.fact import Fact
from hub_app.domain.limits import PAYLOAD_BYTES_MAX
from hub_app.kafka.batch import Batch
from hub_app.kafka.outbox import Target
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names, partition_for
from hub_app.wire import facts as wire_facts
from hub_app.wire import quarantine as wire_quarantine
from tests.fakes.clock import FakeClock
from tests.fakes.log import FakeLog
from tests.simulation.broker import Rec

NAMES = names("hub.")
TOPIC = "lerian.streaming.lender"
SHARDS = 4
GOOD = {
    "ce-specversion": b"1.0",
    "ce-id": b"1",
    "ce-source": b"lender",
    "ce-type": b"studio.lerian.lender.loan.paid",
    "ce-time": b"2026-01-02T03:04:05Z",
    "ce-schemaversion": b"1.0.0",
    "ce-resourcetype": b"loan",
    "ce-eventtype": b"paid",
    "ce-tenantid": b"acme",
}


def record(offset: int, value: bytes | None = b"{}", *, topic: str = TOPIC, **changes: bytes | None) -> Rec:
    """A good record but for the changes; None leaves a header out."""
    headers = {**GOOD, **{f"ce-{name}": data for name, data in changes.items()}}
    kept = tuple((name, data) for name, data in headers.items() if data is not None)
    return Rec(topic, 2, offset, 0, b"salted", value, kept)


class Bench:
    def __init__(self, default_tenant: str | None = None) -> None:
        self.clock = FakeClock()
        self.log = FakeLog(self.clock.now_ms)
        self.metrics = Metrics()
        self.ingest = Ingest(
            producer=cast("Any", self.log),
            names=NAMES,
            shards=SHARDS,
            clock=self.clock,
            metrics=self.metrics,
            default_tenant=default_tenant,
        )
        self.answers: list[BaseException | None] = []

    def batch(self, *records: Rec) -> Batch:
        return Batch(
            shard=-1,
            topic=TOPIC,
            partition=2,
            records=cast("Any", records),
            next_offset=records[-1].offset + 1,
            settled=lambda batch, error: self.answers.append(error),
        )

    async def take(self, *records: Rec) -> None:
        await self.ingest.handle([self.batch(*records)])

    def facts(self) -> list[Fact]:
        found = []
        for entry in self.log.records(NAMES.facts):
            fact = wire_facts.read(entry.headers, entry.value, epoch=0, offset=entry.offset)
            assert isinstance(fact, Fact)
            assert entry.key == fact.tenant.encode()
            assert entry.partition == partition_for(entry.key, SHARDS)
            found.append(fact)
        return found

    def quarantined(self) -> list[wire_quarantine.Original]:
        read = [wire_quarantine.read(e.headers, e.key, e.value) for e in self.log.records(NAMES.quarantine)]
        return [one for one in read if isinstance(one, wire_quarantine.Original)]


@pytest.fixture
def bench() -> Bench:
    return Bench()


async def test_an_accepted_record_becomes_a_fact_of_its_tenant(bench: Bench) -> None:
    await bench.take(record(7, b'{"a": 1.0}'))
    [fact] = bench.facts()
    assert (fact.tenant, fact.topic, fact.source, fact.id) == ("acme", "lender", "lender", "1")
    assert (fact.value, fact.event_type, fact.received_at_ms) == (b'{"a": 1.0}', "loan.paid", bench.clock.now_ms())
    [entry] = bench.log.records(NAMES.facts)
    assert wire_facts.origin(entry.headers) == (TOPIC, 2, 7)
    assert bench.answers == [None]


async def test_headers_of_our_own_are_not_a_producers_to_write(bench: Bench) -> None:
    good = record(0)
    await bench.take(good._replace(headers=(*good.headers, ("hub-tenant", b"other"), ("hub-received-at", b"never"))))
    [fact] = bench.facts()
    assert fact.tenant == "acme"
    assert [name for name, _ in fact.headers if name.startswith("hub-")] == []


async def test_a_system_event_is_dropped(bench: Bench) -> None:
    await bench.take(record(0, systemevent=b"true", tenantid=None))
    assert (bench.log.flushes, bench.answers) == ([], [None])


@pytest.mark.parametrize(
    "changes",
    [
        {"id": None},
        {"id": b""},
        {"specversion": b"0.3"},
        {"source": b"other"},
        {"tenantid": None},
        {"tenantid": b"a\x1fb"},
        {"type": b"studio.lerian.lender.loan.refused"},
        {"id": b"\xff"},
    ],
)
async def test_anything_else_stands_in_quarantine_as_it_came(bench: Bench, changes: dict[str, Any]) -> None:
    bad = record(3, b"as it came", **changes)
    await bench.take(record(2), bad, record(4, id=b"2"))
    [original] = bench.quarantined()
    assert (original.key, original.value, original.headers) == (b"salted", b"as it came", bad.headers)
    assert (original.topic, original.partition, original.offset) == (TOPIC, 2, 3)
    assert original.reason
    assert [fact.id for fact in bench.facts()] == ["1", "2"]


async def test_a_null_value_is_an_empty_payload(bench: Bench) -> None:
    await bench.take(record(0, None))
    assert [fact.value for fact in bench.facts()] == [b""]


async def test_what_is_too_large_stands_in_quarantine(bench: Bench) -> None:
    await bench.take(record(0, bytes(PAYLOAD_BYTES_MAX + 1)), record(1, id=b"2"))
    assert [original.offset for original in bench.quarantined()] == [0]
    assert [fact.id for fact in bench.facts()] == ["2"]


async def test_with_one_tenant_a_record_without_takes_it() -> None:
    bench = Bench("default")
    await bench.take(record(0, tenantid=None), record(1, id=b"2"))
    assert [fact.tenant for fact in bench.facts()] in (["default", "acme"], ["acme", "default"])


@pytest.mark.parametrize("written", [False, True])
async def test_nothing_is_committed_before_its_outputs_are_acknowledged(bench: Bench, *, written: bool) -> None:
    def after(_targets: Sequence[Target]) -> None:
        raise ConnectionError("away")

    if written:
        bench.log.after = after
    else:
        bench.log.failure = ConnectionError("away")
    with pytest.raises(ConnectionError):
        await bench.take(record(0), record(1, id=None))
    assert bench.answers == []
    bench.log.failure, bench.log.after = None, lambda targets: None
    await bench.take(record(0), record(1, id=None))
    assert bench.answers == [None]
    assert len(bench.facts()) == len(bench.quarantined()) == (2 if written else 1)


async def test_batches_of_several_partitions_are_one_flush(bench: Bench) -> None:
    await bench.ingest.handle([bench.batch(record(n, id=b"%d" % n)) for n in range(5)])
    assert (len(bench.log.flushes), len(bench.facts()), bench.answers) == (1, 5, [None] * 5)
