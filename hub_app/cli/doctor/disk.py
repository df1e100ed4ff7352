"""The data folder: there or to be made, writable, with room, and not used by a second process."""

from __future__ import annotations

import errno
import shutil
import tempfile
from pathlib import Path

from hub_app.cli.doctor.finding import Finding, broken
from tables.datadir import DataDir

FREE_BYTES_MIN = 1 << 30
WHAT, LOCK = "disk", "data folder"
OWN = "give it to the hub's user, or set STREAMING_HUB_DATA_DIR to another folder"


def examine_disk(data_dir: Path, *, free_bytes_min: int = FREE_BYTES_MIN) -> list[Finding]:
    """Writes a file and takes it away again; makes no folder."""
    folder = data_dir
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if not folder.is_dir():
        return [broken(WHAT, f"{folder} is not a folder", "set STREAMING_HUB_DATA_DIR to a folder")]
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".hub-doctor-") as file:
            file.write(b"\0" * 4096)
            file.flush()
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        repair = "make room, or set STREAMING_HUB_DATA_DIR to a larger disk" if full else OWN
        return [broken(WHAT, f"{folder} cannot be written: {error.strerror or error}", repair)]
    return [_room(data_dir, folder, free_bytes_min), _lock(data_dir)]


def _room(data_dir: Path, folder: Path, free_bytes_min: int) -> Finding:
    free = shutil.disk_usage(folder).free
    detail = f"{data_dir}: {free >> 20} MiB free"
    if free < free_bytes_min:
        repair = "make room (folders named <shard>.<reason>.<time> may go), or set STREAMING_HUB_DATA_DIR elsewhere"
        return broken(WHAT, f"{detail}, less than {free_bytes_min >> 20}", repair)
    return Finding(WHAT, True, detail)


def _lock(data_dir: Path) -> Finding:
    if not data_dir.exists():
        return Finding(LOCK, True, f"{data_dir} will be made at the first start")
    held = DataDir.lock(data_dir)
    if isinstance(held, DataDir):
        held.release()
        return Finding(LOCK, True, f"{data_dir} is free")
    if "in use" in held.detail:
        return Finding(LOCK, True, f"{held.detail}: a second worker needs a folder of its own")
    return broken(LOCK, held.detail, OWN)
