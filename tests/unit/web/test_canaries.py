"""Canaries: what is secret is found in no log, record, answer, metric or repr."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from tests.fakes.sender import fails
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Reply, Worker


async def test_secrets_are_found_nowhere(hub: Deployment, worker: Worker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    answers: list[Reply] = []

    async def ask(method: str, path: str, key: str | None, wish: object = None) -> dict[str, Any]:
        reply = await hub.ask(worker, method, path, key=key, json=wish)
        answers.append(reply)
        return reply.json if isinstance(reply.json, dict) else {}

    key = await hub.key(worker, "t")
    sink = {
        "type": "webhook",
        "url": "https://crm.example.com/in?token=CANARY-query",
        "headers": {"Authorization": "Bearer CANARY-header", "X-Api-Key": "CANARY-apikey"},
    }
    wish = {"name": "n", "event_types": ["*"], "sink": sink}
    made = await ask("POST", "/v1/subscriptions", key, wish)
    path = f"/v1/subscriptions/{made['id']}"
    rotated = await ask("POST", f"{path}/secret:rotate", key)
    shown_once = [made["secret"].removeprefix("whsec_"), rotated["secret"].removeprefix("whsec_")]
    once = len(answers)
    worker.sender.sink = fails("tls", "https://u:CANARY-user@crm.example.com/?token=CANARY-query failed")
    for method, asked, body in (
        ("GET", path, None),
        ("GET", "/v1/subscriptions", None),
        ("PATCH", path, {"name": "other"}),
        ("PATCH", path, {"sink": {"headers": {"Host": "CANARY-header"}}}),
        ("POST", f"{path}/verify", None),
        ("POST", f"{path}/test", None),
        ("GET", f"{path}/health", None),
        ("GET", f"{path}/attempts", None),
        ("GET", "/metrics", None),
        ("GET", "/readyz", None),
        ("GET", "/openapi.json", None),
        ("GET", "/admin/tenants/t/keys", None),
    ):
        await ask(method, asked, ADMIN_KEY if asked.startswith("/admin") else key, body)
    kept = worker.subscriptions.get("t", made["id"])
    written = [repr(entry) for entry in hub.cluster.log if entry.topic != NAMES.subscriptions]
    ours = [record for record in caplog.records if record.name.startswith("streaming_hub")]
    logs = [repr(vars(record)) + record.getMessage() for record in ours]
    secret = key.split("_")[2]
    places = {
        "answers": [answer.body.decode("utf-8", "replace") for answer in answers[once:]],
        "logs": logs,
        "records": written,
        "reprs": [repr(worker.settings), repr(kept), repr(worker.deps.keyring), repr(worker.deps.settings)],
    }
    headers = ["CANARY-header", "CANARY-apikey", "CANARY-user"]
    for name, texts in places.items():
        for text in texts:
            for canary in (*shown_once, secret, ADMIN_KEY, *headers):
                assert canary not in text, (name, canary, text[:300])
    stored = b"".join(entry.record.value or b"" for entry in hub.cluster.log)
    for canary in (*shown_once, secret):  # static headers are the tenant's own configuration, and not sealed
        assert canary.encode() not in stored
    assert orjson.loads(answers[once].body)["sink"]["headers"]["X-Api-Key"] == "***"
