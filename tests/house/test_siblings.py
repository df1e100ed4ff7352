"""`agents` and `tables` of somebody else are named as intruders, whatever they do when imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import sys; sys.path.insert(0, sys.argv[1]); from hub_app import _siblings; _siblings.check()"


def _check(first_on_path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, str(first_on_path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("name", ["agents", "tables"])
@pytest.mark.parametrize("code", ["", "OWNER = 'another'", "raise RuntimeError('no key')", "import missing_dependency"])
def test_an_intruder_is_named(tmp_path: Path, name: str, code: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(code)
    done = _check(tmp_path)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"ImportError: the package '{name}' at {tmp_path / name / '__init__.py'} is not the one of")


def test_an_empty_folder_of_that_name_is_no_intruder(tmp_path: Path) -> None:
    """A folder without code is a namespace portion; the real package wins over it."""
    (tmp_path / "tables").mkdir()
    assert _check(tmp_path).returncode == 0


def test_our_own_pass(tmp_path: Path) -> None:
    done = _check(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
