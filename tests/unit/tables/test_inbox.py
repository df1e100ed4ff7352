"""What an inbox shard remembers, gives back, and forgets."""

from __future__ import annotations

import marshal
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

import pytest

from hub_app.domain.admission import Known, digest
from hub_app.domain.fact import Fact, JsonFact, OpaqueFact
from hub_app.domain.limits import HOUR_MS
from tables.inbox import FAMILIES, Admitted, InboxTable, id_key
from tables.memory import Memory
from tables.shard import Identity, ShardStore

NOW_MS = 1_767_323_045_000
WINDOW_MS = 10 * HOUR_MS
GENERATION_MS = WINDOW_MS + HOUR_MS


def open_store(path: Path) -> ShardStore:
    identity = Identity("cluster", 0, 1)
    return ShardStore.open(path, plane="inbox", shard=0, families=FAMILIES, memory=Memory(), identity=identity)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ShardStore]:
    store = open_store(tmp_path / "0")
    yield store
    store.close()


@pytest.fixture
def table(store: ShardStore) -> InboxTable:
    return InboxTable(store, dedup_window_ms=WINDOW_MS)


def fact(seq: int, tenant: str = "acme", id: str = "", event_type: str = "loan.approved", size: int = 10) -> Fact:
    source = "lender"
    return Fact(
        seq,
        tenant,
        source,
        source,
        id or f"id-{seq}",
        f"studio.lerian.{source}.{event_type}",
        event_type,
        (("ce-id", (id or f"id-{seq}").encode()), ("ce-source", source.encode()), ("x-unknown", b"\x00\xff")),
        b"\xfe" * size,
        NOW_MS + seq,
    )


def remember(table: InboxTable, *facts: Fact, at_ms: int = NOW_MS) -> None:
    batch = table.store.batch()
    table.admit(batch, [Admitted(id_key(f), f, digest(f.type, f.value), at_ms) for f in facts])
    table.store.write(batch)


# -- payloads ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("content_type", "value", "kind"),
    [
        (None, b'{"a": 1.0, "a": 2}', JsonFact),
        (b"application/json", b" [1] ", JsonFact),
        (b"application/vnd.x+json; charset=utf-8", b'"x"', JsonFact),
        (b"application/json", b"{", OpaqueFact),
        (b"application/json", b"", OpaqueFact),
        (b"text/plain", b"{}", OpaqueFact),
        (b"\xff", b"{}", OpaqueFact),
    ],
)
def test_whether_a_payload_is_json_is_found_out_once(
    table: InboxTable, content_type: bytes | None, value: bytes, kind: type[Fact]
) -> None:
    """Also of a tenant whose name is as long as names may be; and retention still finds the tenant."""
    headers = () if content_type is None else (("ce-datacontenttype", content_type),)
    one = fact(1, tenant="t" * 256)._replace(headers=headers, value=value)
    remember(table, one)
    [kept] = table.facts([1])
    assert (kept, type(kept)) == (one, kind)
    batch = table.store.batch()
    assert table.expire(batch, NOW_MS + 1, 10) == 1
    table.store.write(batch)
    assert table.horizon("t" * 256) == 1


def test_rows_of_before_are_read_and_say_nothing_of_it(table: InboxTable) -> None:
    one = fact(1)
    row = Struct(">QH").pack(NOW_MS, len(b"acme")) + b"acme" + marshal.dumps(one[2:], 4)
    batch = table.store.batch()
    batch.put("events", (1).to_bytes(8, "big"), row)
    table.store.write(batch)
    [kept] = table.facts([1])
    assert (kept, type(kept)) == (one, Fact)


# -- identities --------------------------------------------------------------------------------------------------------
def test_what_was_admitted_is_known_by_its_identity(table: InboxTable) -> None:
    first, second = fact(1), fact(2)
    remember(table, first, second)
    assert table.look_up([id_key(second), id_key(fact(3)), id_key(first)]) == [
        Known(2, digest(second.type, second.value), NOW_MS),
        None,
        Known(1, digest(first.type, first.value), NOW_MS),
    ]
    assert table.look_up([]) == []


def test_the_same_id_of_another_tenant_or_source_is_another_identity(table: InboxTable) -> None:
    remember(table, fact(1, id="same"))
    assert table.look_up([id_key(fact(2, tenant="other", id="same"))]) == [None]
    assert table.look_up([id_key(fact(2, id="same")._replace(source="bank"))]) == [None]
    assert table.look_up([id_key(fact(2, id="same")._replace(topic="bank"))]) == [None]


