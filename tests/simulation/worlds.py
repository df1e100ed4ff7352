"""The kinds of random worlds, and the faults that are planted in each."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from tests.simulation import days_world, dispatch_world, inbox_world, model
from tests.simulation.days_planted import PLANTED_IN_DAYS
from tests.simulation.planted import PLANTED, PLANTED_IN_INBOX

WORLDS: Final = ("dispatch", "inbox", "days", "model")
BY_HAND: Final = {"emit_nothing_again", "outcome_clears_any_claim", "last_claim_wins"}
"""Too rare to wait for: tests/agents/test_inbox.py and tests/simulation/test_model.py play them."""
PLANTS: Final[Mapping[str, Collection[str]]] = {
    "dispatch": tuple(PLANTED),
    "inbox": sorted(PLANTED_IN_INBOX.keys() - BY_HAND),
    "days": tuple(PLANTED_IN_DAYS),
    "model": sorted(model.BREAKS.keys() - BY_HAND),
}
RARE: Final = {
    ("dispatch", "claims_unflushed"): range(225, 285),
    ("dispatch", "outcome_first"): range(120, 180),
    ("days", "forgetful"): range(80, 140),
    ("days", "ninth_attempt"): range(800, 860),
}
"""Where to look for what needs a rare course of events."""
SEARCHED: Final = {"dispatch": range(60), "inbox": range(80), "days": range(80), "model": range(3_000)}


def play(world: str, seed: int, fault: str | None = None) -> str | None:
    """One world of a kind from its seed, perhaps with a fault; what is wrong in it, or None."""
    if world == "dispatch":
        return dispatch_world.run(seed, None, PLANTED[fault]) if fault else dispatch_world.run(seed)
    if world == "inbox":
        return inbox_world.run(seed, PLANTED_IN_INBOX[fault]) if fault else inbox_world.run(seed)
    if world == "days":
        return days_world.run(seed, PLANTED_IN_DAYS[fault]) if fault else days_world.run(seed)
    return model.run(seed, fault)


def plant_found(world: str, fault: str, seeds: Iterable[int] = ()) -> int | None:
    """The first seed whose world shows the planted fault; None when none does."""
    seeds = seeds or RARE.get((world, fault), SEARCHED[world])
    return next((seed for seed in seeds if play(world, seed, fault) is not None), None)
