"""What every reader of an inbox shard does: the real table and the one in a dict."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import pytest

from hub_app.domain.admission import DIGEST_BYTES
from hub_app.domain.fact import Fact
from hub_app.web.deps import InboxReader
from tables.inbox import FAMILIES, Admitted, InboxTable, id_key
from tables.memory import Memory
from tables.shard import Identity, ShardStore
from tests.fakes.facts import fact
from tests.fakes.inbox import FakeInbox

HUGE = 1 << 30


class Shard(Protocol):
    @property
    def reader(self) -> InboxReader: ...

    def add(self, *facts: Fact) -> None: ...

    def expire(self, upto: int) -> None: ...


class FakeShard:
    def __init__(self) -> None:
        self.reader = self.inbox = FakeInbox()

    def add(self, *facts: Fact) -> None:
        self.inbox.add(*facts)

    def expire(self, upto: int) -> None:
        self.inbox.expire(upto)


class RealShard:
    """Broker time is the seq here, so that `expire` can be told by seq."""

    def __init__(self, folder: Path) -> None:
        self.store = ShardStore.open(
            folder, plane="inbox", shard=0, families=FAMILIES, memory=Memory(), identity=Identity("c", 0, 1)
        )
        self.reader = self.table = InboxTable(self.store, dedup_window_ms=3_600_000)

    def add(self, *facts: Fact) -> None:
        batch = self.store.batch()
        self.table.admit(batch, [Admitted(id_key(f), f, bytes(DIGEST_BYTES), f.seq) for f in facts])
        self.store.write(batch)

    def expire(self, upto: int) -> None:
        batch = self.store.batch()
        self.table.expire(batch, upto + 1, 1_000)
        self.store.write(batch)


@pytest.fixture(params=["table", "fake"])
def shard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shard]:
    if request.param == "fake":
        yield FakeShard()
        return
    real = RealShard(tmp_path / "shard")
    yield real
    real.store.close(clean=True)


def seqs(facts: list[Fact]) -> list[int]:
    return [found.seq for found in facts]


def test_an_empty_shard(shard: Shard) -> None:
    reader = shard.reader
    page = reader.events_after("t", -1, limit=10, bytes_max=HUGE)
    assert (page.facts, page.next_seq, page.more) == ([], -1, False)
    assert (reader.oldest("t"), reader.newest("t"), reader.horizon("t"), reader.fact("t", 0)) == (None, None, -1, None)


def test_a_tenant_reads_its_own_facts_in_order(shard: Shard) -> None:
    shard.add(fact(0), fact(1, "u"), fact(2), fact(5), fact(6, "t2"))
    page = shard.reader.events_after("t", -1, limit=10, bytes_max=HUGE)
    assert (seqs(page.facts), page.next_seq, page.more) == ([0, 2, 5], 5, False)
    assert page.facts[0] == fact(0)
    assert seqs(shard.reader.events_after("t", 2, limit=10, bytes_max=HUGE).facts) == [5]
    assert shard.reader.events_after("t", 5, limit=10, bytes_max=HUGE).next_seq == 5
    assert (shard.reader.oldest("t"), shard.reader.newest("t"), shard.reader.newest("u")) == (0, 5, 1)


def test_one_fact_of_ones_own(shard: Shard) -> None:
    shard.add(fact(3, "t"))
    assert shard.reader.fact("t", 3) == fact(3, "t")
    assert shard.reader.fact("u", 3) is None
    assert shard.reader.fact("t", 4) is None


def test_an_end_is_included(shard: Shard) -> None:
    shard.add(*(fact(seq) for seq in (1, 3, 5)))
    page = shard.reader.events_after("t", -1, limit=10, bytes_max=HUGE, until=3)
    assert (seqs(page.facts), page.next_seq, page.more) == ([1, 3], 3, False)


def test_a_full_page_says_that_there_is_more(shard: Shard) -> None:
    shard.add(*(fact(seq) for seq in range(5)))
    page = shard.reader.events_after("t", -1, limit=2, bytes_max=HUGE)
    assert (seqs(page.facts), page.next_seq, page.more) == ([0, 1], 1, True)


def test_a_page_has_a_weight_but_holds_one_fact(shard: Shard) -> None:
    shard.add(*(fact(seq, value=b"x" * 10_000) for seq in range(3)))
    page = shard.reader.events_after("t", -1, limit=10, bytes_max=1)
    assert (seqs(page.facts), page.next_seq, page.more) == ([0], 0, True)


def test_what_is_not_wanted_is_passed_over(shard: Shard) -> None:
    shard.add(fact(0), fact(1, source="other"), fact(2, event_type="loan.denied"), fact(3, source="other"))
    page = shard.reader.events_after("t", -1, limit=10, bytes_max=HUGE, wants=lambda kind, source: source == "other")
    assert (seqs(page.facts), page.next_seq) == ([1, 3], 3)
    page = shard.reader.events_after(
        "t", -1, limit=10, bytes_max=HUGE, wants=lambda kind, source: kind == "loan.denied"
    )
    assert (seqs(page.facts), page.next_seq) == ([2], 3)
    page = shard.reader.events_after("t", -1, limit=1, bytes_max=HUGE, wants=lambda kind, source: source == "other")
    assert (seqs(page.facts), page.more) == ([1], True)
    assert page.next_seq in (1, 2)  # what was passed over behind the last fact may or may not be counted


def test_the_very_first_fact_is_missed_too(shard: Shard) -> None:
    shard.add(fact(0), fact(1))
    shard.expire(0)
    assert shard.reader.horizon("t") == 0


def test_retention_leaves_a_floor(shard: Shard) -> None:
    shard.add(fact(0), fact(1), fact(2, "u"), fact(3))
    shard.expire(2)
    assert (shard.reader.horizon("t"), shard.reader.horizon("u"), shard.reader.oldest("t")) == (1, 2, 3)
    assert seqs(shard.reader.events_after("t", 1, limit=10, bytes_max=HUGE).facts) == [3]
    assert shard.reader.fact("t", 1) is None
