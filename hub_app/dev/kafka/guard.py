"""Processes that end with their owner, however that ends."""

from __future__ import annotations

import subprocess

# Kills its process group, itself included, when its standard input closes: when the owner closes it, or dies. A group
# number cannot be taken by others while this member lives, so nobody else can be hit.
WATCHDOG = ("/bin/sh", "-c", "read -r _; kill -KILL 0")


class Guard:
    """A process group. Start processes in it with `Popen(process_group=guard.group)`; `close` kills all of them."""

    def __init__(self) -> None:
        quiet = subprocess.DEVNULL
        self._watchdog = subprocess.Popen(WATCHDOG, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, process_group=0)

    @property
    def group(self) -> int:
        return self._watchdog.pid

    @property
    def alive(self) -> bool:
        return self._watchdog.poll() is None

    def close(self) -> None:
        """Returns when the watchdog is gone."""
        with self._watchdog:  # closes its standard input and waits for it
            pass
