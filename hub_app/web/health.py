"""Alive, ready, measured: the routes without a key."""

from __future__ import annotations

from aiohttp import web

from hub_app.domain.instants import rfc3339
from hub_app.web.deps import WebDeps
from hub_app.web.problems import Problem, json_response, not_found


class Health:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def live(self, _request: web.Request) -> web.Response:
        """The event loop turns; nothing else is claimed."""
        return json_response({"status": "ok", "version": self._deps.version})

    async def ready(self, _request: web.Request) -> web.Response:
        """200, or 503 with every reason and since when; notices do not block. Both name parts of the hub, never
        tenants."""
        reasons: list[dict[str, str]] = []
        notices: list[dict[str, str]] = []
        for name, reason in sorted(self._deps.readiness().items()):
            shown = {"name": name, "detail": reason.text, "since": rfc3339(reason.since_ms)}
            (reasons if reason.blocks else notices).append(shown)
        if self._deps.stopping():
            reasons.insert(0, {"name": "worker", "detail": "stopping", "since": rfc3339(self._deps.clock.now_ms())})
        status = "not ready" if reasons else "ready"
        return json_response({"status": status, "reasons": reasons, "notices": notices}, status=503 if reasons else 200)

    async def metrics(self, _request: web.Request) -> web.Response | Problem:
        if not self._deps.settings.metrics_enabled:
            return not_found("route")
        text = self._deps.metrics.registry.exposition()
        return web.Response(body=text.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