@pytest.mark.parametrize("after_ms", [0, 1, WINDOW_MS - 1])
def test_an_identity_is_remembered_for_the_whole_window(table: InboxTable, after_ms: int) -> None:
    """Admitted at the very end of a generation: the worst place."""
    at_ms = (NOW_MS // GENERATION_MS + 1) * GENERATION_MS - 1
    remember(table, fact(1), at_ms=at_ms)
    remember(table, fact(2), at_ms=at_ms + after_ms)
    (known,) = table.look_up([id_key(fact(1))])
    assert known is not None
    assert (known.seq, known.at_ms) == (1, at_ms)


def test_identities_two_generations_back_are_forgotten(table: InboxTable) -> None:
    remember(table, fact(1), at_ms=NOW_MS)
    remember(table, fact(2), at_ms=NOW_MS + GENERATION_MS)
    remember(table, fact(3), at_ms=NOW_MS + 2 * GENERATION_MS)
    one, two, three = table.look_up([id_key(fact(1)), id_key(fact(2)), id_key(fact(3))])
    assert one is None
    assert two is not None
    assert three is not None


def test_after_a_long_silence_nothing_old_is_left_behind(table: InboxTable) -> None:
    remember(table, fact(1), at_ms=NOW_MS)
    remember(table, fact(2), at_ms=NOW_MS + GENERATION_MS)
    remember(table, fact(3), at_ms=NOW_MS + 9 * GENERATION_MS)
    assert table.look_up([id_key(fact(1)), id_key(fact(2))]) == [None, None]


def test_a_brokers_clock_that_steps_back_an_hour_forgets_nothing(table: InboxTable) -> None:
    turn_ms = (NOW_MS // GENERATION_MS + 2) * GENERATION_MS
    remember(table, fact(1), at_ms=turn_ms - GENERATION_MS + 1)
    remember(table, fact(2), at_ms=turn_ms + GENERATION_MS - 1)
    remember(table, fact(3), at_ms=turn_ms + GENERATION_MS - HOUR_MS)
    assert None not in table.look_up([id_key(fact(2)), id_key(fact(3))])


def test_the_newer_of_two_memories_counts(table: InboxTable) -> None:
    """Outside of the window an identity is first again; its old entry may still lie in the older generation."""
    remember(table, fact(1, id="again"), at_ms=NOW_MS)
    remember(table, fact(2, id="again"), at_ms=NOW_MS + GENERATION_MS)
    (known,) = table.look_up([id_key(fact(3, id="again"))])
    assert known is not None
    assert known.seq == 2


def test_generations_survive_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path / "0")
    table = InboxTable(store, dedup_window_ms=WINDOW_MS)
    remember(table, fact(1), at_ms=NOW_MS)
    remember(table, fact(2), at_ms=NOW_MS + GENERATION_MS)
    store.close()
    store = open_store(tmp_path / "0")
    table = InboxTable(store, dedup_window_ms=WINDOW_MS)
    remember(table, fact(3), at_ms=NOW_MS + GENERATION_MS + 1)
    assert None not in table.look_up([id_key(fact(seq)) for seq in (1, 2, 3)])
    store.close()


# -- facts -------------------------------------------------------------------------------------------------------------
def test_a_fact_comes_back_as_it_went_in(table: InboxTable) -> None:
    odd = fact(1 << 40 | 7, tenant="ten ant/ü", id="i\x1fd\x00", event_type="*")._replace(value=b"", source="sö")
    remember(table, odd, fact(8))
    assert table.fact(odd.tenant, odd.seq) == odd
    assert table.facts([8, 9, odd.seq]) == [fact(8), None, odd]


def test_a_fact_of_another_tenant_is_not_found(table: InboxTable) -> None:
    remember(table, fact(1))
    assert table.fact("other", 1) is None
    assert table.fact("acme", 2) is None


def test_a_tenants_facts_come_in_order_and_alone(table: InboxTable) -> None:
    """Tenants whose names begin alike, or sort between a tenant and its separator."""
    tenants = ["a", "a ", "a!", "ab", "a\x7e", "b"]
    remember(table, *(fact(seq, tenant=tenants[seq % len(tenants)]) for seq in range(1, 61)))
    for number, tenant in enumerate(tenants):
        page = table.events_after(tenant, 0, limit=100, bytes_max=1 << 20)
        assert [f.seq for f in page.facts] == [seq for seq in range(1, 61) if seq % len(tenants) == number]
        assert (page.next_seq, page.more) == (page.facts[-1].seq, False)
        assert (table.oldest(tenant), table.newest(tenant)) == (page.facts[0].seq, page.facts[-1].seq)


def test_a_tenant_without_facts(table: InboxTable) -> None:
    remember(table, fact(1, tenant="b"))
    assert table.events_after("a", 5, limit=10, bytes_max=1000) == ([], 5, False)
    assert (table.oldest("a"), table.newest("a"), table.horizon("a")) == (None, None, -1)


def test_pages_end_at_the_limit_and_go_on_from_there(table: InboxTable) -> None:
    remember(table, *(fact(seq) for seq in range(1, 8)))
    first = table.events_after("acme", 0, limit=3, bytes_max=1 << 20)
    assert ([f.seq for f in first.facts], first.next_seq, first.more) == ([1, 2, 3], 3, True)
    rest = table.events_after("acme", 3, limit=4, bytes_max=1 << 20)
    assert ([f.seq for f in rest.facts], rest.next_seq, rest.more) == ([4, 5, 6, 7], 7, False)
    assert table.events_after("acme", 7, limit=4, bytes_max=1 << 20) == ([], 7, False)


def test_pages_end_before_the_fact_that_would_be_too_much_but_never_before_the_first(table: InboxTable) -> None:
    remember(table, *(fact(seq, size=1_000) for seq in range(1, 5)))
    page = table.events_after("acme", 0, limit=10, bytes_max=2_600)
    assert ([f.seq for f in page.facts], page.next_seq, page.more) == ([1, 2], 2, True)
    page = table.events_after("acme", 2, limit=10, bytes_max=1)
    assert ([f.seq for f in page.facts], page.next_seq, page.more) == ([3], 3, True)


def test_unwanted_facts_are_passed_over_within_a_bound(table: InboxTable) -> None:
    remember(table, *(fact(seq, event_type="loan.paid" if seq % 5 else "loan.lost") for seq in range(1, 21)))
    seen = []

    def wants(event_type: str, source: str) -> bool:
        seen.append(source)
        return event_type == "loan.lost"

    page = table.events_after("acme", 0, limit=10, bytes_max=1 << 20, wants=wants, rows_max=12)
    assert ([f.seq for f in page.facts], page.next_seq, page.more) == ([5, 10], 12, True)
    assert seen == ["lender"] * 12
    page = table.events_after("acme", 12, limit=10, bytes_max=1 << 20, wants=wants)
    assert ([f.seq for f in page.facts], page.next_seq, page.more) == ([15, 20], 20, False)


def test_a_range_ends_where_it_is_told(table: InboxTable) -> None:
    remember(table, *(fact(seq) for seq in range(1, 8)))
    page = table.events_after("acme", 1, until=4, limit=10, bytes_max=1 << 20)
    assert ([f.seq for f in page.facts], page.next_seq, page.more) == ([2, 3, 4], 4, False)


# -- retention ---------------------------------------------------------------------------------------------------------
def expire(table: InboxTable, before_ms: int, limit: int = 100) -> int:
    batch = table.store.batch()
    gone = table.expire(batch, before_ms, limit)
    table.store.write(batch)
    return gone


def test_retention_takes_the_oldest_by_broker_time_in_steps(table: InboxTable) -> None:
    for seq in range(1, 11):
        remember(table, fact(seq, tenant="even" if seq % 2 == 0 else "odd"), at_ms=NOW_MS + seq)
    assert [expire(table, NOW_MS + 7, limit=4), expire(table, NOW_MS + 7, limit=4)] == [4, 2]
    assert expire(table, NOW_MS + 7) == 0
    assert (table.oldest("odd"), table.oldest("even")) == (7, 8)
    assert table.facts([6, 7]) == [None, fact(7, tenant="odd")]
    assert [f.seq for f in table.events_after("odd", 0, limit=9, bytes_max=1 << 20).facts] == [7, 9]
    assert None not in table.look_up([id_key(fact(1, tenant="odd"))])  # identities have generations of their own


def test_the_horizon_is_the_last_fact_of_that_tenant_that_is_gone(table: InboxTable) -> None:
    """A quiet tenant's old cursor has missed nothing because others' facts are gone."""
    remember(table, fact(1, tenant="quiet"), at_ms=NOW_MS)
    for seq in range(2, 11):
        remember(table, fact(seq, tenant="busy"), at_ms=NOW_MS + seq)
    assert expire(table, NOW_MS + 6) == 5
    assert (table.horizon("quiet"), table.horizon("busy"), table.horizon("new")) == (1, 5, -1)


def test_a_rebuild_from_a_log_that_was_cut_knows_nothing_below_its_beginning(tmp_path: Path) -> None:
    store = open_store(tmp_path / "0")
    table = InboxTable(store, dedup_window_ms=WINDOW_MS)
    batch = store.batch()
    table.begin_at(batch, 1_000)
    store.write(batch)
    remember(table, fact(1_000), fact(1_001))
    assert table.horizon("acme") == table.horizon("other") == 999
    assert expire(table, NOW_MS + 1, limit=1) == 1
    assert table.horizon("acme") == 1_000
    store.close()
    store = open_store(tmp_path / "0")
    table = InboxTable(store, dedup_window_ms=WINDOW_MS)
    assert (table.horizon("other"), table.horizon("acme"), table.oldest("acme")) == (999, 1_000, 1_001)
    assert expire(table, NOW_MS + 1) == 1
    store.close()
