"""`python -m hub_app.dev.broker`: a development Kafka that stays up until it is stopped.

Exit status: 0; 78 if something must be installed or set first; 75 if the broker failed; else that of the tool.
With KAFKA_BROKERS set, that Kafka is used and never started, stopped or wiped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from hub_app.dev.kafka import BrokerFailed, Cluster, KafkaUnavailable, from_environment
from hub_app.dev.kafka.archive import fast_runtime
from hub_app.dev.kafka.jars import cache_home
from hub_app.dev.kafka.ports import is_free
from hub_app.dev.kafka.tools import TOOLS, command

USUAL_PORT = 9092
EX_CONFIG, EX_TEMPFAIL = 78, 75


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line. Returns the exit status."""
    chosen = _parser().parse_args(arguments)
    try:
        return _act(chosen)
    except KafkaUnavailable as problem:
        print(problem, file=sys.stderr)
        return EX_CONFIG
    except BrokerFailed as problem:
        print(problem, file=sys.stderr)
        return EX_TEMPFAIL


def _act(chosen: argparse.Namespace) -> int:
    if chosen.action == "fetch":
        print(f"Kafka's jars: {fast_runtime().jars[0].parent}")
        return 0
    external = from_environment()
    if external is not None and chosen.action != "tool":
        print(f"using KAFKA_BROKERS={external.bootstrap}, which is not ours to {chosen.action}")
        return 0
    usual = is_free(USUAL_PORT) and is_free(USUAL_PORT + 1)
    port = chosen.port or (USUAL_PORT if usual else None)
    cluster = Cluster(chosen.home, chosen.nodes, port, owned=False)
    if chosen.action == "tool":
        return _tool(external.bootstrap if external else cluster.bootstrap, tuple(chosen.arguments))
    if chosen.action in ("start", "stop", "wipe"):
        getattr(cluster, chosen.action)()
    _report(cluster)
    return 0


def _report(cluster: Cluster) -> None:
    """One line a node."""
    status = cluster.status()
    for node in status:
        state = "ready" if node.ready else "not ready" if node.pid else "stopped"
        print(f"Kafka node {node.number} on {node.address}: {state}" + (f" (pid {node.pid})" if node.pid else ""))
    if not status:
        print("no Kafka here")


def _tool(bootstrap: str, arguments: tuple[str, ...]) -> int:
    """Run one of Kafka's own tools on this terminal."""
    try:
        line = command(fast_runtime(), bootstrap, arguments)
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 2
    try:
        return subprocess.run(line, check=False).returncode
    except KeyboardInterrupt:  # the usual end of `consume`
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m hub_app.dev.broker", description="A development Kafka.")
    parser.add_argument("--home", type=Path, default=cache_home() / "broker", help="its folder (default: %(default)s)")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--port", type=int, help=f"default: {USUAL_PORT} if free, else any free one")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("fetch", help="get Java's side ready: jars and class archive")
    actions.add_parser("start", help="start it, or find it running")
    actions.add_parser("stop", help="end it; data stays")
    actions.add_parser("status", help="what runs where")
    actions.add_parser("wipe", help="end it and delete its data")
    tool = actions.add_parser("tool", help=f"Kafka's own tools: {' '.join(TOOLS)}")
    tool.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


if __name__ == "__main__":
    sys.exit(main())
