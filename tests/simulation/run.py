"""Every random world for many seeds, and every planted fault, on all cores: `make sim SEEDS=1000`.

Prints each failure with the command that plays it again; ends with 1 when there was one.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from typing import NamedTuple

from tests.simulation.worlds import PLANTS, WORLDS, plant_found, play

SLICE = 20


class Failure(NamedTuple):
    """`again`: what of `make sim` plays it once more."""

    what: str
    again: str


def play_slice(world: str, first: int, count: int) -> list[Failure]:
    """Runs in a process of its own."""
    logging.disable(logging.CRITICAL)
    played = ((seed, play(world, seed)) for seed in range(first, first + count))
    return [
        Failure(f"{world} {seed}: {problem}", f"make sim WORLD={world} SEEDS=1 FIRST={seed}")
        for seed, problem in played
        if problem is not None
    ]


def look_for(world: str, fault: str) -> list[Failure]:
    """Runs in a process of its own."""
    logging.disable(logging.CRITICAL)
    if plant_found(world, fault) is not None:
        return []
    return [Failure(f"{world}: nobody noticed the planted fault {fault}", f"make sim WORLD={world} SEEDS=0")]


def begin(pool: ProcessPoolExecutor, worlds: list[str], first: int, seeds: int) -> Iterator[Future[list[Failure]]]:
    for world in worlds:
        for fault in PLANTS[world]:
            yield pool.submit(look_for, world, fault)
    for start in range(first, first + seeds, SLICE):
        for world in worlds:
            yield pool.submit(play_slice, world, start, min(SLICE, first + seeds - start))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1_000, help="worlds of each kind; 0: the planted faults alone")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--world", default="", help=f"one kind alone: {', '.join(WORLDS)}")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    asked = parser.parse_args()
    if asked.world not in ("", *WORLDS):
        parser.error(f"--world is one of {', '.join(WORLDS)}")
    worlds = [asked.world] if asked.world else list(WORLDS)
    began, failures = time.monotonic(), 0
    with ProcessPoolExecutor(asked.processes, multiprocessing.get_context("spawn")) as pool:
        for ended in as_completed(list(begin(pool, worlds, asked.first, asked.seeds))):
            for failure in ended.result():
                failures += 1
                print(f"FAILED {failure.what}\n    again: {failure.again}", flush=True)
    faults = sum(len(PLANTS[world]) for world in worlds)
    seconds = time.monotonic() - began
    print(
        f"{asked.seeds} seeds from {asked.first} of each of {', '.join(worlds)}; {faults} planted faults: "
        f"{failures} failures, {seconds:.0f} s"
    )
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
