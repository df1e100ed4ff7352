"""An inbox shard in a dict."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hub_app.domain.fact import Fact
from hub_app.domain.operation import SEQ_MAX
from tables.shard import ShardStore


class Page(NamedTuple):
    facts: list[Fact]
    next_seq: int
    more: bool


class FakeInbox:
    """`hub_app.web.deps.InboxReader`; passes the suite of the real table (tests/contract/test_inbox_reader.py)."""

    def __init__(self, open_store: Callable[[], ShardStore] | None = None) -> None:
        self._facts: dict[int, Fact] = {}
        self._open_store = open_store
        self._store: ShardStore | None = None
        self._floors: dict[str, int] = {}

    @property
    def store(self) -> ShardStore:
        """The store of what is made from other logs, opened when it is first asked for."""
        if self._store is None:
            assert self._open_store is not None
            self._store = self._open_store()
        return self._store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()

    def add(self, *facts: Fact) -> None:
        self._facts.update((fact.seq, fact) for fact in facts)

    def expire(self, upto: int) -> None:
        """Takes every fact with seq <= `upto` away."""
        for seq in sorted(seq for seq in self._facts if seq <= upto):
            self._floors[self._facts.pop(seq).tenant] = seq

    def events_after(
        self,
        tenant: str,
        after: int,
        *,
        limit: int,
        bytes_max: int,
        until: int = SEQ_MAX,
        wants: Callable[[str, str], bool] | None = None,
        rows_max: int = 2_000,
    ) -> Page:
        facts: list[Fact] = []
        size, looked_at, rows = 0, after, 0
        for seq in self._seqs(tenant):
            if seq <= after:
                continue
            if seq > until:
                break
            if rows == rows_max:
                return Page(facts, looked_at, True)
            rows += 1
            fact = self._facts[seq]
            if wants is None or wants(fact.event_type, fact.source):
                size += len(fact.value)
                if len(facts) == limit or (facts and size > bytes_max):
                    return Page(facts, looked_at, True)
                facts.append(fact)
            looked_at = seq
        return Page(facts, looked_at, rows == rows_max)

    def fact(self, tenant: str, seq: int) -> Fact | None:
        fact = self._facts.get(seq)
        return fact if fact is not None and fact.tenant == tenant else None

    def oldest(self, tenant: str) -> int | None:
        return next(iter(self._seqs(tenant)), None)

    def newest(self, tenant: str) -> int | None:
        return next(reversed(self._seqs(tenant)), None)

    def horizon(self, tenant: str) -> int:
        return self._floors.get(tenant, -1)

    def _seqs(self, tenant: str) -> list[int]:
        return sorted(seq for seq, fact in self._facts.items() if fact.tenant == tenant)
