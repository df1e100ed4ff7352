"""Processes found again by their pid files."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hub_app.dev.pidfile import PidFile

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"


class Spawner:
    """Starts a Python that waits, and keeps it so that it is reaped."""

    def __init__(self, program: str = "import time; print('up', flush=True); time.sleep(60)") -> None:
        self.program, self.processes = program, list[subprocess.Popen[bytes]]()

    def __call__(self, descriptor: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", self.program], stdout=subprocess.PIPE, pass_fds=(descriptor,), start_new_session=True
        )
        self.processes.append(process)
        assert process.stdout is not None
        with process.stdout:
            assert process.stdout.readline() == b"up\n"
        return process


def _reap(spawner: Spawner) -> list[int]:
    return [process.wait(10) for process in spawner.processes]


def test_a_process_is_known_until_it_ends(tmp_path: Path) -> None:
    spawner = Spawner()
    assert PidFile(tmp_path / "a" / "x.pid").start(spawner)
    again = PidFile(tmp_path / "a" / "x.pid")  # as another process would see it
    assert again.pid() == spawner.processes[0].pid
    assert not again.start(spawner)
    again.signal(signal.SIGTERM)
    again.await_end(10)
    assert again.pid() is None
    assert _reap(spawner) == [-15]


def test_those_who_ask_are_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "x.pid"
    path.write_text(str(os.getpid()))
    with path.open() as other:
        fcntl.flock(other.fileno(), fcntl.LOCK_SH)
        assert PidFile(path).pid() is None


def test_one_that_does_not_listen_is_killed(tmp_path: Path) -> None:
    spawner, pid_file = Spawner(STUBBORN), PidFile(tmp_path / "x.pid")
    pid_file.start(spawner)
    pid_file.signal(signal.SIGTERM)
    pid_file.await_end(0.1)
    assert _reap(spawner) == [-9]


@pytest.mark.parametrize("content", [None, "", "nonsense", str(os.getpid())])
def test_a_file_that_nobody_holds_means_nothing(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "x.pid"
    if content is not None:
        path.write_text(content)
    pid_file = PidFile(path)
    assert pid_file.pid() is None
    pid_file.signal(signal.SIGTERM)  # must not hit whoever has that number now
    pid_file.await_end(1)
