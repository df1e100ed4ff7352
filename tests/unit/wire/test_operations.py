"""Records of bulk operations: written and read back, and read whatever they hold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.idempotency import Answer
from hub_app.domain.operation import (
    SEQ_MAX,
    Operation,
    OperationKind,
    OperationState,
    Span,
    advanced,
    begun,
    ended,
    forgettable,
    operation_id,
)
from hub_app.wire import operations as wire
from hub_app.wire.owned import Stored, write_deleted
from hub_app.wire.record import Unreadable
from tables.operations import OperationsTable

whole = st.integers(0, SEQ_MAX)
texts = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=20)
operations = st.builds(
    Operation,
    id=texts,
    tenant=texts,
    kind=st.sampled_from(OperationKind),
    subscription=texts,
    span=st.builds(Span, from_seq=whole, to_seq=whole, from_ms=whole, to_ms=whole),
    where=st.dictionaries(texts, texts, max_size=3),
    dry_run=st.booleans(),
    state=st.sampled_from(OperationState),
    cursor=whole,
    looked_at=whole,
    made=whole,
    detail=texts,
    created_at_ms=whole,
    updated_at_ms=whole,
)
A_REPLAY = begun(
    id="opn_a", tenant="t", kind=OperationKind.REPLAY, subscription="sub_a", span=Span(from_seq=3), now_ms=1_000
)


@given(operations)
def test_read_back(operation: Operation) -> None:
    answers = (Answer("k", "d", 5, ""),)
    record = wire.write(operation, answers)
    read = wire.read(record.key, record.value, record.headers)
    assert read == wire.Stored(operation.tenant, operation.id, operation, answers)


@given(st.binary(max_size=20), st.none() | st.binary(max_size=40) | st.just(b"{}") | st.just(b'{"span":[1]}'))
def test_reading_is_total(key: bytes, value: bytes | None) -> None:
    assert isinstance(wire.read(key, value, ()), Stored | Unreadable)


def test_another_key_than_the_values() -> None:
    record = wire.write(A_REPLAY)
    assert isinstance(wire.read(b"u\x1fopn_a", record.value, record.headers), Unreadable)


def test_a_life() -> None:
    one = advanced(A_REPLAY, cursor=9, looked_at=4, made=2, done=False, now_ms=2_000)
    two = advanced(one, cursor=20, looked_at=1, made=1, done=True, now_ms=3_000)
    assert (one.state, two.state) == (OperationState.RUNNING, OperationState.DONE)
    assert (two.cursor, two.looked_at, two.made, two.updated_at_ms) == (20, 5, 3, 3_000)
    assert ended(two, OperationState.CANCELLED, now_ms=4_000) is two
    assert ended(one, OperationState.CANCELLED, now_ms=4_000).state is OperationState.CANCELLED
    assert not forgettable(one, SEQ_MAX)
    assert (forgettable(two, 3_000 + 7 * 86_400_000 - 1), forgettable(two, 3_000 + 7 * 86_400_000)) == (False, True)


def test_a_span_has_two_kinds_of_ends() -> None:
    span = Span(from_seq=3, to_seq=5, from_ms=100, to_ms=200)
    places = ((3, 100), (5, 199), (2, 100), (6, 100), (3, 99), (3, 200))
    assert [span.covers(*place) for place in places] == [True, True, False, False, False, False]


def test_ids_are_a_tenants_own() -> None:
    assert operation_id("t", "key:a") != operation_id("u", "key:a")
    assert operation_id("t", "key:a") == operation_id("t", "key:a")


def test_the_table_knows_what_runs() -> None:
    table = OperationsTable("hub.operations")

    def put(offset: int, operation: Operation) -> None:
        record = wire.write(operation)
        table.apply(0, offset, record.key, record.value, record.headers)

    put(0, A_REPLAY)
    assert (table.running(), table.count("t"), table.count("u")) == ([A_REPLAY], 1, 0)
    over = ended(A_REPLAY, OperationState.CANCELLED, now_ms=2_000)
    put(1, over)
    assert (table.running(), table.count("t"), table.get("t", "opn_a")) == ([], 0, over)
    gone = write_deleted("t", "opn_a")
    table.apply(0, 2, gone.key, gone.value, gone.headers)
    assert (len(table), table.of_tenant("t")) == (0, [])
