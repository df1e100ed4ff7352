"""One KRaft node (broker and controller in one JVM): its configuration, its folder, its process.

The running broker itself holds the lock of its pid file (`hub_app.dev.pidfile`), so "is it running" has one exact
answer for every process that asks, whoever started it and however it died.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from hub_app.dev.kafka.errors import BrokerFailed
from hub_app.dev.kafka.jars import Runtime
from hub_app.dev.kafka.ports import HOST
from hub_app.dev.pidfile import PidFile

HEAP_MIB = 512
STOP_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02
LOG_TAIL_LINES = 12
# Brokers here share two cores with what is tested and live for minutes. The serial collector with a small heap pauses
# for milliseconds and keeps no threads busy; the second compiler would cost more CPU than it saves in the first million
# records (measured: 2.1 against 4.6 s for the first 250,000 of 1 KB, 1.7 against 1.2 s for the sixth).
FRUGAL = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
TOOL_OPTIONS = ("-Xmx128m", *FRUGAL)


def settings(folder: Path, ports: tuple[int, ...], number: int, overrides: Mapping[str, str]) -> dict[str, str]:
    """The server properties of node `number` (from 1). `overrides` win."""
    nodes = len(ports)
    replicas, in_sync = str(min(3, nodes)), str(2 if nodes >= 3 else 1)
    client, control = f"PLAINTEXT://{HOST}:{ports[number - 1]}", f"CONTROLLER://{HOST}:{ports[number - 1] + 1}"
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "listeners": f"{client},{control}",
        "advertised.listeners": client,
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port + 1}" for port in ports),
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": str(folder / "data"),
        "broker.rack": f"rack{number}",
        "num.partitions": "4",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": "8",
        "offsets.retention.minutes": "20160",
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",  # else each first join waits 3 s
        "broker.session.timeout.ms": "3000",  # a restart after kill -9 waits this long for its old self to expire
        "broker.heartbeat.interval.ms": "500",
        "auto.create.topics.enable": "false",
        "log.segment.bytes": "67108864",
        "log.cleaner.dedupe.buffer.size": "16777216",
        **overrides,
    }


def log4j(level: str, target: str) -> str:
    """A log4j2 configuration that writes lines at `level` to SYSTEM_OUT or SYSTEM_ERR."""
    return (
        f"rootLogger.level={level}\nrootLogger.appenderRef.o.ref=O\n"
        f"appender.o.type=Console\nappender.o.name=O\nappender.o.target={target}\n"
        "appender.o.layout.type=PatternLayout\nappender.o.layout.pattern=%d %-5p %c{1} %m%n\n"
    )


def ready(port: int, host: str = HOST) -> bool:
    """A real ApiVersions round trip: an open port alone is not a broker that serves."""
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, port), timeout=1) as connection:
            connection.settimeout(2)
            connection.sendall(struct.pack(">i", len(request)) + request)
            head = connection.recv(10, socket.MSG_WAITALL)  # length, correlation, error code
    except OSError:
        return False
    return len(head) == 10 and struct.unpack(">iih", head)[1:] == (1, 0)


class Node:
    """Node `number` in `folder`; every call may be made by another process than the one that started it."""

    def __init__(self, runtime: Runtime, folder: Path, number: int, port: int) -> None:
        self.number, self.port, self.folder = number, port, folder
        self._runtime = runtime
        self._pid_file = PidFile(folder / "pid")
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def formatted(self) -> bool:
        return (self.folder / "data" / "meta.properties").exists()

    def write(self, properties: Mapping[str, str]) -> None:
        """Write the node's configuration files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(text)
        (self.folder / "log4j2.properties").write_text(log4j("info", "SYSTEM_OUT"))

    def format_command(self, cluster_id: str, mode: tuple[str, ...]) -> list[str]:
        """The command that formats the data folder; `mode` says who the first controllers are."""
        arguments = ("format", "-t", cluster_id, "-c", str(self.folder / "server.properties"), *mode)
        return self._runtime.command("kafka.tools.StorageTool", *arguments, options=TOOL_OPTIONS)

    def spawn(self, *, group: int | None, heap_mib: int = HEAP_MIB, options: tuple[str, ...] = ()) -> None:
        """Start the process, in process group `group`, or (None) in a session of its own that outlives us."""
        options = (f"-Xmx{heap_mib}m", "-Xms64m", *FRUGAL, "-XX:+ExitOnOutOfMemoryError", *options)
        options = (*options, f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}")
        command = self._runtime.command("kafka.Kafka", str(self.folder / "server.properties"), options=options)

        def start(lock: int) -> subprocess.Popen[bytes]:
            with (self.folder / "broker.log").open("ab") as log:
                self._child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(lock,),
                    start_new_session=group is None,
                    process_group=group,
                )
            return self._child

        self._pid_file.start(start)

    def pid(self) -> int | None:
        """The process id while the broker runs, else None."""
        if self._child is not None:
            self._child.poll()  # reap
        return self._pid_file.pid()

    def await_ready(self, deadline: float) -> None:
        """Wait until it serves. Raises BrokerFailed with the end of its log if it ends, or at monotonic `deadline`."""
        while not ready(self.port):
            if self.pid() is None:
                raise BrokerFailed(f"Kafka node {self.number} ended while starting:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise BrokerFailed(f"Kafka node {self.number} is not ready in time:\n{self.log_tail()}")
            time.sleep(POLL_SECONDS)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal if it runs."""
        self._pid_file.signal(number)

    def await_end(self) -> None:
        """Wait until the process is gone; kill it when it takes too long."""
        self._pid_file.await_end(STOP_SECONDS_MAX)
        if self._child is not None:
            self._child.wait()
            self._child = None

    def log_tail(self) -> str:
        """The end of the broker's log."""
        try:
            lines = (self.folder / "broker.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(lines[-LOG_TAIL_LINES:])


def format_all(nodes: list[Node], cluster_id: str, mode: tuple[str, ...] = ("--standalone",)) -> None:
    """Format the data folders of nodes, at the same time. Raises BrokerFailed."""
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    commands = [node.format_command(cluster_id, mode) for node in nodes]
    for process in [subprocess.Popen(command, stdout=pipe, stderr=both, text=True) for command in commands]:
        output, _ = process.communicate()
        if process.returncode != 0:
            raise BrokerFailed(f"Kafka's folder could not be formatted:\n{output}")
