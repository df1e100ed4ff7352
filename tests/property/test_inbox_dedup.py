"""The two-generation table of identities decides as a dictionary that forgets nothing would, restarts and rebuilds
included."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from hub_app.domain.admission import Admission, Known, admit, digest
from hub_app.domain.fact import Fact
from hub_app.domain.limits import HOUR_MS
from tables.inbox import FAMILIES, Admitted, InboxTable, id_key
from tables.memory import Memory
from tables.shard import Identity, ShardStore

WINDOW_MS = 5 * HOUR_MS
Record = tuple[int, int, int]  # which identity, which content, milliseconds since the record before it

RECORDS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.integers(0, 1),
        st.one_of(
            st.integers(0, 3),
            st.sampled_from([WINDOW_MS - 1, WINDOW_MS, WINDOW_MS + 1, WINDOW_MS + HOUR_MS, 3 * WINDOW_MS]),
            st.integers(-HOUR_MS // 50, 2 * WINDOW_MS),
        ),
    ),
    min_size=1,
    max_size=50,
)


def _fact(seq: int, identity: int, content: int) -> Fact:
    return Fact(seq, "t", "s", "s", str(identity), "type", "a.b", (), b"%d" % content, 0)


def _table(path: Path) -> InboxTable:
    return InboxTable(
        ShardStore.open(path, plane="inbox", shard=0, families=FAMILIES, memory=Memory(), identity=Identity("c", 0, 1)),
        dedup_window_ms=WINDOW_MS,
    )


def _decide(known: Known | None, fact: Fact, at_ms: int) -> Admission:
    return admit(known, seq=fact.seq, digest=digest(fact.type, fact.value), at_ms=at_ms, window_ms=WINDOW_MS)


def _by_dictionary(facts: list[tuple[Fact, int]]) -> list[Admission]:
    newest: dict[bytes, Known] = {}
    decisions = []
    for fact, at_ms in facts:
        decision = _decide(newest.get(id_key(fact)), fact, at_ms)
        if decision is Admission.FIRST:
            newest[id_key(fact)] = Known(fact.seq, digest(fact.type, fact.value), at_ms)
        decisions.append(decision)
    return decisions


def _step(table: InboxTable, facts: list[tuple[Fact, int]]) -> list[Admission]:
    """One batch, as the inbox takes it."""
    here: dict[bytes, Known] = {}
    admitted, decisions = [], []
    for (fact, at_ms), known in zip(facts, table.look_up([id_key(fact) for fact, _ in facts]), strict=True):
        key, mark = id_key(fact), digest(fact.type, fact.value)
        decision = _decide(here.get(key) or known, fact, at_ms)
        if decision is Admission.FIRST:
            here[key] = Known(fact.seq, mark, at_ms)
            admitted.append(Admitted(key, fact, mark, at_ms))
        decisions.append(decision)
    batch = table.store.batch()
    table.admit(batch, admitted)
    table.store.write(batch)
    return decisions


@settings(max_examples=60, deadline=None)
@given(records=RECORDS, sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20), restarts=st.sets(st.integers(0, 9)))
def test_generations_decide_as_a_dictionary(records: list[Record], sizes: list[int], restarts: set[int]) -> None:
    at_ms, facts = 1_767_323_045_000, []
    for seq, (identity, content, step_ms) in enumerate(records, 1):
        at_ms += step_ms
        facts.append((_fact(seq, identity, content), at_ms))
    with tempfile.TemporaryDirectory() as folder:
        table = _table(Path(folder) / "0")
        decisions: list[Admission] = []
        number = 0
        while len(decisions) < len(facts):
            size = sizes[number % len(sizes)]
            decisions += _step(table, facts[len(decisions) : len(decisions) + size])
            if number in restarts:
                table.store.close()
                table = _table(Path(folder) / "0")
            number += 1
        table.store.close()
        assert decisions == _by_dictionary(facts)
        rebuilt = _table(Path(folder) / "1")
        assert [d for fact in facts for d in _step(rebuilt, [fact])] == decisions
        rebuilt.store.close()
