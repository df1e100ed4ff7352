"""Low-water marks against a plain set of unfinished offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hub_app.kafka import lowwater
from hub_app.kafka.lowwater import LowWater


class AgainstASet(RuleBasedStateMachine):
    """The model: a set of unfinished offsets and a position."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = LowWater(5)
        self.unfinished: set[int] = set()
        self.position = 5

    @rule(gap=st.sampled_from([0, 0, 0, 1, 2, 700, 5000]))
    def read(self, gap: int) -> None:
        offset = self.position + gap
        self.marks.read(offset)
        self.unfinished.add(offset)
        self.position = offset + 1

    @rule(count=st.integers(1, 3000))
    def read_many(self, count: int) -> None:
        for offset in range(self.position, self.position + count):
            self.marks.read(offset)
        self.unfinished.update(range(self.position, self.position + count))
        self.position += count

    @rule(gap=st.integers(-3, 6000))
    def advance(self, gap: int) -> None:
        self.marks.advance(self.position + gap)
        self.position = max(self.position, self.position + gap)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def finish_one(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(sorted(self.unfinished)[:50] + sorted(self.unfinished)[-50:]))
        self.marks.finish(offset)
        self.marks.finish(offset)
        self.unfinished.discard(offset)

    @precondition(lambda self: self.unfinished)
    @rule(part=st.floats(0, 1))
    def finish_front(self, part: float) -> None:
        for offset in sorted(self.unfinished)[: int(len(self.unfinished) * part)]:
            self.marks.finish(offset)
            self.unfinished.discard(offset)

    @rule(offset=st.integers(-10, 100_000))
    def finish_anything(self, offset: int) -> None:
        self.marks.finish(offset)
        self.unfinished.discard(offset)

    @precondition(lambda self: self.unfinished)
    @rule(data=st.data())
    def read_again(self, data: st.DataObject) -> None:
        offset = data.draw(st.integers(min(self.unfinished), self.position - 1))
        self.marks.read(offset)
        self.unfinished.add(offset)

    @rule()
    def rebuild(self) -> None:
        self.marks = LowWater(self.position, self.unfinished)

    @invariant()
    def agrees(self) -> None:
        low = min(self.unfinished, default=self.position)
        assert self.marks.low() == low
        assert self.marks.position() == self.position
        assert self.marks.span() == self.position - low
        assert self.marks.pending() == len(self.unfinished)


AgainstASet.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestAgainstASet = AgainstASet.TestCase


@given(st.sets(st.integers(0, 500)))
def test_rebuilt_marks_finish_in_any_order(unfinished: set[int]) -> None:
    marks = LowWater(501, unfinished)
    for offset in sorted(unfinished, reverse=True):
        assert marks.is_unfinished(offset)
        marks.finish(offset)
    assert (marks.low(), marks.pending()) == (501, 0)


def test_the_front_is_cut_off_so_that_memory_follows_the_span() -> None:
    marks = LowWater(0)
    for offset in range(lowwater.COMPACT_AT * 20):
        marks.read(offset)
        marks.finish(offset)
    assert len(marks._bits) <= lowwater.COMPACT_AT
    assert marks.low() == lowwater.COMPACT_AT * 20


def test_one_unfinished_record_holds_the_mark() -> None:
    marks = LowWater(0)
    for offset in range(60_000):
        marks.read(offset)
        if offset != 4:
            marks.finish(offset)
    assert (marks.low(), marks.span()) == (4, 59_996)
    marks.finish(4)
    assert (marks.low(), marks.span()) == (60_000, 0)


def test_below_the_low_mark_nothing_can_become_unfinished_again() -> None:
    marks = LowWater(10, [7])
    with pytest.raises(ValueError, match="below the low mark"):
        marks.read(3)


def test_unfinished_offsets_lie_below_the_position() -> None:
    with pytest.raises(ValueError, match="not below the position"):
        LowWater(10, [10])
