"""Who asks for a rebalance, when, and how often."""

from __future__ import annotations

from itertools import pairwise

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment

from hub_app.kafka.coverage import PAUSE_MS_FIRST, PAUSE_MS_MAX, Group, Looks, NudgedRoundRobin, read_group, shown

WANTED = frozenset({("a", 0), ("a", 1), ("b", 0)})
SOME = Group(("m1", "m2"), frozenset({("a", 0), ("a", 1)}))
ALL = Group(("m1", "m2"), WANTED)


def test_nothing_is_done_about_what_the_next_look_does_not_find() -> None:
    looks = Looks()
    assert looks.judge(WANTED, SOME, "m1", 0) == (frozenset(), False)
    assert looks.judge(WANTED, ALL, "m1", 1_000) == (frozenset(), False)
    assert looks.judge(WANTED, SOME, "m1", 2_000) == (frozenset(), False)


def test_the_first_member_asks_at_the_second_look_and_the_next_one_when_that_has_not_helped() -> None:
    for own, asks_at in (("m1", 2), ("m2", 4), ("gone", 6)):
        looks = Looks()
        nudged = [look for look in range(1, 8) if looks.judge(WANTED, SOME, own, look * 1_000).nudge]
        assert nudged[0] == asks_at, own


def test_it_is_shown_while_it_lasts() -> None:
    looks = Looks()
    found = [looks.judge(WANTED, SOME, "m2", look).uncovered for look in range(3)]
    assert found == [frozenset(), {("b", 0)}, {("b", 0)}]
    assert looks.judge(WANTED, ALL, "m2", 3).uncovered == frozenset()


def test_pauses_double_up_to_a_bound_and_begin_anew_once_all_is_covered() -> None:
    looks, nudged = Looks(), list[int]()
    for now_ms in range(0, 3_600_000, 1_000):
        if looks.judge(WANTED, SOME, "m1", now_ms).nudge:
            nudged.append(now_ms)
    gaps = [b - a for a, b in pairwise(nudged)]
    assert gaps[:3] == [PAUSE_MS_FIRST, 2 * PAUSE_MS_FIRST, 4 * PAUSE_MS_FIRST]
    assert set(gaps[-5:]) == {PAUSE_MS_MAX}
    looks.judge(WANTED, ALL, "m1", 3_600_000)
    looks.judge(WANTED, SOME, "m1", 3_601_000)
    assert looks.judge(WANTED, SOME, "m1", 3_602_000).nudge


def test_a_group_that_is_not_stable_tells_nothing() -> None:
    assignment = ConsumerProtocolMemberAssignment(0, [("a", [0, 1])], b"").encode()
    member = {"member_id": "m", "member_assignment": assignment}
    described = {"error_code": 0, "state": "Stable", "members": [member, {"member_id": "l", "member_assignment": b""}]}
    assert read_group(described) == Group(("l", "m"), frozenset({("a", 0), ("a", 1)}))
    assert read_group({**described, "state": "PreparingRebalance"}) is None
    assert read_group({**described, "error_code": 16}) is None


def test_a_nudge_changes_what_a_member_says() -> None:
    assignor = NudgedRoundRobin()
    first = assignor.metadata(["t"]).encode()
    assignor.nudges += 1
    assert assignor.metadata(["t"]).encode() != first


def test_places_are_named_up_to_a_bound() -> None:
    assert shown([("b", 1), ("a", 0)]) == "a/0, b/1"
    assert shown(("t", p) for p in range(9)) == "t/0, t/1, t/2, t/3, t/4 and 4 more"
