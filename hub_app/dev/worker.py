"""Hub workers as processes of their own: for the demo, tests and benchmarks."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ADMIN_KEY = "shk_demo_0123456789abcdef0123456789abcdef"
_KEK = base64.b64encode(b"a key for demonstrations only...").decode()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def environment(bootstrap: str, data: Path, port: int, **settings: Any) -> dict[str, str]:
    """A worker's environment: local, private sinks allowed; `settings` are STREAMING_HUB_ names in lower case."""
    own: dict[str, Any] = {
        "kafka_brokers": bootstrap,
        "data_dir": data,
        "http_listen_addr": f"127.0.0.1:{port}",
        "allow_private_sinks": "true",
        "admin_key": ADMIN_KEY,
        "dev_kek": _KEK,
        "shutdown_timeout": "15s",
        "pre_stop_drain_timeout": "100ms",
        "log_format": "console",
        **settings,
    }
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STREAMING_HUB_")}
    return {
        **clean,
        "MULTI_TENANT_ENABLED": "true",
        "RATE_LIMIT_ENABLED": "false",
        **{f"STREAMING_HUB_{name.upper()}": str(value) for name, value in own.items()},
    }


class Worker:
    """One `faust -L uvloop -A hub_app worker`. Its log goes to `<data>.log`."""

    def __init__(self, bootstrap: str, data: Path, *, port: int | None = None, **settings: Any) -> None:
        self.data, self.port = data, port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log_path = data.with_suffix(".log")
        self.environment = environment(bootstrap, data, self.port, **settings)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, **options: Any) -> Worker:
        """`options` go to Popen: a process group, say."""
        self.data.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "faust", "-L", "uvloop", "-A", "hub_app", "worker", "--loglevel", "warn"]
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options
            )
        return self

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def wait_ready(self, seconds: float = 60) -> Worker:
        """Until /readyz says so. RuntimeError with the end of the log when it dies or takes longer."""
        ends, said = time.monotonic() + seconds, "no answer"
        while time.monotonic() < ends:
            if not self.alive():
                raise RuntimeError(f"worker ended with {self.process and self.process.returncode}:\n{self.log_tail()}")
            status, said = self.get("/readyz")
            if status == 200:
                return self
            time.sleep(0.05)
        raise RuntimeError(f"worker not ready after {seconds} s: {said}\n{self.log_tail()}")

    def get(self, path: str) -> tuple[int, str]:
        """(status, body) of a GET; status 0 when nobody answers."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def metric(self, name: str) -> float:
        """The sum of a metric over its labels, 0 when it is not there."""
        _, text = self.get("/metrics")
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name]
        return sum(float(value) for _, value in lines)

    def stop(self, seconds: float = 40) -> int:
        """SIGTERM, and its exit status."""
        if self.process is None:
            return 0
        if self.alive():
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"worker did not stop in {seconds} s:\n{self.log_tail()}") from None

    def kill(self) -> None:
        """kill -9, and reap."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def log_tail(self, lines: int = 40) -> str:
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])


class Api:
    """The hub's HTTP API, as the demo, tests and benchmarks use it."""

    def __init__(self, url: str, key: str = ADMIN_KEY) -> None:
        self.url, self.key = url, key

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of a 2xx answer. RuntimeError with status and body otherwise."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                raw = answer.read()
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.code} {error.read().decode()}") from None
        return json.loads(raw) if raw else None

    def tenant(self, tenant: str) -> Api:
        """The API with a new key of this tenant, all scopes."""
        wanted = {"name": "demo", "scopes": ["manage", "receive", "publish"]}
        made = self.call("POST", f"/admin/tenants/{tenant}/keys", wanted)
        return Api(self.url, made["key"])

    def subscribe(self, url: str, *event_types: str, **more: Any) -> dict[str, Any]:
        """A verified webhook subscription (the sink is probed while the call waits)."""
        made: dict[str, Any] = self.call(
            "POST",
            "/v1/subscriptions",
            {
                "name": "demo",
                "event_types": list(event_types or ("*",)),
                "sink": {"type": "webhook", "url": url},
                **more,
            },
        )
        return made
