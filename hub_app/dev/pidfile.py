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
    """The file stays when its process is gone: to delete it could take a lock from under somebody who starts one."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, spawn: Callable[[int], subprocess.Popen[bytes]]) -> bool:
        """Calls `spawn(descriptor)`, which must pass the descriptor on (`pass_fds`), unless it runs already (False)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+") as lock:
            while not _lock(lock.fileno(), fcntl.LOCK_EX):
                if self.pid() is not None:
                    return False
                time.sleep(POLL_SECONDS)  # someone who merely asks holds the lock for a moment
            process = spawn(lock.fileno())
            lock.truncate(0)
            lock.write(f"{process.pid}\n")
        return True

    def pid(self) -> int | None:
        """The process id while it runs, else None."""
        try:
            with self.path.open("r+") as lock:
                # Shared, so that two who ask do not take each other for the process.
                return None if _lock(lock.fileno(), fcntl.LOCK_SH) else int(lock.read())
        except (FileNotFoundError, ValueError):  # never started, or being started by another process this moment
            return None

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal if it runs."""
        if (pid := self.pid()) is not None:
            with suppress(ProcessLookupError):  # it ended this moment
                os.kill(pid, number)

    def await_end(self, seconds: float) -> None:
        """Returns when it is gone; after `seconds` it is killed."""
        ends = time.monotonic() + seconds
        while self.pid() is not None:
            if time.monotonic() > ends:
                self.signal(signal.SIGKILL)
            time.sleep(POLL_SECONDS)


def _lock(descriptor: int, how: int) -> bool:
    """Takes the lock without waiting; False if another open file's stands against it."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
