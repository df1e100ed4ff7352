"""The inbox in random worlds: every fact once, with its ids, whatever dies; and the checks would notice.

A failure prints its seed: `SIM_FIRST=<seed> SIM_SEEDS=1 pytest tests/simulation/test_inbox_world.py` plays it again.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation import clockwork, inbox_world
from tests.simulation.inbox_world import POINTS, InboxWorld
from tests.simulation.planted import PLANTED_IN_INBOX

FIRST = int(os.environ.get("SIM_FIRST", "0"))
SEEDS = int(os.environ.get("SIM_SEEDS", "150"))
SLICE = 25
BY_HAND = "emit_nothing_again"
"""Too rare to wait for: tests/agents/test_inbox.py plays it."""


@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, SLICE))
def test_random_worlds(first: int) -> None:
    for seed in range(first, min(first + SLICE, FIRST + SEEDS)):
        problem = inbox_world.run(seed)
        assert problem is None, f"SIM_FIRST={seed} SIM_SEEDS=1: {problem}"


@pytest.mark.parametrize("fault", sorted(PLANTED_IN_INBOX.keys() - {BY_HAND}))
def test_a_planted_fault_is_found(fault: str) -> None:
    assert any(inbox_world.run(seed, PLANTED_IN_INBOX[fault]) for seed in range(80))


def test_workers_die_at_every_write() -> None:
    died: Counter[str] = Counter()
    for seed in range(40):
        with tempfile.TemporaryDirectory() as folder:
            world = InboxWorld(seed, Path(folder))
            clockwork.run(world.story)
            died.update(world.died_at)
    assert set(POINTS) - died.keys() == set()
