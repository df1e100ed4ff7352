"""Secrets are planted in a real deployment, whose sink repeats every request in its answer; then all that it wrote or
said is searched: topics, logs at their chattiest, metrics, every answer of the API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

from typer.testing import CliRunner

from hub_app.cli import build
from hub_app.dev.facts import NewFact
from hub_app.dev.worker import ADMIN_KEY
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import KEK, Deployment
from tests.support.sink import RecordingSink, Reply, Request
from tests.support.waiting import until

QUERY = "CANARYQUERY"
HEADERS = {"Authorization": "Bearer CANARYBEARER", "X-Api-Key": "CANARYAPIKEY", "X-Env": "prod"}
TRUNCATED = "CANARYUSER"


def repeats(request: Request) -> Reply:
    """Everything that it was sent, with a status that fails."""
    return Reply(500, body=f"{request.path} {dict(request.headers)}".encode())


def test_nothing_secret_is_written_or_said(make_hub: MakeDeployment, sink: RecordingSink) -> None:
    hub = make_hub(backoff="50ms", log_level="debug", log_format="json")
    worker = hub.started()
    source = hub.source("canary")
    api, path = hub.api(worker, source), f"/{source}"
    url = f"{sink.behave(path, repeats)}?token={QUERY}"
    wish = {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": url, "headers": HEADERS}}
    made = api.call("POST", "/v1/subscriptions", wish)
    assert made["verification_state"] == "active"
    one = f"/v1/subscriptions/{made['id']}"
    rotated = api.call("POST", f"{one}/secret:rotate", {})
    tried = json.dumps(api.call("POST", f"{one}/test", {}))
    assert "X-Env" in tried, "the sink does repeat what it was sent"
    hub.send([NewFact(id=f"{source}-{i}", tenant=source, source=source) for i in range(3)])
    [*_, last] = until(lambda: _dead(api, 3), lambda: api.call("GET", f"{one}/attempts"))
    api.call("POST", f"/v1/dead-letters/{last['id']}/redrive")
    until(lambda: len(sink.requests(path)) >= 7, lambda: len(sink.requests(path)))
    [request, *_] = sink.requests(path)
    assert {name: request.header(name) for name in HEADERS} == HEADERS
    said = _answers(worker.url, api.key, one) + tried
    refused = f"https://u:{TRUNCATED}@crm.example.com/?token={QUERY}"
    said += _ask(worker.url, api.key, "PATCH", one, {"sink": {"url": refused}})
    said += _ask(worker.url, api.key, "PATCH", one, {"sink": {"headers": {"Host": "CANARYBEARER"}}})
    worker.stop()
    written = _written(hub)
    log = worker.log_path.read_text(errors="replace")
    assert source in written
    assert "subscription_created" in log
    shown = CliRunner().invoke(build(worker.environment), ["settings"])
    assert "STREAMING_HUB_ADMIN_KEY" in shown.stdout
    secrets = {
        "signing secret": made["secret"].removeprefix("whsec_"),
        "rotated secret": rotated["secret"].removeprefix("whsec_"),
        "API key": api.key.split("_")[2],
        "admin key": ADMIN_KEY,
        "key for secrets": worker.environment[KEK],
        "bearer": "CANARYBEARER",
        "header": "CANARYAPIKEY",
        "userinfo": TRUNCATED,
    }
    places = {"topics": written, "log": log, "answers": said, "settings": shown.output}
    found = [(name, place) for name, secret in secrets.items() for place, text in places.items() if secret in text]
    assert found == []
    # A query is part of the address: it stands where an address stands, and nowhere else.
    for place in ("topics", "answers"):
        assert places[place].count(QUERY) == places[place].count(f"{path}?token={QUERY}"), place
    assert QUERY not in log


def _dead(api: Any, count: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.call("GET", "/v1/dead-letters")["dead_letters"]
    return found if len(found) >= count else []


def _answers(url: str, key: str, one: str) -> str:
    """What the API says of it, but for the answers that show a secret once."""
    mine = (
        *(one, f"{one}/attempts", f"{one}/health", "/v1/subscriptions", "/v1/events", "/v1/events/0/why"),
        *("/v1/dead-letters", "/v1/operations", "/v1/operator-events"),
    )
    admins = ("/admin/dlq", "/admin/quarantine", "/admin/operator-events", f"/admin/tenants/{one.split('/')[1]}/keys")
    open_to_all = ("/metrics", "/readyz", "/healthz", "/openapi.json")
    asked = [*((path, key) for path in mine), *((path, ADMIN_KEY) for path in admins), *((p, "") for p in open_to_all)]
    return "\n".join(_ask(url, key, "GET", path, None) for path, key in asked)


def _ask(url: str, key: str, method: str, path: str, body: object) -> str:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {key}"} if key else {})
    request = urllib.request.Request(url + path, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return f"{answer.headers}\n{answer.read().decode()}"
    except urllib.error.HTTPError as error:
        return f"{error.headers}\n{error.read().decode()}"


def _written(hub: Deployment) -> str:
    """Every record of every topic of the hub."""
    topics = [name.removeprefix(hub.prefix) for name in hub.run(hub.list_topics()) if name.startswith(hub.prefix)]
    records = [record for topic in topics for record in hub.records(topic)]
    assert len(records) > 20
    texts = [[record.key or b"", record.value or b"", *(v or b"" for _, v in record.headers)] for record in records]
    return "\n".join(part.decode("utf-8", "replace") for parts in texts for part in parts)
