"""`python -m hub_app.dev.demo [up|down]`.

Exit status: 0; 1 when a check failed; 78 when something must be installed or set first; 75 when Kafka or a part of the
demo did not start; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

from hub_app.dev.demo.show import Options, demo
from hub_app.dev.demo.stage import DemoFailed
from hub_app.dev.demo.upkeep import down, up
from hub_app.dev.demo.view import console
from hub_app.dev.kafka import BrokerFailed, KafkaUnavailable

EX_CONFIG, EX_TEMPFAIL, INTERRUPTED = 78, 75, 130
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    chosen = _parser().parse_args(arguments)
    for number in ENDINGS:
        signal.signal(number, _interrupt)
    try:
        return _act(chosen)
    except KeyboardInterrupt:
        print("interrupted; everything has been ended", file=sys.stderr)
        return INTERRUPTED
    except KafkaUnavailable as problem:
        print(problem, file=sys.stderr)
        return EX_CONFIG
    except (BrokerFailed, DemoFailed) as problem:
        print(problem, file=sys.stderr)
        return EX_TEMPFAIL


def _act(chosen: argparse.Namespace) -> int:
    if chosen.action == "up":
        return up(chosen.facts, lambda text: print(text, flush=True))
    if chosen.action == "down":
        return down(print)
    return demo(Options(facts=chosen.facts, seconds=chosen.seconds, skip=chosen.skip), console())


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """Once: whoever is impatient must not keep us from ending what we started, which takes bounded time."""
    for number in ENDINGS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hub_app.dev.demo", description="The hub at work.")
    parser.add_argument("action", nargs="?", choices=("run", "up", "down"), default="run")
    parser.add_argument("--facts", type=_count, default=3_000, help="how many are published")
    parser.add_argument("--seconds", type=float, default=15.0, help="in how many seconds")
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)  # plant a loss
    return parser


def _count(text: str) -> int:
    """Enough for something of each kind."""
    if not text.isdigit() or not 200 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError("expected a number from 200 to 100000")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
