"""Dispatch in random worlds: nothing is lost, whatever dies, and the checks would notice.

A failure prints its seed: `make sim WORLD=dispatch SEEDS=1 FIRST=<seed>` plays it again.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tables.memory import Memory
from tests.simulation import clockwork, dispatch_world
from tests.simulation.dispatch_world import POINTS, DispatchWorld
from tests.simulation.worlds import PLANTS, plant_found

FIRST = int(os.environ.get("SIM_FIRST", "0"))
SEEDS = int(os.environ.get("SIM_SEEDS", "200"))
ON_DISK = 12
SLICE = 25


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SLICE))
def test_random_worlds(first: int) -> None:
    for seed in range(first, min(first + SLICE, FIRST + SEEDS)):
        problem = dispatch_world.run(seed)
        assert problem is None, f"make sim WORLD=dispatch SEEDS=1 FIRST={seed}: {problem}"


def test_random_worlds_on_real_tables() -> None:
    memory = Memory()
    for seed in range(FIRST, FIRST + min(SEEDS, ON_DISK)):
        problem = dispatch_world.run(seed, memory)
        assert problem is None, f"make sim WORLD=dispatch SEEDS=1 FIRST={seed}: {problem}"


@pytest.mark.parametrize("fault", PLANTS["dispatch"])
def test_a_planted_fault_is_found(fault: str) -> None:
    assert plant_found("dispatch", fault) is not None


@pytest.mark.parametrize("point", POINTS)
def test_workers_die_at_every_write(point: str) -> None:
    for seed in range(200):
        with tempfile.TemporaryDirectory() as folder:
            world = DispatchWorld(seed, Path(folder))
            world.points = [point]
            clockwork.run(world.story)
        assert world.problems == [], seed
        if point in world.died_at:
            return
    pytest.fail(f"nobody died {point}")


def test_a_seed_tells_the_same_story_again() -> None:
    stories = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            world = DispatchWorld(3, Path(folder))
            clockwork.run(world.story)
            stories.append([world.broker.log(*place) for place in world.broker.places()])
    assert stories[0] == stories[1]
