"""What every global table does with records: in order, once, and whatever the bytes are."""

from __future__ import annotations

import pytest

from hub_app.domain.apikey import ApiKey
from hub_app.domain.idempotency import Answer
from hub_app.wire import keys as wire_keys
from hub_app.wire import meta as wire_meta
from hub_app.wire.owned import write_deleted
from hub_app.wire.record import Record
from tables.globals import UNREADABLE_MAX, GlobalTable
from tables.keys import KeysTable
from tables.meta import MetaTable


def api_key(id: str, tenant: str = "acme", created_at_ms: int = 1, revoked_at_ms: int | None = None) -> ApiKey:
    return ApiKey(
        id=id,
        tenant=tenant,
        name="n",
        scopes=frozenset(("manage", "receive")),
        secret_sha256=bytes(range(32)),
        created_at_ms=created_at_ms,
        revoked_at_ms=revoked_at_ms,
    )


def apply(table: GlobalTable[object], offset: int, record: Record, partition: int = 0) -> None:
    table.apply(partition, offset, record.key, record.value, record.headers)


@pytest.fixture
def table() -> KeysTable:
    return KeysTable("hub.keys")


def test_records_make_rows_and_nulls_delete_them(table: KeysTable) -> None:
    apply(table, 4, wire_keys.write(api_key("k1")))
    apply(table, 6, wire_keys.write(api_key("k2", created_at_ms=0)))
    assert (table.get("k1"), len(table), table.offset(0)) == (api_key("k1"), 2, 7)
    assert [key.id for key in table.of_tenant("acme")] == ["k2", "k1"]
    apply(table, 9, write_deleted("acme", "k1"))
    assert (table.get("k1"), table.count("acme"), table.offset(0)) == (None, 1, 10)
    apply(table, 10, write_deleted("acme", "never was"))
    assert len(table) == 1


def test_own_writes_are_not_undone_by_the_tail_that_reads_them_later(table: KeysTable) -> None:
    first, second = wire_keys.write(api_key("k1")), wire_keys.write(api_key("k1", created_at_ms=2))
    table.apply_own(3, 10, first.key, first.value, first.headers)
    table.apply_own(3, 12, second.key, second.value, second.headers)
    apply(table, 10, first, partition=3)
    assert table.get("k1") == api_key("k1", created_at_ms=2)
    apply(table, 12, second, partition=3)
    assert table.offset(3) == 13
    apply(table, 0, wire_keys.write(api_key("k2")), partition=4)
    assert table.get("k2") is not None  # partitions are counted apart


def test_a_revoked_key_opens_nothing_but_is_still_a_row(table: KeysTable) -> None:
    apply(table, 0, wire_keys.write(api_key("k1", revoked_at_ms=5)))
    assert (table.get("k1"), table.of_tenant("acme"), table.count("acme")) == (None, [], 1)
    assert table.row("acme", "k1") == api_key("k1", revoked_at_ms=5)
    assert table.row("other", "k1") is None


def test_answers_come_with_the_row(table: KeysTable) -> None:
    answers = (Answer("k", "d", 1, "t"),)
    apply(table, 0, wire_keys.write(api_key("k1"), answers))
    assert (table.answers("acme", "k1"), table.answers("acme", "k2")) == (answers, ())


@pytest.mark.parametrize(
    ("key", "value", "headers"),
    [
        (None, None, ()),
        (b"", b"{}", ()),
        (b"no separator", b"{}", ()),
        (b"\xff\x1fk1", b"{}", ()),
        (b"acme\x1fk1", b"\x00\xff", ()),
        (b"acme\x1fk1", b"[" * 100_000, ()),
        (b"acme\x1fk1", b"[]", ()),
        (b"acme\x1fk1", b"null", ()),
        (b"acme\x1fk1", wire_keys.write(api_key("k2")).value, ()),
        (b"acme\x1fk1", wire_keys.write(api_key("k1", tenant="other")).value, ()),
        (b"acme\x1fk1", (wire_keys.write(api_key("k1")).value or b"").replace(b"manage", b"rule"), ()),
        (b"acme\x1fk1", wire_keys.write(api_key("k1")).value, [("hub-idempotency", b"[[1]]")]),
        (b"acme\x1fk1", None, [("hub-idempotency", b"\xff")]),
    ],
)
def test_a_record_that_cannot_be_read_is_kept_in_view_and_stops_nothing(
    table: KeysTable, key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    table.apply(0, 5, key, value, headers)
    assert (table.unreadable_count, table.offset(0)) == (1, 6)
    (row,) = table.unreadable.values()
    assert (row.partition, row.offset) == (0, 5)
    assert row.reason
    apply(table, 6, wire_keys.write(api_key("k9")))
    assert table.get("k9") == api_key("k9")


def test_a_key_that_can_no_longer_be_read_opens_nothing_and_is_undecided(table: KeysTable) -> None:
    """It may be a revocation by a newer version: 503 then, neither yes nor 401."""
    apply(table, 0, wire_keys.write(api_key("k1")))
    table.apply(0, 1, b"acme\x1fk1", b'{"of": "tomorrow"}', ())
    assert table.get("k1") is None
    assert (table.undecided("k1"), table.undecided("k2")) == (True, False)
    apply(table, 2, wire_keys.write(api_key("k1")))
    assert table.get("k1") == api_key("k1")
    assert not table.undecided("k1")
    assert not table.unreadable


def test_what_cannot_be_read_is_bounded(table: KeysTable) -> None:
    for number in range(UNREADABLE_MAX + 10):
        table.apply(0, number, b"acme\x1f%d" % number, b"?", ())
    assert len(table.unreadable) == UNREADABLE_MAX
    assert table.unreadable_count == UNREADABLE_MAX + 10


def test_a_log_made_anew_is_forgotten_and_read_again(table: KeysTable) -> None:
    apply(table, 100, wire_keys.write(api_key("k1")), partition=1)
    table.apply(1, 101, b"x", b"?", ())
    apply(table, 50, wire_keys.write(api_key("k2")), partition=2)
    table.reset(1)
    assert (table.get("k1"), table.offset(1), dict(table.unreadable)) == (None, 0, {})
    assert (table.get("k2"), table.offset(2)) == (api_key("k2"), 51)
    apply(table, 0, wire_keys.write(api_key("k3")), partition=1)
    assert table.get("k3") == api_key("k3")


def test_meta_holds_schema_and_epochs() -> None:
    table = MetaTable("hub.meta")
    assert (table.schema, table.epoch(3)) == (None, 0)
    apply(table, 0, wire_meta.write(wire_meta.Schema(1)))
    apply(table, 1, wire_meta.write(wire_meta.Epoch(3, 2, "re-created", 1_767_323_045_000)))
    table.apply(0, 2, b"of tomorrow", b"{}", ())
    assert (table.schema, table.epoch(3), table.epoch(4), len(table.unreadable)) == (1, 2, 0, 1)
    table.reset(0)
    assert (table.schema, table.epoch(3)) == (None, 0)
