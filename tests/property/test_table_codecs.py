"""What the tables write they read back, whatever it is; what they did not write they refuse without an exception."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_app.domain.apikey import SCOPES, ApiKey
from hub_app.domain.fact import Fact
from hub_app.domain.idempotency import Answer
from hub_app.wire import keys as wire_keys
from hub_app.wire import subscriptions as wire_subscriptions
from hub_app.wire.owned import Stored, write_deleted
from hub_app.wire.record import Unreadable
from tables.inbox import FAMILIES, SEQ_MAX, Admitted, InboxTable, id_key
from tables.keys import KeysTable
from tables.memory import Memory
from tables.meta import MetaTable
from tables.shard import Identity, ShardStore
from tables.subscriptions import SubscriptionsTable

TEXT = st.text(max_size=20)
TENANT = st.text(st.characters(exclude_categories=("Cc", "Cs")), max_size=8)
HEADERS = st.lists(st.tuples(TEXT, st.binary(max_size=20)), max_size=6).map(tuple)
INSTANT = st.integers(0, 4_102_444_800_000)
ANSWERS = st.lists(st.builds(Answer, TEXT, TEXT, INSTANT, TEXT), max_size=3).map(tuple)
FACT = st.builds(
    Fact,
    seq=st.integers(0, SEQ_MAX - 1),
    tenant=TENANT,
    topic=TEXT,
    source=TEXT,
    id=TEXT,
    type=TEXT,
    event_type=TEXT,
    headers=HEADERS,
    value=st.binary(max_size=200),
    received_at_ms=INSTANT,
)
KEY = st.builds(
    ApiKey,
    id=TEXT,
    tenant=TENANT,
    name=TEXT,
    scopes=st.frozensets(st.sampled_from(SCOPES)),
    secret_sha256=st.binary(min_size=32, max_size=32),
    created_at_ms=INSTANT,
    revoked_at_ms=st.none() | INSTANT,
)


@pytest.fixture(scope="module")
def table() -> Iterator[InboxTable]:
    with tempfile.TemporaryDirectory() as folder:
        store = ShardStore.open(
            Path(folder) / "0",
            plane="inbox",
            shard=0,
            families=FAMILIES,
            memory=Memory(),
            identity=Identity("c", 0, 1),
        )
        yield InboxTable(store, dedup_window_ms=3_600_000)
        store.close()


@settings(deadline=None)
@given(facts=st.lists(FACT, min_size=1, max_size=5, unique_by=lambda fact: fact.seq))
def test_facts_come_back_as_they_went_in(table: InboxTable, facts: list[Fact]) -> None:
    batch = table.store.batch()
    table.admit(batch, [Admitted(id_key(fact), fact, b"d" * 16, 1) for fact in facts])
    table.store.write(batch)
    assert table.facts([fact.seq for fact in facts]) == facts
    for fact in facts:
        page = table.events_after(fact.tenant, fact.seq - 1 if fact.seq else -1, limit=1, bytes_max=0)
        assert page.facts == [fact]


@given(key=KEY, answers=ANSWERS)
def test_keys_come_back_as_they_went_in(key: ApiKey, answers: tuple[Answer, ...]) -> None:
    record = wire_keys.write(key, answers)
    assert wire_keys.read(record.key, record.value, record.headers) == (key.tenant, key.id, key, answers)
    gone = write_deleted(key.tenant, key.id, answers)
    assert wire_keys.read(gone.key, gone.value, gone.headers) == (key.tenant, key.id, None, answers)
    other = wire_keys.write(replace(key, id=key.id + "x"))
    assert isinstance(wire_keys.read(record.key, other.value, ()), Unreadable)


@given(
    records=st.lists(
        st.tuples(
            st.none() | st.binary(max_size=12) | st.just(b"t\x1fid"),
            st.none() | st.binary(max_size=40) | st.sampled_from([b"{}", b"[]", b"null", b'{"id":1}', b"1e999"]),
            st.lists(
                st.tuples(st.just("hub-idempotency") | TEXT, st.none() | st.binary(max_size=12) | st.just(b"[[]]")),
                max_size=2,
            ),
        ),
        max_size=8,
    )
)
def test_no_record_stops_a_global_table(
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    for table in (KeysTable("k"), SubscriptionsTable("s"), MetaTable("m")):
        for offset, (key, value, headers) in enumerate(records):
            table.apply(0, offset, key, value, headers)
        assert table.offset(0) == len(records)
        table.reset(0)
        assert table.offset(0) == 0
    for key, value, headers in records:
        read = wire_subscriptions.read(key, value, headers)
        assert isinstance(read, Stored | Unreadable)
