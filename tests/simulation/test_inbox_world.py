"""The inbox in random worlds: every fact once, with its ids, whatever dies; and the checks would notice.

A failure prints its seed: `make sim WORLD=inbox SEEDS=1 FIRST=<seed>` plays it again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.simulation import clockwork, inbox_world
from tests.simulation.inbox_world import POINTS, InboxWorld
from tests.simulation.worlds import PLANTS, plant_found

FIRST = int(os.environ.get("SIM_FIRST", "0"))
SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
SLICE = 25


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SLICE))
def test_random_worlds(first: int) -> None:
    for seed in range(first, min(first + SLICE, FIRST + SEEDS)):
        problem = inbox_world.run(seed)
        assert problem is None, f"make sim WORLD=inbox SEEDS=1 FIRST={seed}: {problem}"


@pytest.mark.parametrize("fault", PLANTS["inbox"])
def test_a_planted_fault_is_found(fault: str) -> None:
    assert plant_found("inbox", fault) is not None


@pytest.mark.parametrize("point", POINTS)
def test_workers_die_at_every_write(point: str) -> None:
    for seed in range(200):
        with tempfile.TemporaryDirectory() as folder:
            world = InboxWorld(seed, Path(folder))
            world.points = [point]
            clockwork.run(world.story)
        assert world.problems == [], seed
        if point in world.died_at:
            return
    pytest.fail(f"nobody died {point}")
