"""The commands over the API, against a deployment that is served for real."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import orjson
import pytest
import typer
from standardwebhooks import Webhook
from typer.core import TyperGroup
from typer.testing import CliRunner, Result

from hub_app.cli import build
from hub_app.cli.listen import make_server
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.web.routes import table
from hub_app.wire import observations, quarantine
from hub_app.wire import operator as wire_operator
from hub_app.wire.record import Record
from tests.fakes.facts import fact
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment
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


def test_operator_events(world: tuple[Served, World]) -> None:
    hub = world[0].hub
    event = OperatorEvent("t", OperatorKind.WARNED, 1_767_323_045_000, "https://x/", "sub_a", "1", "half of the time")
    world[0].run(append(hub, NAMES.operator, hub.cluster.shard_of("t"), wire_operator.write(event)))
    [row] = value(run(world, "operator-events", "list", "--json"))["operator_events"]
    assert (row["id"], row["kind"]) == (event.id, "subscription.warned")
    assert "half of the time" in run(world, "operator-events", "list", "--kind", "subscription.warned").stdout
    assert value(run(world, "operator-events", "list", "--kind", "breaker.opened", "--json"))["operator_events"] == []
    shown = value(run(world, "operator-events", "all", "--tenant", "t", "--json", key=ADMIN_KEY))
    assert [row["tenant"] for row in shown["operator_events"]] == ["t"]


async def append(hub: Deployment, topic: str, partition: int, record: Record) -> int:
    return hub.cluster.append(topic, partition, record)


def test_what_was_not_admitted_is_seen_repaired_and_let_in(world: tuple[Served, World], tmp_path: Path) -> None:
    hub, source = (
        world[0].hub,
        SimpleNamespace(
            topic="lerian.streaming.lender",
            partition=3,
            offset=99,
            key=b"k",
            value=b"broken",
            headers=[(name, data) for name, data in fact(7).headers if name != "ce-specversion"],
        ),
    )
    held = quarantine.write(source, reason="specversion", detail="missing")
    offset = world[0].run(append(hub, NAMES.quarantine, 1, Record(held.key, held.value, held.headers)))
    id = f"1.{offset}"
    assert id in run(world, "quarantine", "list", "--class", "specversion", key=ADMIN_KEY).stdout
    assert value(run(world, "quarantine", "show", id, "--json", key=ADMIN_KEY))["offset"] == 99
    missing = run(world, "quarantine", "show", "1.999", key=ADMIN_KEY)
    assert (missing.exit_code, "there is no 1.999" in missing.stderr) == (1, True)
    refused = run(world, "quarantine", "ingest", id, key=ADMIN_KEY)
    assert (refused.exit_code, "specversion" in refused.stderr) == (1, True)
    (tmp_path / "payload.json").write_bytes(b'{"n": 1}')
    repair = ("--set", "ce-specversion=1.0", "--set", "ce-tenantid=t", "--unset", "ce-subject")
    payload = ("--value", str(tmp_path / "payload.json"))
    shown = value(run(world, "quarantine", "ingest", id, *repair, *payload, "--json", key=ADMIN_KEY))
    assert (shown["tenant"], shown["event_id"]) == ("t", "id-7")
    [entry] = [entry for entry in hub.cluster.log if entry.topic == NAMES.facts]
    assert entry.record.value == b'{"n": 1}'
    assert run(world, "quarantine", "ingest", id, "--set", "x", key=ADMIN_KEY).exit_code == 2


def test_what_producers_gave_up(world: tuple[Served, World]) -> None:
    hub, headers = world[0].hub, [("x-lerian-dlq-error-class", b"auth_error"), ("ce-tenantid", b"t")]
    for number in range(3):
        record = observations.write("lerian.streaming.lender.dlq", 0, number, 5, headers, b"payload")
        world[0].run(append(hub, NAMES.observations, number, record))
    rows = value(run(world, "dlq", "list", "--source", "lender", "--json", key=ADMIN_KEY))["dead_letters"]
    assert len(rows) == 3
    one = value(run(world, "dlq", "show", rows[2]["id"], "--json", key=ADMIN_KEY))
    assert (one["offset"], one["error_class"]) == (rows[2]["offset"], "auth_error")
    assert run(world, "dlq", "show", "none", key=ADMIN_KEY).exit_code == 1
    assert "403" in run(world, "dlq", "list").stderr


def test_bulk_work_is_followed_to_its_end(world: tuple[Served, World]) -> None:
    id, served = world[1].parts["id"][1], world[0]
    begun = value(run(world, "subscriptions", "replay", id, '{"from_seq": 0}', "--once", "k", "--json"))
    again = value(run(world, "subscriptions", "replay", id, '{"from_seq": 0}', "--once", "k", "--json"))
    assert (begun["state"], again["id"]) == ("running", begun["id"])
    served.run(served.worker.run_operations())
    result = run(world, "operations", "wait", begun["id"], "--json")
    assert value(result)["state"] == "done"
    assert "done: 8 looked at, 8 made" in result.stderr
    assert run(world, "operations", "wait", "opn_x").exit_code == 1


def test_a_body_from_standard_input(world: tuple[Served, World]) -> None:
    environ = {"HUB_URL": world[0].worker.url, "HUB_API_KEY": world[1].key}
    draft = '{"subscription": {"event_types": ["a.*"]}, "event": {"type": "a.b"}}'
    result = CliRunner().invoke(build(environ), ["subscriptions", "preview", "-", "--json"], input=draft)
    assert value(result)["matched"] is True


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


# -- every route has its command ---------------------------------------------------------------------------------------
EMPTY = {name: [] for name in ("subscriptions", "attempts", "events", "dead_letters", "operations", "keys", "records")}
ANSWER = {**EMPTY, "operator_events": [], "next": None, "id": "x", "state": "done", "looked_at": 0, "made": 0}
OF_THEMSELVES = {"settings", "topics", "send", "doctor", "listen"}
"""Commands that ask no hub."""


def commands(group: TyperGroup, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        elif (*path, name)[0] not in OF_THEMSELVES:
            yield (*path, name), command


def arguments(command: Any) -> list[str]:
    """Something for each of its arguments."""
    given = {"body": "{}", "scope": "manage", "id": "1"}
    return [given.get(str(one.name), "x") for one in command.params if one.param_type_name == "argument"]


def test_every_route_of_the_api_has_a_command_and_every_command_prints_json(world: tuple[Served, World]) -> None:
    asked = set[tuple[str, str]]()

    class Recorder(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.add((self.command, self.path.partition("?")[0]))
            body = orjson.dumps(ANSWER)
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_PATCH = do_DELETE = do_GET

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        app = build({"HUB_URL": f"http://127.0.0.1:{server.server_port}"})
        root = typer.main.get_command(app)
        assert isinstance(root, TyperGroup)
        for path, command in commands(root):
            result = CliRunner().invoke(app, [*path, *arguments(command), "--json"])
            assert result.exit_code == 0 or "there is no" in result.stderr, (path, result.output, result.stderr)
            assert not result.stdout or orjson.loads(result.stdout), path
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
    routes = {(route.method, route.path) for route in table(world[0].worker.deps)}
    found = {
        (route_method, template)
        for route_method, template in routes
        for method, path in asked
        if method == route_method and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/:]+", re.escape(template)), path)
    }
    assert routes - found == set()
