"""The files of this repository, as the house tests look at them."""

from __future__ import annotations

import ast
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("hub_app", "agents", "tables")


@cache
def tracked() -> tuple[Path, ...]:
    """Every file of the project: those git knows or would take, or, without git, those in the places code lives in."""
    command = ["git", "-C", str(ROOT), "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    try:
        names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
        paths = [ROOT / name for name in names if name]
    except (OSError, subprocess.CalledProcessError):
        folders = [ROOT / name for name in (*PACKAGES, "tests", "docs", ".ci")]
        paths = [*ROOT.glob("*.*"), ROOT / "Makefile", *(path for folder in folders for path in folder.rglob("*"))]
    return tuple(path for path in paths if path.is_file() and "__pycache__" not in path.parts)


def modules() -> list[Path]:
    """The Python files that are shipped."""
    return [path for path in tracked() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in PACKAGES]


def name(path: Path) -> str:
    """As people write it: `hub_app/ports.py`."""
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))
