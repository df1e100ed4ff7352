"""The data folder of one worker: locked against a second process, and what shards lie in it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import Literal, NamedTuple

Plane = Literal["inbox", "dispatch"]
PLANES: tuple[Plane, ...] = ("inbox", "dispatch")
_LOCK_NAME = "worker.lock"
_ASIDE_MAX = 1_000


class DataDirProblem(NamedTuple):
    """The folder cannot be used by this process; the caller prints `detail` and exits with 75 (try again later)."""

    path: Path
    detail: str


class DataDir:
    """`<path>/<plane>/<shard>`, held under an exclusive lock until `release` or the end of the process.

    Each worker process needs a folder of its own: two workers in one folder would open the same shard twice.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    @classmethod
    def lock(cls, path: Path) -> DataDir | DataDirProblem:
        """Make the folder if needed and lock it; never waits. Expected obstacles are values, not exceptions."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path / _LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            return DataDirProblem(path, f"data folder {path} cannot be used: {error.strerror or error}")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        except OSError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                by = f" (process {holder})" if holder else ""
                return DataDirProblem(path, f"data folder {path} is in use by another worker{by}")
            return DataDirProblem(path, f"data folder {path} cannot be used: {error.strerror or error}")
        return cls(path, descriptor)

    def folder(self, plane: Plane, shard: int) -> Path:
        return self.path / plane / str(shard)

    def shards(self, plane: Plane) -> tuple[int, ...]:
        """Shards that lie on this disk, ascending: what the sticky assignor announces. Not those set aside."""
        with contextlib.suppress(FileNotFoundError):
            names = (entry.name for entry in (self.path / plane).iterdir() if entry.is_dir())
            return tuple(sorted(int(name) for name in names if name.isascii() and name.isdigit()))
        return ()

    def release(self) -> None:
        """Give the lock up. Idempotent. Stores must be closed before."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def put_aside(path: Path, reason: str) -> Path:
    """Renames what lies there to `<name>.<reason>.<time>`; the new path. OSError when that cannot be done."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    for number in range(_ASIDE_MAX):
        target = path.with_name(f"{path.name}.{reason}.{stamp}" + (f".{number}" if number else ""))
        if not target.exists():
            return path.rename(target)
    raise OSError(f"too many of {path} were put aside at {stamp}")
