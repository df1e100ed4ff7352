"""The scheduler's rules at their edges. That all of them hold together is in tests/property/test_fairness_model.py."""

from __future__ import annotations

import pytest

from hub_app.domain.fairness import Scheduler

WALL = 1_000_000


def drain(scheduler: Scheduler[str], now_ms: int = WALL, mono_ms: int = 0) -> list[str]:
    picked = []
    while (ref := scheduler.pick(now_ms, mono_ms)) is not None:
        picked.append(ref)
    return picked


def end(scheduler: Scheduler[str], *refs: str, ok: bool | None = True, mono_ms: int = 0) -> None:
    for ref in refs:
        scheduler.finished(ref, ok=ok, now_ms=WALL, mono_ms=mono_ms)


def offer(scheduler: Scheduler[str], *refs: str, due_ms: int = WALL) -> None:
    """`tenant/destination#n`"""
    for ref in refs:
        tenant, destination = ref.split("#")[0].split("/")
        scheduler.offer(tenant, destination, due_ms, ref)


def test_tenants_in_turn_then_destinations_in_turn_then_due_time() -> None:
    s: Scheduler[str] = Scheduler(64)
    s.offer("a", "x", WALL - 1, "a/x#late")
    s.offer("a", "x", WALL - 9, "a/x#early")
    offer(s, "a/y#1", "b/z#1", "b/z#2", "c/w#1")
    assert drain(s) == ["a/x#early", "b/z#1", "c/w#1", "a/y#1", "b/z#2", "a/x#late"]


def test_equal_due_times_go_in_the_order_of_their_offers() -> None:
    s: Scheduler[str] = Scheduler(64)
    offer(s, "a/x#1", "a/x#2", "a/x#3")
    assert drain(s) == ["a/x#1", "a/x#2", "a/x#3"]


def test_one_job_beside_a_hundred_thousand_is_next_within_one_turn() -> None:
    s: Scheduler[str] = Scheduler(8)
    for i in range(100_000):
        s.offer("big", f"d{i % 1000}", WALL, f"big/d{i % 1000}#{i}")
    for _ in range(2_000):
        ref = s.pick(WALL, 0)
        assert ref is not None
        end(s, ref)
    offer(s, "small/only#1")
    turns = [s.pick(WALL, 0) for _ in range(2)]
    assert "small/only#1" in turns


def test_many_tenants_wait_one_turn_each() -> None:
    s: Scheduler[str] = Scheduler(64)
    for n in range(20):
        for d in range(50):
            offer(s, f"t{n}/d{d}#1")
    s.pick(WALL, 0)
    offer(s, "new/d#1")
    assert drain(s).index("new/d#1") == 20


def test_future_jobs_wait_and_the_waker_says_until_when() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#1", due_ms=WALL + 10)
    assert s.pick(WALL + 9, 0) is None
    assert s.next_wake_ms() == WALL + 10
    assert s.pick(WALL + 10, 0) == "a/x#1"
    assert s.next_wake_ms() is None


def test_no_waker_while_all_workers_are_busy() -> None:
    s: Scheduler[str] = Scheduler(1)
    offer(s, "a/x#1", "a/x#2")
    offer(s, "a/y#1", due_ms=WALL + 5)
    assert drain(s) == ["a/x#1"]
    assert s.next_wake_ms() is None
    end(s, "a/x#1")
    assert s.pick(WALL, 0) == "a/x#2"


@pytest.mark.parametrize(("workers", "low", "half"), [(1, 1, 1), (2, 1, 1), (8, 1, 4), (31, 1, 15), (64, 4, 32)])
def test_window_starts_low_grows_with_success_and_never_passes_half(workers: int, low: int, half: int) -> None:
    s: Scheduler[str] = Scheduler(workers)
    offer(s, *[f"a/x#{i}" for i in range(400)])
    flying = drain(s)
    assert len(flying) == low
    seen = []
    for _ in range(100):
        end(s, flying.pop(0))
        flying += drain(s)
        seen.append(s.flying("a", "x"))
    assert max(seen) == half == seen[-1]
    assert all(b - a in (0, 1) for a, b in zip([low, *seen], seen, strict=False))


