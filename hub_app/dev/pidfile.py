"""Processes that outlive who started them, and can be found again.

The process itself holds a lock on its pid file (an inherited descriptor), so "is it running" has one exact answer,
whoever asks and however it died; a number that another process got meanwhile is never taken for it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.02


class PidFile:
    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, spawn: Callable[[int], subprocess.Popen[bytes]]) -> bool:
        """Calls `spawn(descriptor)`, which must pass the descriptor on (`pass_fds`), unless it runs already (False)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+") as lock:
            if not _lock(lock.fileno()):
                return False
            process = spawn(lock.fileno())
            lock.truncate(0)
            lock.write(f"{process.pid}\n")
        return True

    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        try:
            with self.path.open("r+") as lock:
                return None if _lock(lock.fileno()) else int(lock.read())
        except (FileNotFoundError, ValueError):
            return None

    def terminate(self) -> None:
        """SIGTERM, if it runs."""
        self._signal(signal.SIGTERM)

    def await_end(self, seconds: float) -> None:
        """Returns when it is gone; after `seconds` it is killed."""
        ends = time.monotonic() + seconds
        while self.pid() is not None:
            if time.monotonic() > ends:
                self._signal(signal.SIGKILL)
            time.sleep(POLL_SECONDS)
        self.path.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        if (pid := self.pid()) is not None:
            with suppress(ProcessLookupError):  # it ended this moment
                os.kill(pid, number)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
