"""The wheel holds the three packages and what they need beside them, and works without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import hub_app

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"hub_app", "agents", "tables"}
DATA = {"hub_app/py.typed", "hub_app/dev/kafka/pom.xml", "hub_app/dev/kafka/jars.lock"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    [built] = target.glob("*.whl")
    return built


def _project() -> dict[str, object]:
    project: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return project


def test_it_holds_the_three_packages_whole(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == PACKAGES
    sources = {path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    assert sources | DATA <= set(names)


def test_its_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
        assert "hub = hub_app.cli:main" in archive.read(name).decode()
    project = _project()
    assert metadata["Name"] == project["name"]
    assert metadata["Version"] == project["version"] == hub_app.__version__


def test_it_works_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    program = (
        "import hub_app, agents, tables; from hub_app import _siblings; _siblings.check(); "
        "from hub_app.dev.kafka.jars import locked_jars; print(hub_app.__file__, len(locked_jars()) > 30)"
    )
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [str(tmp_path / "site" / "hub_app" / "__init__.py"), "True"]