def test_window_shrinks_without_work_and_falls_at_a_failure() -> None:
    s: Scheduler[str] = Scheduler(64)
    offer(s, *[f"a/x#{i}" for i in range(12)])
    flying = drain(s)
    while s.waiting:
        end(s, flying.pop(0))
        flying += drain(s)
    assert len(flying) == 8  # four successes that found more work
    end(s, *flying[:3])  # and three that found none
    del flying[:3]
    offer(s, *[f"a/x#again{i}" for i in range(20)])
    flying += drain(s)
    assert len(flying) == 5
    end(s, flying.pop(0), ok=False)
    assert drain(s) == []
    end(s, *flying[:2], ok=None)
    assert len(drain(s)) == 2 and s.flying("a", "x") == 4


def test_due_later_is_not_more_work_waiting() -> None:
    s: Scheduler[str] = Scheduler(64)
    offer(s, "a/x#1")
    offer(s, *[f"a/x#later{i}" for i in range(9)], due_ms=WALL + 60_000)
    assert drain(s) == ["a/x#1"]
    end(s, "a/x#1")
    assert len(drain(s, WALL + 60_000)) == 4


def hang(s: Scheduler[str], destinations: int) -> list[str]:
    offer(s, *[f"t{d}/x#{i}" for d in range(destinations) for i in range(9)])
    return drain(s)


def test_suspects_hold_together_at_most_half() -> None:
    s: Scheduler[str] = Scheduler(8)
    end(s, *hang(s, 6), ok=False)
    flying = drain(s)
    assert len(flying) == 4
    offer(s, "healthy/x#1", "healthy/y#1")
    assert drain(s) == ["healthy/x#1", "healthy/y#1"]
    end(s, flying[0], ok=False)
    assert len(drain(s)) == 1
    assert s.in_flight == 6


def test_a_suspect_keeps_its_place_in_line() -> None:
    """Two that were held back come in the order in which they came to the line, before those that came later."""
    s: Scheduler[str] = Scheduler(2)
    offer(s, "a/x#1", "b/x#1")
    end(s, *drain(s), ok=False)
    offer(s, "a/x#2", "b/x#2")
    assert drain(s) == ["a/x#2"]  # one is half
    offer(s, "c/x#1", "d/x#1")
    assert drain(s) == ["c/x#1"]
    end(s, "a/x#2", ok=False)
    assert drain(s) == ["b/x#2"]
    end(s, "c/x#1")
    assert drain(s) == ["d/x#1"]


@pytest.mark.parametrize(("took_ms", "patience_ms"), [(5, 250), (62, 250), (63, 252), (1_000, 4_000)])
def test_hanging_is_longer_than_250_ms_and_four_times_the_usual(took_ms: int, patience_ms: int) -> None:
    """With two workers half is one: a second suspect may go on only while the first counts as healthy."""
    s: Scheduler[str] = Scheduler(2)
    offer(s, "a/x#1")
    drain(s)
    end(s, "a/x#1", mono_ms=took_ms)
    offer(s, "b/x#1")
    assert drain(s, mono_ms=took_ms) == ["b/x#1"]
    end(s, "b/x#1", ok=False, mono_ms=took_ms)
    offer(s, "a/x#2", due_ms=WALL - 1)
    start = took_ms
    assert s.pick(WALL, start) == "a/x#2"
    offer(s, "b/x#2")
    assert s.pick(WALL, start + patience_ms + 1) is None
    s = Scheduler(2)
    offer(s, "a/x#1")
    drain(s)
    end(s, "a/x#1", mono_ms=took_ms)
    offer(s, "b/x#1")
    drain(s, mono_ms=took_ms)
    end(s, "b/x#1", ok=False, mono_ms=took_ms)
    offer(s, "a/x#2")
    assert s.pick(WALL, start) == "a/x#2"
    offer(s, "b/x#2")
    assert s.pick(WALL, start + patience_ms) == "b/x#2"


def test_the_next_oldest_attempt_is_watched_when_the_oldest_ends() -> None:
    """The watch set for the first attempt comes too early for the second: it must neither fire then nor be lost."""
    s: Scheduler[str] = Scheduler(64)
    offer(s, "a/x#1", "a/x#2")
    assert s.pick(WALL, 0) == "a/x#1"
    assert s.pick(WALL, 100) == "a/x#2"
    end(s, "a/x#1", ok=None, mono_ms=200)
    # The suspects' half is full, so that a suspect with work may not go on.
    offer(s, *[f"s{d}/x#{i}" for d in range(8) for i in range(5)])
    end(s, *drain(s, mono_ms=200), ok=False, mono_ms=200)
    assert len(drain(s, mono_ms=200)) == 8  # one left of each
    offer(s, *[f"s{d}/y#{i}" for d in range(6) for i in range(8)])
    end(s, *drain(s, mono_ms=200), ok=False, mono_ms=200)
    drain(s, mono_ms=200)
    assert s.in_flight == 33
    offer(s, "a/x#3", "a/x#4")
    assert s.pick(WALL, 350) == "a/x#3"  # 250 ms, not longer
    assert s.pick(WALL, 351) is None


