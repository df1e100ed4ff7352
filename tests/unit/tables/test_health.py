"""The table of sinks' health: by place, and who is to be disabled."""

from __future__ import annotations

from hub_app.domain.autodisable import Streak
from hub_app.domain.breaker import Breaker
from hub_app.domain.health import BreakerHealth, StreakHealth
from hub_app.wire import health as wire
from hub_app.wire.record import Record
from tables.health import HealthTable

T = 1_767_323_045_678
HERE, THERE = ("acme", "https://a.example/"), ("acme", "https://b.example/")


class Written:
    def __init__(self) -> None:
        self.table, self.offset = HealthTable("hub.health"), 0

    def __call__(self, record: Record) -> None:
        self.table.apply(0, self.offset, record.key, record.value)
        self.offset += 1


def streak(place: tuple[str, str], *, wanted: bool = False) -> StreakHealth:
    return StreakHealth(*place, "sub_1", Streak(T, T + 1), 0, wanted)


def test_breakers_and_streaks_by_place() -> None:
    written = Written()
    table = written.table
    breaker = BreakerHealth(*HERE, Breaker(5, T, 30_000), T)
    written(wire.write(breaker))
    written(wire.write(streak(THERE)))
    assert (table.breaker(HERE), table.breaker(THERE)) == (breaker, None)
    assert (table.streaks(HERE), table.streaks(THERE)) == ({}, {"sub_1": streak(THERE)})
    assert sorted(table.places(lambda place: True)) == [HERE, THERE]
    assert list(table.places(lambda place: place == THERE)) == [THERE]
    written(wire.write_cleared(*HERE))
    written(wire.write_cleared(*THERE, "sub_1"))
    assert list(table.places(lambda place: True)) == []


def test_who_is_to_be_disabled() -> None:
    written = Written()
    written(wire.write(streak(HERE, wanted=True)))
    assert written.table.wanted == {("acme", "sub_1"): streak(HERE, wanted=True)}
    written(wire.write(streak(THERE)))  # another address of it says nothing about this one
    assert written.table.wanted
    written(wire.write(streak(HERE)))
    assert not written.table.wanted
    written(wire.write(streak(HERE, wanted=True)))
    written(wire.write_cleared(*HERE, "sub_1"))
    assert not written.table.wanted


def test_a_log_made_anew_is_forgotten() -> None:
    written = Written()
    written(wire.write(BreakerHealth(*HERE, Breaker(5, T, 30_000), T)))
    written(wire.write(streak(HERE, wanted=True)))
    written.table.reset(0)
    assert (list(written.table.places(lambda place: True)), written.table.wanted) == ([], {})
