"""Alive, ready, measured; and the answers to what is no route."""

from __future__ import annotations

import pytest

from tests.fakes.workers import ADMIN_KEY, Deployment, Reason, Worker


async def test_alive_says_nothing_else(hub: Deployment, worker: Worker) -> None:
    worker.reasons["kafka"] = Reason(0, "unreachable")
    reply = await hub.ask(worker, "GET", "/healthz")
    assert (reply.status, reply.json) == (200, {"status": "ok", "version": "0.0.0"})


async def test_ready_with_every_reason_and_since_when(hub: Deployment, worker: Worker) -> None:
    assert (await hub.ask(worker, "GET", "/readyz")).json == {"status": "ready", "reasons": [], "notices": []}
    worker.reasons["inbox/3"] = Reason(1_767_323_045_678, "rebuilding")
    worker.reasons["broker"] = Reason(1_767_323_045_000, "unreachable")
    reply = await hub.ask(worker, "GET", "/readyz")
    assert reply.status == 503
    assert reply.json == {
        "status": "not ready",
        "reasons": [
            {"name": "broker", "detail": "unreachable", "since": "2026-01-02T03:04:05.000Z"},
            {"name": "inbox/3", "detail": "rebuilding", "since": "2026-01-02T03:04:05.678Z"},
        ],
        "notices": [],
    }


async def test_a_notice_does_not_block(hub: Deployment, worker: Worker) -> None:
    worker.reasons["ingest"] = Reason(1_767_323_045_000, "no topic matches", blocks=False)
    reply = await hub.ask(worker, "GET", "/readyz")
    notice = {"name": "ingest", "detail": "no topic matches", "since": "2026-01-02T03:04:05.000Z"}
    assert (reply.status, reply.json) == (200, {"status": "ready", "reasons": [], "notices": [notice]})


async def test_a_stopping_worker_is_not_ready(hub: Deployment, worker: Worker) -> None:
    worker.is_stopping = True
    reply = await hub.ask(worker, "GET", "/readyz")
    assert reply.status == 503
    assert b"stopping" in reply.body


async def test_metrics_count_requests_by_template(hub: Deployment, worker: Worker) -> None:
    await hub.ask(worker, "GET", "/v1/subscriptions/sub_secret")
    await hub.ask(worker, "GET", "/v1/nothing/here")
    reply = await hub.ask(worker, "GET", "/metrics")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    text = reply.body.decode()
    assert 'hub_http_requests_total{route="/v1/subscriptions/{id}",status="401"} 1' in text
    assert 'hub_http_requests_total{route="/v1",status="404"} 1' in text
    assert "sub_secret" not in text


async def test_metrics_can_be_off(hub: Deployment) -> None:
    worker = await hub.worker(METRICS_ENABLED="false")
    assert (await hub.ask(worker, "GET", "/metrics")).status == 404


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/nothing", "/admin/x", "/v1/subscriptions/", "/v1/events/1/2"])
async def test_unknown_routes_are_problems(hub: Deployment, worker: Worker, path: str) -> None:
    reply = await hub.ask(worker, "GET", path, key=ADMIN_KEY)
    assert reply.status == 404
    assert reply.json == {
        "type": "urn:streaming-hub:problem:not-found",
        "title": "Not found",
        "status": 404,
        "detail": "there is no such route",
        "instance": path,
    }


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/v1/subscriptions", "POST, GET"),
        ("PUT", "/v1/subscriptions/x", "GET, PATCH, DELETE"),
        ("GET", "/v1/subscriptions/x/verify", "POST"),
        ("POST", "/v1/events", "GET"),
    ],
)
async def test_other_methods_are_told_which(
    hub: Deployment, worker: Worker, method: str, path: str, allowed: str
) -> None:
    reply = await hub.ask(worker, method, path)
    assert (reply.status, reply.headers["Allow"]) == (405, allowed)
