"""`hub doctor` on a real Kafka: a deployment that is well, and each of the things that may be wrong with one."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from hub_app.cli import build
from hub_app.cli.doctor.cluster import judge_clock
from hub_app.cli.doctor.disk import examine_disk
from hub_app.dev.kafka import Cluster, External
from hub_app.dev.worker import Api, Worker, free_port
from tests.support.background import Background
from tests.support.deployment import KEK, Deployment
from tests.support.sink import RecordingSink

PREFIX = "STREAMING_HUB_"


@pytest.fixture(scope="module")
def background() -> Iterator[Background]:
    made = Background()
    yield made
    made.close()


@pytest.fixture(scope="module")
def hub(
    kafka: Cluster | External, background: Background, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    made = Deployment(background, kafka.bootstrap, tmp_path_factory.mktemp("doctor"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def worker(hub: Deployment, background: Background) -> Iterator[Worker]:
    """With a queue, and a webhook that can be reached."""
    sink, worker = RecordingSink(background), hub.started()
    hub.source("seen")
    api = hub.api(worker, "t")
    api.call("POST", "/v1/subscriptions", {"name": "q", "event_types": ["*"], "sink": QUEUE})
    made = api.call("POST", "/v1/subscriptions", wish(sink.url("/in?token=CANARY")))
    assert made["verification_state"] == "active"
    yield worker
    sink.close()


QUEUE = {"type": "queue", "topic": "orders", "name": "billing"}


def wish(url: str, **more: Any) -> dict[str, Any]:
    return {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": url}, **more}


def doctor(environ: Mapping[str, str], **changes: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Exit status, and the findings by name; the broken one where several have one name."""
    given = {PREFIX + name: value for name, value in changes.items()}
    result = CliRunner().invoke(build({**environ, **given}), ["doctor", "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    findings = orjson.loads(result.stdout)["findings"]
    assert all(set(row) == {"what", "well", "detail", "repair"} for row in findings)
    assert all(row["well"] or row["repair"] for row in findings), "what is broken says what to repair"
    return result.exit_code, {row["what"]: row for row in sorted(findings, key=lambda row: not row["well"])}


def test_a_deployment_that_is_well(worker: Worker) -> None:
    status, found = doctor(worker.environment)
    assert [row for row in found.values() if not row["well"]] == []
    assert status == 0
    expected = {"disk", "data folder", "broker", "broker's settings", "topics of the hub", "producers' topics"}
    assert expected | {"permissions", "clock", "key for secrets", "reachable sinks"} == found.keys()
    assert f"process {worker.pid}" in found["data folder"]["detail"]
    assert "it opens the secrets of 2 subscriptions" in found["key for secrets"]["detail"]
    assert found["reachable sinks"]["detail"] == "1 of 1 reached"
    assert "transactions begun" in found["permissions"]["detail"]


def test_for_people_a_line_each(worker: Worker) -> None:
    result = CliRunner().invoke(build(worker.environment), ["doctor"])
    assert result.exit_code == 0
    assert {line.split()[0] for line in result.stdout.splitlines()} == {"ok"}
    broken = CliRunner().invoke(build({**worker.environment, PREFIX + "SHARDS": "5"}), ["doctor"])
    assert broken.exit_code == 1
    [line, repair, *_] = [text for text in broken.stdout.splitlines() if "partitions" in text]
    assert line.startswith("BROKEN")
    assert "has 4 partitions, but STREAMING_HUB_SHARDS is 5" in line
    assert "-> docs/operations.md, Wrong number of partitions" in repair


def test_no_topics_yet(worker: Worker) -> None:
    status, found = doctor(worker.environment, TOPIC_PREFIX=f"n{secrets.token_hex(4)}.")
    assert (status, found["topics of the hub"]["repair"]) == (1, "start a worker, which makes them")
    assert "not compared" in found["clock"]["detail"]


def test_keys_that_are_missing_or_old_are_named(worker: Worker) -> None:
    other = base64.b64encode(secrets.token_bytes(32)).decode()
    status, found = doctor({**worker.environment, "OTHER_KEY": other}, KEK_REF="OTHER_KEY")
    finding = found["key for secrets"]
    assert (status, finding["well"]) == (1, False)
    assert "no key named in STREAMING_HUB_KEK_REF has the fingerprint" in finding["detail"]
    assert finding["detail"].count("sub_") == 2
    status, found = doctor({**worker.environment, "OTHER_KEY": other}, KEK_REF=f"OTHER_KEY,{KEK}")
    assert (status, found["key for secrets"]["well"]) == (0, True)
    assert f"2 under {KEK}: keep naming it until they have been rotated" in found["key for secrets"]["detail"]
    status, found = doctor(worker.environment, KEK_REF="")
    assert (status, found["key for secrets"]["well"]) == (1, False)
    for row in found.values():
        assert other not in str(row)


def test_sinks_that_cannot_be_reached_are_named(hub: Deployment, worker: Worker) -> None:
    """By origin alone: what stands behind it is the tenant's own."""
    api, port = Api(worker.url).tenant("sinks"), free_port()
    ids = [api.call("POST", "/v1/subscriptions", wish(f"http://127.0.0.1:{port}/?token=CANARY", verify=False))["id"]]
    try:
        status, found = doctor(worker.environment)
        assert status == 0, "one that is not verified yet receives nothing, so nothing is amiss"
        made = RecordingSinkOnce(hub)
        ids.append(api.call("POST", "/v1/subscriptions", wish(made.url))["id"])
        made.close()
        status, found = doctor(worker.environment)
        assert (status, found["reachable sinks"]["detail"]) == (1, "1 of 2 reached")
        finding = found[f"sink {made.origin}"]
        assert finding["detail"].startswith("connect: ")
        assert ids[1] in finding["detail"]
        assert "CANARY" not in str(found)
        # A deployment that allows no private addresses any more.
        status, found = doctor(worker.environment, ALLOW_PRIVATE_SINKS="false")
        assert status == 1
        assert "scheme" in found[f"sink of {ids[1]}"]["detail"]
        assert found[f"sink of {ids[1]}"]["repair"] == "change the subscription's URL"
    finally:
        for id in ids:
            api.call("DELETE", f"/v1/subscriptions/{id}", None)


class RecordingSinkOnce:
    """A sink of its own, to be ended."""

    def __init__(self, hub: Deployment) -> None:
        self._sink = RecordingSink(hub._background)
        self.url = self._sink.url("/x?token=CANARY")
        self.origin = self.url.rpartition("/")[0]

    def close(self) -> None:
        self._sink.close()


def test_nobody_answers(tmp_path: Path) -> None:
    environ = {PREFIX + "DATA_DIR": str(tmp_path), PREFIX + "KAFKA_BROKERS": f"127.0.0.1:{free_port()}"}
    status, found = doctor(environ)
    assert (status, found["broker"]["well"], "KAFKA_BROKERS" in found["broker"]["repair"]) == (1, False, True)


def test_disks(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    [finding] = examine_disk(file / "data")
    assert (finding.well, "is not a folder" in finding.detail) == (False, True)
    room, lock = examine_disk(tmp_path / "new" / "data")
    assert (room.well, lock.well) == (True, True)
    assert not (tmp_path / "new").exists(), "the doctor makes no folder"
    [room, _] = examine_disk(tmp_path, free_bytes_min=1 << 62)
    assert (room.well, "make room" in room.repair) == (False, True)
    (tmp_path / "odd" / "worker.lock").mkdir(parents=True)
    [_, lock] = examine_disk(tmp_path / "odd")
    assert (lock.well, "DATA_DIR" in lock.repair) == (False, True)
    [finding] = examine_disk(Path("/proc/self"))
    assert (finding.well, "cannot be written" in finding.detail) == (False, True)


@pytest.mark.parametrize(
    ("began_ms", "took_ms", "broker_ms", "well"),
    [
        (1_000_000, 10, 1_000_005, True),
        (1_000_000, 10, 1_002_005, True),
        (1_000_000, 10, 1_002_011, False),
        (1_000_000, 10, 997_900, False),
        (1_000_000, 8_000, 1_009_000, True),  # a slow answer tells little
        (1_000_000, 8_000, 1_010_001, False),
    ],
)
def test_clocks(began_ms: int, took_ms: int, broker_ms: int, well: bool) -> None:
    finding = judge_clock(began_ms, took_ms, broker_ms)
    assert (finding.well, bool(finding.repair)) == (well, not well)


# -- permissions -------------------------------------------------------------------------------------------------------
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ME = "User:ANONYMOUS"


def test_each_right_that_lacks_is_named(
    make_kafka: Callable[..., Cluster], background: Background, tmp_path: Path
) -> None:
    kafka = make_kafka(overrides=AUTHORIZER)
    hub = Deployment(background, kafka.bootstrap, tmp_path)
    try:
        worker = hub.started()
        hub.source("seen")
        assert doctor(worker.environment)[0] == 0
        worker.stop()
        topic, group = f"{hub.prefix}deliveries", f"streaming-hub-inbox.{hub.env}"
        owners, hidden = f"{hub.prefix}owner.", f"{hub.prefix}quarantine"
        deny(kafka, "--topic", topic, "Write", "AlterConfigs")
        deny(kafka, "--topic", hidden, "Describe", "Read", "Write")
        deny(kafka, "--topic", f"{hub.prefix}operator", "Write")
        deny(kafka, "--group", group, "Read")
        deny(kafka, "--transactional-id", owners, "Write", pattern="prefixed")
        result = CliRunner().invoke(build(worker.environment), ["doctor", "--json"])
        findings = orjson.loads(result.stdout)["findings"]
        details = [row["detail"] for row in findings if row["what"] == "permissions"]
        assert result.exit_code == 1
        assert f"topic {topic}: no WRITE, ALTER_CONFIGS" in details
        assert any(text.startswith(f"topic {hidden}: no DESCRIBE, READ, WRITE") for text in details)
        assert f"group {group}: no READ" in details
        assert f"transactional id {owners}doctor: TransactionalIdAuthorizationFailed" in details
        clock = next(row for row in findings if row["what"] == "clock")
        assert (clock["well"], "WRITE on topic" in clock["repair"]) == (False, True)
        repairs = {row["detail"]: row["repair"] for row in findings}
        assert repairs[f"group {group}: no READ"] == f"give this user READ on group {group}"
    finally:
        hub.close()


def deny(kafka: Cluster, kind: str, name: str, *operations: str, pattern: str = "literal") -> None:
    """What is not denied stays allowed: a resource with any rule allows no more than its rules say."""
    named = (kind, name, "--resource-pattern-type", pattern, "--force")
    kafka.tool("acls", "--add", "--allow-principal", ME, "--operation", "All", *named)
    asked = [part for operation in operations for part in ("--operation", operation)]
    kafka.tool("acls", "--add", "--deny-principal", ME, *asked, *named)
