"""A machine that has Python and nothing else: Java from a wheel, jars by a Maven client in Python."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from hub_app.dev.kafka.archive import fast_runtime
from hub_app.dev.kafka.jars import locked_jars


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """A Maven repository on this machine with the jars of the lock, and its folder."""
    root = tmp_path / "mirror"
    for jar, path in zip(locked_jars(), fast_runtime().jars, strict=True):
        folder = root.joinpath(*jar.group.split("."), jar.artifact, jar.version)
        folder.mkdir(parents=True)
        (folder / jar.filename).symlink_to(path)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(root))) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/", root
        server.shutdown()
        thread.join()


def _broker(cache: Path, url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "KAFKA_BROKERS")}
    environment = {**kept, "PATH": "/usr/nothing", "HUB_CACHE": str(cache), "HUB_MAVEN_URL": url}
    command = [sys.executable, "-m", "hub_app.dev.broker", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


def test_it_starts_and_its_tools_work(tmp_path: Path, mirror: tuple[str, Path]) -> None:
    cache, (url, _) = tmp_path / "cache", mirror
    try:
        started = _broker(cache, url, "start")
        assert (started.returncode, started.stderr) == (0, "")
        assert ": ready" in started.stdout
        assert _broker(cache, url, "tool", "topics", "--create", "--topic", "t").returncode == 0
        assert _broker(cache, url, "tool", "topics", "--list").stdout == "t\n"
    finally:
        assert _broker(cache, url, "wipe").returncode == 0


def test_a_jar_that_is_not_the_locked_one_is_refused(tmp_path: Path, mirror: tuple[str, Path]) -> None:
    cache, (url, root) = tmp_path / "cache", mirror
    [path] = root.rglob("kafka-clients-*.jar")
    code = path.read_bytes()
    path.unlink()
    path.write_bytes(code + b"\0")
    done = _broker(cache, url, "start")
    assert done.returncode == 78
    assert f"{path.name} has another digest than jars.lock" in done.stderr
    assert not (cache / "kafka" / "libs").exists()
