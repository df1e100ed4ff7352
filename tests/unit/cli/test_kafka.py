"""`hub send` and `hub doctor`, as far as they need no broker."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from hub_app.cli import build
from hub_app.cli.kafka import sample_headers
from hub_app.domain.cloudevents import Accept, judge

NOBODY = {"STREAMING_HUB_KAFKA_BROKERS": "127.0.0.1:9"}


def test_a_sample_is_a_fact() -> None:
    headers = sample_headers("lender", "acme", "loan.approved", now_ms=1_767_323_045_000)
    verdict = judge("lerian.streaming.lender", headers, b"{}", default_tenant=None)
    assert isinstance(verdict, Accept)
    assert (verdict.tenant, verdict.topic) == ("acme", "lender")


@pytest.mark.parametrize(("source", "type"), [("Lender", "a.b"), ("lender", "a"), ("lender", "a.b.c"), ("l", ".b")])
def test_what_is_none_is_wrong_usage(source: str, type: str) -> None:
    result = CliRunner().invoke(build(NOBODY), ["send", source, type])
    assert result.exit_code == 2


def test_the_doctor_says_what_to_repair(tmp_path: Path) -> None:
    environ = {**NOBODY, "STREAMING_HUB_DATA_DIR": str(tmp_path / "data")}
    result = CliRunner().invoke(build(environ), ["doctor", "--json"])
    assert result.exit_code == 1
    findings = {row["what"]: row for row in orjson.loads(result.stdout)["findings"]}
    assert (findings["broker"]["well"], "KAFKA_BROKERS" in findings["broker"]["repair"]) == (False, True)
    assert (findings["key for secrets"]["well"], "KEK_REF" in findings["key for secrets"]["repair"]) == (False, True)
    assert findings["disk"]["well"] is True
    assert all(row["well"] or row["repair"] for row in findings.values())
