"""docker-compose.yml and Dockerfile: valid by the compose schema, and in agreement with the code beside them.

They are checked, not run: nothing here needs Docker.
"""

from __future__ import annotations

import copy
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from hub_app.dev.kafka.jars import locked_jars
from hub_app.dev.kafka.node import settings
from hub_app.settings.fields import FIELDS

ROOT = Path(__file__).resolve().parents[2]
# In a container the listeners, the voters and the folder are others; see the comments of the compose file.
OWN_IN_CONTAINERS = {
    "listeners",
    "advertised.listeners",
    "listener.security.protocol.map",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    return document


@pytest.fixture(scope="module")
def schema() -> jsonschema.protocols.Validator:
    """The compose specification's own schema: the only thing wanted of check-jsonschema, which carries it."""
    carrier = importlib.metadata.distribution("check-jsonschema")
    path = carrier.locate_file("check_jsonschema/builtin_schemas/vendor/compose-spec.json")
    found = json.loads(Path(str(path)).read_text("utf-8"))
    return jsonschema.validators.validator_for(found)(found)


def test_compose_is_valid(compose: dict[str, Any], schema: jsonschema.protocols.Validator) -> None:
    schema.validate(compose)


@pytest.mark.parametrize("wrong", [{"imagee": "x"}, {"ports": "8080"}, {"depends_on": {"kafka": {"condition": "up"}}}])
def test_the_schema_does_refuse(
    compose: dict[str, Any], schema: jsonschema.protocols.Validator, wrong: dict[str, Any]
) -> None:
    broken = copy.deepcopy(compose)
    broken["services"]["hub"] |= wrong
    assert not schema.is_valid(broken)


def test_services_depend_on_what_is_there(compose: dict[str, Any]) -> None:
    services = compose["services"]
    for service in services.values():
        for name, how in service.get("depends_on", {}).items():
            assert how["condition"] != "service_healthy" or "healthcheck" in services[name]
    assert {volume.partition(":")[0] for volume in services["kafka"]["volumes"]} == compose["volumes"].keys()


def test_ports_are_published_on_the_loopback_only(compose: dict[str, Any]) -> None:
    published = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published)


def test_its_kafka_is_the_one_tests_run_on(compose: dict[str, Any]) -> None:
    kafka = compose["services"]["kafka"]
    [version] = [jar.version for jar in locked_jars() if jar.artifact == "kafka-clients"]
    assert kafka["image"] == f"apache/kafka:{version}"
    wanted = {
        name: value for name, value in settings(Path("x"), (9092,), 1, {}).items() if name not in OWN_IN_CONTAINERS
    }
    there = {"KAFKA_" + name.replace(".", "_").upper(): value for name, value in wanted.items()}
    assert there.items() <= kafka["environment"].items()


def test_the_hub_knows_its_settings(compose: dict[str, Any]) -> None:
    fields = {field.variable: field for field in FIELDS}
    for name, text in compose["services"]["hub"]["environment"].items():
        default = re.fullmatch(r"\$\{" + name + r":-(.*)\}", text)
        fields[name].read(default[1] if default else text)  # KeyError: no such setting; ValueError: no such value


def _instructions() -> list[tuple[str, str]]:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in lines]


def test_the_image_runs_as_nobody_special_and_tells_its_health() -> None:
    last_stage = _instructions()
    while (index := next((i for i, (name, _) in enumerate(last_stage[1:], 1) if name == "FROM"), None)) is not None:
        last_stage = last_stage[index:]
    given = dict(last_stage)
    assert given["USER"] == "hub"
    assert "useradd" in given["RUN"]
    assert "/healthz" in given["HEALTHCHECK"]
    assert json.loads(given["CMD"])[0] == "faust"
    scripts = importlib.metadata.entry_points(group="console_scripts")
    assert "faust" in scripts.names


def test_the_image_is_built_from_what_exists_and_is_not_ignored() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {name for instruction, rest in _instructions() if instruction == "COPY" for name in rest.split()[:-1]}
    assert copied == kept
    assert all((ROOT / name).exists() for name in copied)


def test_the_image_has_a_supported_python() -> None:
    [version] = re.findall(r"^ARG PYTHON=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert version in {"3.11", "3.12", "3.13"}
    assert all(rest.startswith("python:${PYTHON}-slim") for name, rest in _instructions() if name == "FROM")