def test_an_answer_just_before_the_deadline_does_not_teach_patience() -> None:
    s: Scheduler[str] = Scheduler(2)
    mono = 0
    for took in [5] * 20 + [9_900]:
        offer(s, f"a/x#{mono}")
        drain(s, mono_ms=mono)
        end(s, f"a/x#{mono}", mono_ms=mono + took)
        mono += took
    offer(s, "b/x#1")
    drain(s, mono_ms=mono)
    end(s, "b/x#1", ok=False, mono_ms=mono)
    offer(s, "a/x#hangs")
    assert s.pick(WALL, mono) == "a/x#hangs"
    offer(s, "b/x#2")
    assert s.pick(WALL, mono + 251) is None


def test_not_charged_says_nothing_about_the_sink() -> None:
    s: Scheduler[str] = Scheduler(2)
    offer(s, "a/x#1", "b/x#1", "b/x#2")
    end(s, *drain(s), ok=None)
    offer(s, "a/x#2")
    assert sorted(drain(s)) == ["a/x#2", "b/x#2"]  # neither is a suspect


def test_a_block_holds_until_its_end_and_can_be_lifted() -> None:
    s: Scheduler[str] = Scheduler(8)
    s.set_blocked("a", "x", WALL + 30)
    offer(s, "a/x#1", "a/y#1")
    assert drain(s) == ["a/y#1"]
    assert s.next_wake_ms() == WALL + 30
    assert drain(s, WALL + 30) == ["a/x#1"]
    s.set_blocked("a", "x", WALL + 10**9)
    end(s, "a/x#1")
    offer(s, "a/x#2")
    assert drain(s, WALL + 30) == []
    s.set_blocked("a", "x", None)
    assert drain(s, WALL + 30) == ["a/x#2"]


def test_after_a_block_as_many_as_the_breaker_allows() -> None:
    s: Scheduler[str] = Scheduler(64)
    s.set_blocked("a", "x", WALL + 30, at_most=1)
    offer(s, "a/x#1", "a/x#2")
    assert drain(s, WALL + 30) == ["a/x#1"]
    s.set_blocked("a", "x", None)
    assert drain(s, WALL + 30) == ["a/x#2"]
    with pytest.raises(ValueError, match="at most one"):
        s.set_blocked("a", "x", None, at_most=0)


def test_one_job_passes_a_block_and_no_second_beside_it() -> None:
    s: Scheduler[str] = Scheduler(8)
    s.set_blocked("t", "d", 500, at_most=1)
    s.offer("t", "d", 10, "held")
    s.offer("t", "d", 20, "last", passes=True)
    with pytest.raises(ValueError, match="one job at a time"):
        s.offer("t", "d", 30, "another", passes=True)
    assert s.pick(10, 10) is None
    assert s.next_wake_ms() == 20
    assert s.pick(20, 20) == "last"
    s.offer("t", "d", 20, "another", passes=True)
    assert s.pick(30, 30) is None  # one is in flight, and no more is allowed
    s.finished("last", ok=False, now_ms=40, mono_ms=40)
    assert s.pick(40, 40) == "another"
    s.finished("another", ok=True, now_ms=50, mono_ms=50)
    s.set_blocked("t", "d", None)
    assert s.pick(50, 50) == "held"


def test_one_that_passes_can_be_removed_and_waits_its_turn_without_a_block() -> None:
    s: Scheduler[str] = Scheduler(8)
    s.offer("t", "d", 20, "last", passes=True)
    s.offer("t", "d", 10, "earlier")
    assert (s.head_size("t", "d"), s.pick(30, 30)) == (2, "earlier")
    assert s.remove("last")
    s.finished("earlier", ok=True, now_ms=30, mono_ms=30)
    assert s.pick(30, 30) is None
    assert s.head_size("t", "d") == 0


def test_removed_jobs_are_never_picked() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#1", "a/x#2", "a/x#3")
    assert s.remove("a/x#1") and s.remove("a/x#3")
    assert not s.remove("a/x#1") and not s.remove("unknown")
    assert s.head_size("a", "x") == 1
    assert drain(s) == ["a/x#2"]
    assert not s.remove("a/x#2")  # in flight


