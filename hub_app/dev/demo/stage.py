"""The processes of a run: where they live, how they start, and that they end."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hub_app.dev.demo.plan import TENANTS, WISHES
from hub_app.dev.kafka import External
from hub_app.dev.kafka.ports import HOST
from hub_app.dev.worker import Api, Worker

WORKERS: Final = 2
READY_SECONDS_MAX: Final = 60.0
SETTINGS: Final = {
    "env": "local",
    "backoff": "500ms,1s,2s,3s",  # so short that four retries and a dead letter are seen in seconds
    "dispatch_workers": "16",
    "breaker_failures": "1000000",  # the dead endpoint is to be given up before our eyes, not waited for
    "metadata_max_age": "2s",
    "shutdown_timeout": "8s",
}
"""What a worker of the demo has that differs from the defaults."""


class DemoFailed(Exception):
    """The run could not be made; the text says why, for people."""


class SinkClient:
    """The demo's sink, seen from outside."""

    def __init__(self, url: str) -> None:
        self.url = url

    def wait_ready(self, process: subprocess.Popen[bytes] | None = None, seconds: float = 15) -> None:
        """DemoFailed when it ends, or does not answer in time."""
        ends = time.monotonic() + seconds
        while True:
            try:
                self.stats()
            except OSError as error:
                if process is not None and process.poll() is not None:
                    raise DemoFailed(f"the sink ended with {process.returncode}") from None
                if time.monotonic() > ends:
                    raise DemoFailed(f"the sink does not answer: {error}") from None
                time.sleep(0.05)
            else:
                return

    def stats(self) -> dict[str, dict[str, Any]]:
        endpoints: dict[str, dict[str, Any]] = self._call("GET", "/_stats")["endpoints"]
        return endpoints

    def delivered(self, path: str) -> frozenset[str]:
        return frozenset(self._call("GET", f"/_ids?endpoint={path}")["delivered"])

    def know(self, path: str, secret: str) -> None:
        """From now on the endpoint takes only what is signed with this secret."""
        self._call("PUT", "/_secrets", {"endpoint": path, "secret": secret})

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, method=method, data=data)
        with urllib.request.urlopen(request, timeout=10) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None


def sink_command(port: int, skip: int = 0) -> list[str]:
    """The command line of the sink's process; `skip`: see `sink.Endpoint`."""
    return [sys.executable, "-m", "hub_app.dev.sink", "--listen", f"{HOST}:{port}", "--skip", str(skip)]


def workers(bootstrap: str, folder: Path, ports: Iterable[int], **settings: str) -> list[Worker]:
    """The hub's workers, not started: each with a data folder of its own below `folder`."""
    return [
        Worker(bootstrap, folder / f"worker-{number}", port=port, **{**SETTINGS, **settings})
        for number, port in enumerate(ports, 1)
    ]


def check_alone(kafka: External) -> None:
    """DemoFailed when a hub of the same environment uses this Kafka: the two would share their consumer groups."""
    for line in kafka.tool("groups", "--describe", "--all-groups", "--members").splitlines():
        group, _, rest = line.partition(" ")
        if group.startswith("streaming-hub") and group.endswith(f".{SETTINGS['env']}") and rest.strip():
            raise DemoFailed(f"a hub runs on {kafka.bootstrap} already (group {group} has members); end it first")


def new_run() -> str:
    """A name that no other run has."""
    return secrets.token_hex(3)


def subscribe(urls: list[str], sink: SinkClient) -> dict[str, str]:
    """Every tenant gets a key and its subscriptions, over the HTTP API. The sink is told each secret before it is
    verified, so that the probe's signature counts too. Returns the sink's path of each subscription, by its id.
    DemoFailed when the hub refuses."""
    endpoints: dict[str, str] = {}
    for number, tenant in enumerate(TENANTS):
        admin = Api(urls[number % len(urls)])
        try:
            _forget_earlier(admin, tenant)
            api = admin.tenant(tenant)
            for earlier in api.call("GET", "/v1/subscriptions?limit=100")["subscriptions"]:
                if earlier["name"].startswith("demo "):  # of a run before, with a secret nobody has
                    api.call("DELETE", f"/v1/subscriptions/{earlier['id']}")
            for wish in WISHES:
                path = wish.path(tenant)
                draft = {
                    "name": f"demo {wish.manner}",
                    "event_types": list(wish.event_types),
                    "sink": {"type": "webhook", "url": sink.url + path, "timeout_ms": wish.timeout_ms},
                    "verify": False,
                }
                made = api.call("POST", "/v1/subscriptions", draft)
                sink.know(path, made["secret"])
                api.call("POST", f"/v1/subscriptions/{made['id']}/verify")
                endpoints[made["id"]] = path
        except (RuntimeError, urllib.error.URLError) as error:
            raise DemoFailed(f"tenant {tenant} could not subscribe: {error}") from error
    return endpoints


def _forget_earlier(admin: Api, tenant: str) -> None:
    """Deletes the keys of runs before, which nobody has any more."""
    keys = f"/admin/tenants/{tenant}/keys"
    for key in admin.call("GET", keys)["keys"]:
        if key["name"] == "demo":
            admin.call("DELETE", f"{keys}/{key['id']}")


def end(processes: Iterable[subprocess.Popen[bytes]], seconds: float) -> list[int]:
    """SIGTERM to all at once, SIGKILL to those that take longer than `seconds`. Their exit statuses."""
    processes = list(processes)
    for process in processes:
        process.terminate()
    ends = time.monotonic() + seconds
    for process in processes:
        try:
            process.wait(max(0.0, ends - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return [process.returncode for process in processes]
