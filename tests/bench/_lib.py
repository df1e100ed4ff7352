"""What every benchmark shares. A benchmark is a module run as `python -m tests.bench.<name>`: progress goes to stderr,
and the last line of stdout is one JSON object. No figure without its yardstick in the same run; what is reported is
the quietest of three runs, since whatever else the machine does only ever adds."""

from __future__ import annotations

import contextlib
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 3
T = TypeVar("T")


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def report(**figures: Any) -> None:
    """The last line. Floats are rounded to what a noisy machine can tell."""
    print(json.dumps({name: round(f, 3) if isinstance(f, float) else f for name, f in figures.items()}), flush=True)


def quiet_minimum(measure: Callable[[], T], key: Callable[[T], float], rounds: int = ROUNDS) -> T:
    """The run of `rounds` with the least `key` (a cost: CPU, time, or a rate negated)."""
    return min((measure() for _ in range(rounds)), key=key)


def percentile(values: Sequence[float], percent: float) -> float:
    """Nearest rank: a value that was measured, never one between two. Raises ValueError for no values."""
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


class Usage(NamedTuple):
    cpu_s: float
    at_s: float

    @classmethod
    def now(cls, pid: int | None = None) -> Usage:
        """CPU (user and system, all threads) of this process, or of another."""
        if pid is None:
            own = resource.getrusage(resource.RUSAGE_SELF)
            return cls(own.ru_utime + own.ru_stime, time.perf_counter())
        other = psutil.Process(pid).cpu_times()
        return cls(other.user + other.system, time.perf_counter())

    def since(self, before: Usage) -> Usage:
        """CPU spent and time gone since `before`."""
        return Usage(self.cpu_s - before.cpu_s, self.at_s - before.at_s)


def rss_mib(pid: int | None = None) -> float:
    """Resident memory now."""
    return float(psutil.Process(pid).memory_info().rss) / (1 << 20)


def rss_peak_mib() -> float:
    """The most this process ever had resident (Linux counts in KiB)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@contextlib.contextmanager
def child(module: str, *args: object, env: dict[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """`python -m module args…` beside us, its stdin and stdout ours; on leaving it is asked to end, then killed."""
    command = [sys.executable, "-m", module, *map(str, args)]
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()


def run_child(module: str, *args: object, timeout_s: float = 300) -> dict[str, Any]:
    """The JSON object in the last line of a child that runs to its end. Raises CalledProcessError or TimeoutExpired."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, args)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout.strip().rsplit("\n", 1)[-1])
    return answer


class Arrival(NamedTuple):
    """What a sink saw of one id. Times are time.monotonic_ns, which all processes of a machine share."""

    times: int
    first_ns: int
    last_ns: int


class Sink:
    """The local sink of `tests.bench._sink`, seen from the benchmark. Blocking, so ask between measurements."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self._process = process
        self.port = port
        self.pid = process.pid

    def url(self, path: str = "/") -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def counts(self) -> tuple[int, int]:
        """Requests so far, and distinct ids among them (0 unless it records)."""
        answer = self._ask("counts")
        return answer["requests"], answer["ids"]

    def arrivals(self) -> dict[str, Arrival]:
        """Every id seen, with how often and when."""
        return {name: Arrival(*seen) for name, seen in self._ask("arrivals").items()}

    def late_max(self) -> int:
        """How many requests to slow paths waited for their answers at once, at most."""
        most: int = self._ask("counts")["late_max"]
        return most

    def forget(self) -> None:
        """Start counting anew."""
        self._ask("forget")

    def behave(self, well: bool = True) -> None:
        """Whether paths that behave otherwise answer like any other from now on."""
        self._ask("behave" if well else "misbehave")

    def _ask(self, command: str) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextlib.contextmanager
def sink(*, record: str | None = None, port: int = 0) -> Iterator[Sink]:
    """A sink process on 127.0.0.1 that answers 200 at once. `record` names the request header (as the hub writes it,
    `webhook-id` say) whose values are counted. See `_sink` for paths that behave otherwise."""
    with child("tests.bench._sink", "--port", port, *(("--record", record) if record else ())) as process:
        assert process.stdout is not None
        yield Sink(process, json.loads(process.stdout.readline())["port"])
