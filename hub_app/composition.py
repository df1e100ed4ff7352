"""The roof: the Faust app of a worker. The only file that sees everyone.

Faust is the shell (worker, agents, web server, services); its Kafka clients and tables stay off (ARCHITECTURE.md,
"Faust"). The parts are made in `hub_app.assembly`; what starts and stops in which order is `hub_app.lifecycle`.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Mapping
from typing import Any

import faust
from faust.app.base import BootStrategy

from hub_app.adapters.clock import SystemClock
from hub_app.adapters.entropy import SystemEntropy
from hub_app.adapters.keyring import EnvelopeKeyring
from hub_app.adapters.resolver import SystemResolver
from hub_app.adapters.sender_aiohttp import AiohttpSender
from hub_app.adapters.sender_fast import FastSender
from hub_app.assembly import Assembly, Ports
from hub_app.derived import egress_policy
from hub_app.lifecycle import Foundation, Hub, Planes, refuse_to_start
from hub_app.settings import Settings, parse
from hub_app.telemetry.log import logging_config
from tables.datadir import DataDir, DataDirProblem


def real_ports(settings: Settings) -> Ports:
    entropy = SystemEntropy()
    make = AiohttpSender if settings.sender == "aiohttp" else FastSender
    resolver = SystemResolver()
    sender = make(resolver=resolver, policy=egress_policy(settings))

    async def close() -> None:
        await sender.close()
        await resolver.close()

    return Ports(
        clock=SystemClock(),
        entropy=entropy,
        keyring=EnvelopeKeyring(settings.keks, entropy),
        sender=sender,
        close=close,
    )


class HubWorker(faust.Worker):  # type: ignore[misc]
    """Faust's worker without a spinner, which hides the cursor of whoever's process ends early and puts control codes
    into logs, and without standard error turned into log lines: what refuses to start says so there, plainly."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{**options, "redirect_stdouts": False})
        self.spinner = None


class HubBoot(BootStrategy):  # type: ignore[misc]
    """What a worker starts, in this order; it stops in the reverse one. No Kafka of Faust's."""

    enable_kafka = False

    def server(self) -> Iterable[Any]:
        app: HubApp = self.app
        hub = app.prepare()
        shell = (self.sensors(), [Foundation(hub)], self.web_server(), self.agents(), [Planes(hub)])
        services: Iterable[Any] = self._chain(*shell)
        return services


class HubApp(faust.App):  # type: ignore[misc]
    """The Faust app of a worker. Building it touches nothing; `prepare`, called by the starting worker, takes the data
    folder and makes the parts."""

    BootStrategy = HubBoot
    settings: Settings
    hub: Hub | None = None

    def prepare(self) -> Hub:
        if self.hub is None:
            self.hub = build_hub(self, self.settings)
        return self.hub


def app_from_environment(environ: Mapping[str, str] = os.environ) -> HubApp:
    """The app of a worker process. Wrong settings end the process with one line each, status 78."""
    settings = parse(environ, hostname=socket.gethostname(), terminal=sys.stderr.isatty())
    if not isinstance(settings, Settings):
        refuse_to_start([str(problem) for problem in settings], 78)
    return build_app(settings)


def build_app(settings: Settings) -> HubApp:
    """The shell: opens nothing, starts nothing."""
    app = HubApp(
        "streaming-hub",
        broker="kafka://off",
        store="memory://",
        autodiscover=False,
        datadir=str(settings.data_dir / "faust"),
        web_host=settings.http_host,
        web_bind=settings.http_host,
        web_port=settings.http_port,
        web_in_thread=False,
        web_application_options={"client_max_size": 8 << 20},
        logging_config=logging_config(settings.log_level, settings.log_format),
        Worker=HubWorker,
    )
    app.settings = settings
    app.web.production_blueprints = []  # Faust's own pages (/router, /table) stay off
    return app


def build_hub(app: HubApp, settings: Settings, ports: Ports | None = None) -> Hub:
    """Locks the data folder and builds every part; registers agents and routes. Ends the process (75) when the folder
    or the port is taken."""
    ports = ports or real_ports(settings)
    data = DataDir.lock(settings.data_dir)
    if isinstance(data, DataDirProblem):
        refuse_to_start([data.detail], 75)
    taken = port_problem(settings.http_host, settings.http_port)
    if taken:
        refuse_to_start([taken], 75)
    return Assembly(app, settings, ports, data).hub()


def port_problem(host: str, port: int) -> str | None:
    """Why the HTTP server cannot listen there, or None."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            return f"STREAMING_HUB_HTTP_LISTEN_ADDR {host}:{port} cannot be used: {error.strerror}"
    return None
