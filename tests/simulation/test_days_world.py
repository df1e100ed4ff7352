"""Days of failing sinks under a clock that is set: breakers, last attempts and disabling keep their rules, and the
checks would notice if they did not.

A failure prints its seed: `make sim WORLD=days SEEDS=1 FIRST=<seed>` plays it again.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation import days_world
from tests.simulation.worlds import PLANTS, plant_found

FIRST = int(os.environ.get("SIM_FIRST", "0"))
SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
SLICE = 25


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SLICE))
def test_row_26_random_worlds_under_clocks_that_are_set(first: int) -> None:
    for seed in range(first, min(first + SLICE, FIRST + SEEDS)):
        problem = days_world.run(seed)
        assert problem is None, f"make sim WORLD=days SEEDS=1 FIRST={seed}: {problem}"


@pytest.mark.parametrize("fault", PLANTS["days"])
def test_a_planted_fault_is_found(fault: str) -> None:
    assert plant_found("days", fault) is not None
