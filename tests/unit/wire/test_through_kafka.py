"""Records survive Kafka's own record format, in the shapes its client gives and takes."""

from __future__ import annotations

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from hub_app.domain.cloudevents import Accept, judge
from hub_app.domain.delivery import Job
from hub_app.domain.fact import Fact
from hub_app.wire import facts, jobs
from hub_app.wire.record import Headers

EVENT = (
    ("ce-specversion", b"1.0"),
    ("ce-id", b"evt-1"),
    ("ce-source", b"lender"),
    ("ce-type", b"studio.lerian.lender.loan.made"),
    ("ce-time", b"2026-01-02T03:04:05Z"),
    ("ce-schemaversion", b"1"),
    ("ce-resourcetype", b"loan"),
    ("ce-eventtype", b"made"),
    ("ce-tenantid", "ação".encode()),
    ("x", None),
    ("é", b"\xff"),
)


def through_kafka(headers: object) -> tuple[tuple[str, bytes | None], ...]:
    """Headers as a consumer reads them after a producer wrote them."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 20)
    assert builder.append(0, 1, b"k", b"{}", headers) is not None
    (record,) = DefaultRecordBatch(bytes(builder.build()))
    return tuple(record.headers)


def test_from_a_producer_to_a_delivery() -> None:
    accept = judge("lerian.streaming.lender", through_kafka(list(EVENT)), b"{}", default_tenant=None)
    assert isinstance(accept, Accept)
    written: Headers = facts.write(accept, received_at_ms=1, origin=(0, 0))
    fact = facts.read(through_kafka(written), b"{}", epoch=1, offset=2)
    assert isinstance(fact, Fact)
    assert fact.headers == (*EVENT[:9], ("x", b""), ("é", b"\xff"))
    job = Job(b"\x01" * 16, 1, 0, fact.tenant, "https://x/in", "sub_1", "", fact.seq, fact.topic, 1, 0, 3, 0)
    read = jobs.read_record(through_kafka(jobs.write_shared(job, jobs.shared(fact))))
    assert read == (job, fact.headers)
    retried = job._replace(attempt=2, not_before_ms=10_000)
    assert jobs.read_record(through_kafka(jobs.write(retried, fact.headers))) == (retried, fact.headers)
