"""The commands: what they print, where, and with which exit status."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from hub_app.cli import main

Captured = pytest.CaptureFixture[str]


def run(captured: Captured, *arguments: str, environ: Mapping[str, str] | None = None) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as end:
        main(arguments, environ or {})
    out, err = captured.readouterr()
    return end.value.code, out, err


def test_settings_lists_names_values_sources_and_meanings(capsys: Captured) -> None:
    code, out, err = run(capsys, "settings", environ={"STREAMING_HUB_SHARDS": "3", "STREAMING_HUB_SHRADS": "4"})
    assert code == 0
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines()}
    assert rows["NAME"] == ["VALUE", "SOURCE", "MEANING"]
    assert rows["STREAMING_HUB_SHARDS"][:2] == ["3", "environment"]
    assert rows["MULTI_TENANT_ENABLED"][:2] == ["false", "default"]
    assert "did you mean STREAMING_HUB_SHARDS?" in err


def test_settings_as_json_hides_secrets(capsys: Captured) -> None:
    code, out, _ = run(capsys, "settings", "--json", environ={"STREAMING_HUB_ADMIN_KEY": "very-secret-admin-key"})
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)["settings"]}
    assert rows["STREAMING_HUB_ADMIN_KEY"]["value"] == "(hidden)"
    assert "very-secret" not in out


def test_topics_are_those_of_the_settings(capsys: Captured) -> None:
    environ = {"STREAMING_HUB_TOPIC_PREFIX": "t.", "STREAMING_HUB_BACKOFF": "1s,90s", "STREAMING_HUB_SHARDS": "3"}
    code, out, _ = run(capsys, "topics", "--json", environ=environ)
    topics = {topic["name"]: topic for topic in json.loads(out)}
    assert code == 0
    assert {name for name in topics if "retry" in name} == {"t.retry.1s", "t.retry.90s", "t.retry.parked"}
    assert topics["t.facts"]["partitions"] == 3
    assert run(capsys, "topics", environ=environ)[1].splitlines()[1].split() == ["t.facts", "3", "1", "delete", "14d"]


@pytest.mark.parametrize("command", ["settings", "topics"])
def test_wrong_settings_are_told_at_once_with_78(capsys: Captured, command: str) -> None:
    environ = {"STREAMING_HUB_SHARDS": "x", "STREAMING_HUB_ROLE": "y"}
    code, out, err = run(capsys, command, environ=environ)
    assert (code, out) == (78, "")
    assert [line.partition("=")[0] for line in err.splitlines()] == ["STREAMING_HUB_ROLE", "STREAMING_HUB_SHARDS"]


@pytest.mark.parametrize("arguments", [("nope",), ("topics", "--nope"), ("settings", "extra"), ()])
def test_wrong_usage_ends_with_64(capsys: Captured, arguments: tuple[str, ...]) -> None:
    code, _, err = run(capsys, *arguments)
    assert code == 64
    assert "Usage: hub" in err


def test_help(capsys: Captured) -> None:
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert "settings" in out
