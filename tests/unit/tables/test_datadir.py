"""One worker per data folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tables.datadir import DataDir, DataDirProblem

_HOLD = """
import sys
from pathlib import Path
from tables.datadir import DataDir
held = DataDir.lock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def _locked(path: Path) -> DataDir:
    found = DataDir.lock(path)
    assert isinstance(found, DataDir)
    return found


def test_a_second_worker_gets_a_value_that_names_folder_and_holder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        found = DataDir.lock(tmp_path)
        assert isinstance(found, DataDirProblem)
        assert found.detail == f"data folder {tmp_path} is in use by another worker (process {other.pid})"
        other.kill()
    _locked(tmp_path).release()  # a killed process holds nothing


def test_the_lock_can_be_given_up_and_taken_again_in_one_process(tmp_path: Path) -> None:
    first = _locked(tmp_path / "made" / "here")
    assert isinstance(DataDir.lock(first.path), DataDirProblem)
    first.release()
    first.release()
    _locked(first.path).release()


def test_a_folder_that_cannot_be_used_is_a_value_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = DataDir.lock(tmp_path / "file" / "data")
    assert isinstance(found, DataDirProblem)
    assert "cannot be used" in found.detail


def test_shards_on_disk_are_listed_and_those_set_aside_are_not(tmp_path: Path) -> None:
    data = _locked(tmp_path)
    assert data.shards("inbox") == ()
    for name in ("inbox/3", "inbox/11", "inbox/3.damaged.20260102T030405Z", "dispatch/0", "inbox/x"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "inbox" / "7").write_text("not a folder")
    assert (data.shards("inbox"), data.shards("dispatch")) == ((3, 11), (0,))
    assert data.folder("inbox", 3) == tmp_path / "inbox" / "3"
    data.release()
