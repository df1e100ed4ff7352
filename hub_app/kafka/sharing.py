"""Who gets which shard: balanced within one, sticky to owners, then to whoever has the shard on disk. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """What one member says of itself."""

    owned: frozenset[int]
    on_disk: frozenset[int]


def share(shards: Sequence[int], claims: Mapping[str, Claim]) -> dict[str, list[int]]:
    """Every shard to exactly one member; counts differ by at most one; the answer depends on the arguments alone.

    An owner keeps what it has up to its share. What it must give up is first what another member with too little has
    on disk. Free shards go to members who hold them on disk, then to whoever has least."""
    members = sorted(claims)
    if not members:
        return {}
    owned = _owned_once(shards, claims, members)
    caps = _caps(len(shards), members, owned)
    wanted = _wanted_elsewhere(claims, owned, caps)
    kept = {m: _keep(owned[m], caps[m], {s for s, others in wanted.items() if others - {m}}) for m in members}
    taken = {s for mine in kept.values() for s in mine}
    free = [s for s in shards if s not in taken]
    for on_disk_only in (True, False):
        left = []
        for shard in free:
            fitting = [
                m
                for m in members
                if len(kept[m]) < caps[m] and (not on_disk_only or shard in claims[m].on_disk | claims[m].owned)
            ]
            if fitting:
                kept[min(fitting, key=lambda m: len(kept[m]) - caps[m])].append(shard)
            else:
                left.append(shard)
        free = left
    return {m: sorted(kept[m]) for m in members}


def _keep(owned: Collection[int], cap: int, wanted: Collection[int]) -> list[int]:
    """Up to `cap` shards, those nobody else wants first."""
    return sorted(owned, key=lambda shard: (shard in wanted, shard))[:cap]


def _owned_once(
    shards: Collection[int], claims: Mapping[str, Claim], members: Sequence[str]
) -> dict[str, frozenset[int]]:
    """Two members may claim a shard (one slept through a rebalance): the one with it on disk wins, then the first."""
    owner: dict[int, str] = {}
    for member in members:
        for shard in claims[member].owned:
            rival = owner.get(shard)
            if rival is None or (shard in claims[member].on_disk and shard not in claims[rival].on_disk):
                owner[shard] = member
    known = set(shards)
    return {m: frozenset(s for s, o in owner.items() if o == m and s in known) for m in members}


def _caps(count: int, members: Sequence[str], owned: Mapping[str, Collection[int]]) -> dict[str, int]:
    """The members with most keep the odd ones, so that nothing moves without need."""
    base, odd = divmod(count, len(members))
    richest = sorted(members, key=lambda m: (-len(owned[m]), m))
    return {m: base + (position < odd) for position, m in enumerate(richest)}


def _wanted_elsewhere(
    claims: Mapping[str, Claim], owned: Mapping[str, Collection[int]], caps: Mapping[str, int]
) -> dict[int, frozenset[str]]:
    """shard -> members with room for it that hold it on disk."""
    poor = [m for m in claims if len(owned[m]) < caps[m]]
    wanted: dict[int, frozenset[str]] = {}
    for member in poor:
        for shard in claims[member].on_disk:
            wanted[shard] = wanted.get(shard, frozenset()) | {member}
    return wanted