def test_removing_the_earliest_puts_the_waker_right() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#soon", due_ms=WALL + 5)
    offer(s, "a/x#late", due_ms=WALL + 50)
    assert drain(s) == [] and s.next_wake_ms() == WALL + 5
    s.remove("a/x#soon")
    assert drain(s) == [] and s.next_wake_ms() == WALL + 50


def test_a_job_is_offered_once() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#1")
    with pytest.raises(ValueError, match="already"):
        offer(s, "a/x#1")
    drain(s)
    with pytest.raises(ValueError, match="already"):
        offer(s, "a/x#1")
    end(s, "a/x#1", ok=False)
    offer(s, "a/x#1")
    assert drain(s) == ["a/x#1"]


def test_finishing_what_does_not_fly_is_an_error() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#1")
    with pytest.raises(KeyError):
        end(s, "a/x#1")


def test_needs_a_worker() -> None:
    with pytest.raises(ValueError, match="worker"):
        Scheduler(0)


def test_row_26_a_clock_that_steps_back_makes_nothing_run_early_and_loses_nothing() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#1", "a/y#1", due_ms=WALL)
    assert s.pick(WALL, 0) == "a/x#1"  # both came to the line
    hour_ago = WALL - 3_600_000
    assert s.pick(hour_ago, 1) is None
    assert s.next_wake_ms() == WALL
    assert s.pick(WALL, 2) == "a/y#1"


def test_a_clock_that_steps_forward_and_back_does_not_pull_the_future_in() -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/now#1")
    offer(s, "a/later#1", due_ms=WALL + 7_200_000)
    assert s.pick(WALL + 10**9, 0) is not None  # the wrong clock: the line holds both
    s.finished("a/now#1", ok=True, now_ms=WALL, mono_ms=1)
    assert s.pick(WALL, 2) is None
    assert s.next_wake_ms() == WALL + 7_200_000


def test_memory_does_not_grow_with_destinations_seen() -> None:
    s: Scheduler[str] = Scheduler(8, remembered_max=100)
    for i in range(5_000):
        offer(s, f"t{i}/x#1")
        end(s, *drain(s, mono_ms=i), mono_ms=i)
    s.pick(WALL, 5_000)
    assert s.known <= 101
    assert len(s._tenants) <= 101
    for heap in (s._timers, s._watches, s._healthy._heap, s._suspects._heap):
        assert len(heap) < 1_000


def test_a_remembered_failure_survives_idleness() -> None:
    s: Scheduler[str] = Scheduler(2, remembered_max=10)
    offer(s, "a/x#1", "b/x#1")
    end(s, *drain(s), ok=False)
    assert drain(s) == []
    offer(s, "a/x#2", "b/x#2")
    assert len(drain(s)) == 1  # both are still suspect


@pytest.mark.parametrize("removed", [False, True])
def test_heaps_of_a_restless_destination_stay_small(removed: bool) -> None:
    s: Scheduler[str] = Scheduler(8)
    offer(s, "a/x#anchor", due_ms=WALL + 10**9)
    for i in range(5_000):
        offer(s, f"a/x#{i}", due_ms=WALL + 10**8 - i)
        s.pick(WALL, i)
        if removed:
            s.remove(f"a/x#{i}")
    assert len(s._timers) < 300
    assert len(s._destinations["a", "x"].heap) <= (300 if removed else 5_001)


def test_watches_of_attempts_long_ended_are_swept_out() -> None:
    s: Scheduler[str] = Scheduler(8)
    for i in range(5_000):
        offer(s, f"t{i}/x#1")
        end(s, *drain(s))
    assert len(s._watches) < 300


def test_lines_that_nobody_is_taken_from_stay_small() -> None:
    """Suspects whose half is full come and go: each coming is a new ticket."""
    s: Scheduler[str] = Scheduler(2)
    offer(s, "a/x#1", "b/x#1")
    end(s, *drain(s), ok=False)
    offer(s, "a/x#2")
    assert drain(s) == ["a/x#2"]
    for i in range(5_000):
        offer(s, f"b/x#{i}.")
        assert s.pick(WALL, 0) is None
        s.remove(f"b/x#{i}.")
        assert s.pick(WALL, 0) is None
    assert len(s._suspects._heap) < 300
    assert len(s._tenants["b"].suspects._heap) < 300
