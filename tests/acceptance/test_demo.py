"""`make demo`, `make up` and `make down`, as a person runs them: with real processes and a real Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from hub_app.dev.kafka.archive import fast_runtime
from hub_app.dev.kafka.jars import cache_home

SECONDS_MAX = 150
SMALL = ("--facts", "500", "--seconds", "4")


def _demo(*arguments: str, **options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hub_app.dev.demo", *arguments]
    environment = {**os.environ, **options}
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def test_everything_is_accounted_for() -> None:
    done = _demo(*SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout
    assert "500 accepted + 10 duplicates + 9 quarantined + 2 dropped" in done.stdout
    assert "none lost" in done.stdout.splitlines()[-1]
    assert "\x1b" not in done.stdout  # no terminal: plain lines
    for shown in ("hub-reason:exhausted", "hub-attempt:5", "hub-not-before:", 'make kafka-tool ARGS="consume --topic'):
        assert shown in done.stdout


def test_one_lost_event_is_found() -> None:
    done = _demo(*SMALL, "--skip", "7")
    assert done.returncode == 1, done.stdout + done.stderr
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAIL")]
    assert len(failed) == 2
    assert any(line.startswith("FAIL none lost on the way out: 1: evt_") for line in failed)


def _line(stream: IO[str], part: str) -> str:
    """The next line with `part` in it."""
    for line in stream:
        if part in line:
            return line
    raise AssertionError(f"it ended without {part!r}")


@pytest.mark.parametrize("moment", ["starting 2 hub workers", "delivered"])
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_interrupted_it_leaves_nothing_running(tmp_path: Path, moment: str, how: signal.Signals) -> None:
    """Also when it is killed without a chance to end what it started."""
    command = [sys.executable, "-m", "hub_app.dev.demo", *SMALL]
    demo = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    with demo:
        assert demo.stdout is not None and demo.stderr is not None
        _line(demo.stdout, moment)
        started = psutil.Process(demo.pid).children(recursive=True)
        demo.send_signal(how)
        _, said = demo.communicate(timeout=60)
    gone, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert gone
    if how is not signal.SIGKILL:
        assert demo.returncode == 130
        assert said == "interrupted; everything has been ended\n"
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A HUB_CACHE of the test's own, with the jars of the real one."""
    fast_runtime()
    (tmp_path / "kafka").symlink_to(cache_home() / "kafka")
    yield tmp_path
    _demo("down", HUB_CACHE=str(tmp_path))


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: str = answer.read().decode()
    return body


def test_up_stays_until_down(home: Path) -> None:
    done = _demo("up", "--facts", "300", HUB_CACHE=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    noted = json.loads((home / "up" / "up.json").read_text())
    for url in noted["urls"]:
        assert '"ready"' in _get(url + "/readyz")
        assert url in done.stdout
    dead = next(line for line in done.stdout.splitlines() if "--topic hub.dlq" in line)
    environment = {**os.environ, "HUB_CACHE": str(home)}
    arguments = dead.partition('ARGS="')[2].rstrip().rstrip('"').split()
    tool = [sys.executable, "-m", "hub_app.dev.broker", "tool", *arguments]
    read = subprocess.run(tool, capture_output=True, text=True, timeout=60, check=True, env=environment)
    assert "hub-reason:exhausted" in read.stdout
    started = [psutil.Process(int(path.read_text())) for path in (home / "up").glob("*.pid")]
    assert len(started) == 3
    again = _demo("up", HUB_CACHE=str(home))
    assert again.stdout.startswith("it is up already")

    down = _demo("down", HUB_CACHE=str(home))
    assert down.returncode == 0, down.stderr
    assert psutil.wait_procs(started, timeout=10)[1] == []
    assert _demo("down", HUB_CACHE=str(home)).returncode == 0  # nothing to end is no error
