"""Every shard is owned once, counts are balanced within one, nothing moves without need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hub_app.kafka.sharing import Claim, share

SHARDS = st.integers(0, 40).map(lambda n: list(range(n)))
SUBSETS = st.frozensets(st.integers(0, 45), max_size=40)
CLAIMS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.builds(Claim, SUBSETS, SUBSETS), max_size=9)


@given(shards=SHARDS, claims=CLAIMS.filter(bool))
def test_every_shard_once_and_balanced_within_one(shards: list[int], claims: dict[str, Claim]) -> None:
    shared = share(shards, claims)
    assert sorted(s for mine in shared.values() for s in mine) == shards
    counts = [len(mine) for mine in shared.values()]
    assert set(shared) == set(claims)
    assert max(counts) - min(counts) <= 1


@given(shards=SHARDS, claims=CLAIMS.filter(bool))
def test_a_second_round_moves_nothing(shards: list[int], claims: dict[str, Claim]) -> None:
    shared = share(shards, claims)
    again = share(shards, {m: Claim(frozenset(mine), claims[m].on_disk) for m, mine in shared.items()})
    assert again == shared


@given(shards=SHARDS, claims=CLAIMS.filter(lambda c: len(c) > 1), data=st.data())
def test_a_leaving_member_moves_only_its_own_shards(
    shards: list[int], claims: dict[str, Claim], data: st.DataObject
) -> None:
    shared = share(shards, claims)
    leaver = data.draw(st.sampled_from(sorted(claims)))
    stay = {m: Claim(frozenset(mine), frozenset()) for m, mine in shared.items() if m != leaver}
    after = share(shards, stay)
    assert all(set(shared[m]) <= set(after[m]) for m in stay)


@given(shards=SHARDS, members=st.integers(1, 8))
def test_a_newcomer_takes_only_its_share(shards: list[int], members: int) -> None:
    before = share(shards, {f"m{i}": Claim(frozenset(), frozenset()) for i in range(members)})
    claims = {m: Claim(frozenset(mine), frozenset(mine)) for m, mine in before.items()}
    after = share(shards, {**claims, "new": Claim(frozenset(), frozenset())})
    moved = sum(len(set(before[m]) - set(after[m])) for m in before)
    assert moved == len(after["new"])


def test_no_members_no_assignment() -> None:
    assert share([0, 1], {}) == {}


def test_a_restarted_member_gets_back_what_it_holds_on_disk() -> None:
    survivor = Claim(owned=frozenset(range(12)), on_disk=frozenset(range(12)))
    back = Claim(owned=frozenset(), on_disk=frozenset({1, 3, 5, 7, 9, 11}))
    assert share(range(12), {"a": survivor, "b": back}) == {"a": [0, 2, 4, 6, 8, 10], "b": [1, 3, 5, 7, 9, 11]}


def test_free_shards_go_to_whoever_has_them_on_disk() -> None:
    a = Claim(owned=frozenset(), on_disk=frozenset({0, 1}))
    b = Claim(owned=frozenset(), on_disk=frozenset({2, 3}))
    assert share(range(4), {"b": b, "a": a}) == {"a": [0, 1], "b": [2, 3]}


def test_of_two_claimed_owners_the_one_with_the_folder_keeps_the_shard() -> None:
    sleeper = Claim(owned=frozenset({0, 1}), on_disk=frozenset())
    owner = Claim(owned=frozenset({0, 1}), on_disk=frozenset({0, 1}))
    assert share(range(2), {"a": sleeper, "b": owner, "c": Claim(frozenset(), frozenset())})["b"]
