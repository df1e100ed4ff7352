"""The producer process: writes the plan of a run to its topics, lz4, at an even pace, every record acknowledged."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence

import uvloop

from hub_app.dev.demo.plan import Plan
from hub_app.dev.facts import FactProducer

CHUNK = 10


async def publish(bootstrap: str, plan: Plan, seconds: float) -> None:
    """Everything in about `seconds`, unless Kafka takes longer."""
    facts = [planned.fact for planned in plan.records]
    async with FactProducer(bootstrap, compression="lz4") as producer:
        began = time.monotonic()
        for start in range(0, len(facts), CHUNK):
            await asyncio.sleep(max(0.0, began + seconds * start / len(facts) - time.monotonic()))
            await producer.send_many(facts[start : start + CHUNK])


def command(bootstrap: str, plan: Plan, seconds: float) -> list[str]:
    """The command line of the process that publishes `plan`."""
    module = "hub_app.dev.demo.producer"
    options = {"bootstrap": bootstrap, "run": plan.run, "facts": plan.facts, "suffix": plan.suffix, "seconds": seconds}
    return [sys.executable, "-m", module, *(f"--{name}={value}" for name, value in options.items())]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m hub_app.dev.demo.producer", description="Writes the demo's facts.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--run", required=True)
    parser.add_argument("--facts", type=int, required=True)
    parser.add_argument("--suffix", default="")
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args(arguments)
    uvloop.run(publish(chosen.bootstrap, Plan(chosen.run, chosen.facts, chosen.suffix), chosen.seconds))


if __name__ == "__main__":
    main()
