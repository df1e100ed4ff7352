"""The commands over the API, against a deployment that is served for real."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx
import orjson
import pytest
from standardwebhooks import Webhook
from typer.testing import CliRunner, Result

from hub_app.cli import build
from hub_app.cli.listen import make_server
from tests.fakes.workers import ADMIN_KEY
from tests.support.openapi_world import World, prepared
from tests.support.served import Served, served


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[Served, World]]:
    with served(prepared) as made:
        yield made


def run(world: tuple[Served, World], *arguments: str, key: str | None = None) -> Result:
    environ = {"HUB_URL": world[0].worker.url, "HUB_API_KEY": world[1].key if key is None else key}
    return CliRunner().invoke(build(environ), list(arguments))


def value(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return orjson.loads(result.stdout)


def test_subscriptions_from_beginning_to_end(world: tuple[Served, World]) -> None:
    wish = '{"name": "cli", "event_types": ["*"], "sink": {"type": "webhook", "url": "https://crm.example.com/cli"}}'
    made = value(run(world, "subscriptions", "create", wish, "--json"))
    assert made["secret"].startswith("whsec_")
    listed = run(world, "subscriptions", "list")
    assert listed.exit_code == 0
    assert made["id"] in listed.stdout
    assert value(run(world, "subscriptions", "change", made["id"], '{"name": "x"}', "--json"))["name"] == "x"
    assert value(run(world, "subscriptions", "rotate", made["id"], "--json"))["secret"] != made["secret"]
    assert value(run(world, "subscriptions", "test", made["id"], "--json"))["delivered"] is True
    assert value(run(world, "subscriptions", "verify", made["id"], "--json"))["enabled"] is True
    for command in ("show", "health", "attempts"):
        assert run(world, "subscriptions", command, made["id"]).exit_code == 0, command
    assert value(run(world, "subscriptions", "replay", made["id"], '{"from_seq": 0}', "--json"))["kind"] == "replay"
    assert run(world, "subscriptions", "delete", made["id"]).exit_code == 0


def test_the_rest_answers(world: tuple[Served, World]) -> None:
    letter = world[1].parts["/v1/dead-letters/{id}:id"][0]
    assert len(value(run(world, "events", "list", "--json"))["events"]) == 8
    assert value(run(world, "events", "why", "1", "--json"))["seq"] == 1
    assert letter in run(world, "dead-letters", "list").stdout
    assert value(run(world, "dead-letters", "show", letter, "--json"))["event"]["seq"] == 1
    assert value(run(world, "dead-letters", "redrive-many", '{"dry_run": true}', "--json"))["kind"] == "redrive"
    assert run(world, "dead-letters", "redrive", letter).exit_code == 0
    assert run(world, "dead-letters", "discard", letter).exit_code == 0
    assert run(world, "operations", "list").exit_code == 0
    draft = '{"subscription": {"event_types": ["a.*"]}, "event": {"type": "a.b"}}'
    assert value(run(world, "subscriptions", "preview", draft, "--json"))["matched"] is True
    made = value(run(world, "keys", "create", "t", "manage", "--json", key=ADMIN_KEY))
    assert made["id"] in run(world, "keys", "list", "t", key=ADMIN_KEY).stdout
    assert run(world, "keys", "delete", "t", made["id"], key=ADMIN_KEY).exit_code == 0


def test_a_refusal_names_field_and_repair(world: tuple[Served, World]) -> None:
    result = run(world, "subscriptions", "create", '{"name": "x"}')
    assert result.exit_code == 1
    assert "/event_types: must be a list" in result.stderr
    assert "401" in run(world, "subscriptions", "list", key="").stderr
    assert run(world, "subscriptions", "create", "{").exit_code == 2


def test_nobody_there() -> None:
    result = CliRunner().invoke(build({"HUB_URL": "http://127.0.0.1:9"}), ["events", "list"])
    assert (result.exit_code, "HUB_URL" in result.stderr) == (69, True)


def test_listen_verifies_and_fails_on_schedule() -> None:
    secret, said = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", list[str]()
    server = make_server("127.0.0.1", 0, secret=secret, fail_every=3, status=503, say=said.append)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        statuses = []
        for number in range(6):
            now = datetime.now(UTC)
            signature = Webhook(secret).sign(f"evt_{number}", now, "{}") if number != 4 else "v1,AAAA"
            headers = {
                "webhook-id": f"evt_{number}",
                "webhook-timestamp": str(int(now.timestamp())),
                "webhook-signature": signature,
            }
            answer = httpx.post(f"http://127.0.0.1:{server.server_port}/", content=b"{}", headers=headers)
            statuses.append(answer.status_code)
        assert statuses == [204, 204, 503, 204, 401, 503]
        assert "the signature does not hold" in said[4]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
