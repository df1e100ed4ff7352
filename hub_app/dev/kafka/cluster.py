"""A Kafka of one or more nodes on 127.0.0.1, in a folder of its own."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from hub_app.dev.kafka import tools
from hub_app.dev.kafka.archive import fast_runtime
from hub_app.dev.kafka.errors import BrokerFailed
from hub_app.dev.kafka.guard import Guard
from hub_app.dev.kafka.jars import Runtime
from hub_app.dev.kafka.node import HEAP_MIB, Node, format_all, ready, settings
from hub_app.dev.kafka.ports import HOST, free_ports, is_free

START_SECONDS_MAX = 60.0


class NodeStatus(NamedTuple):
    number: int
    address: str
    pid: int | None
    ready: bool


@dataclass(frozen=True, slots=True)
class External:
    """A Kafka somebody else runs (KAFKA_BROKERS)."""

    bootstrap: str

    def tool(self, *arguments: str, text: str = "", seconds: float = 60) -> str:
        """Run one of Kafka's command-line tools, see `tools.run`."""
        return tools.run(fast_runtime(), self.bootstrap, arguments, text=text, seconds=seconds)


class Cluster:
    """`home` holds configuration, data and logs; ports are chosen at the first start and kept there.

    Owned (the default), every node dies with this object and its process, however that ends. Not owned, they outlive
    both, and any later `Cluster(home)` finds them running. All calls block; from asyncio use `asyncio.to_thread`.
    """

    def __init__(
        self,
        home: Path,
        nodes: int = 1,
        port: int | None = None,
        *,
        owned: bool = True,
        overrides: Mapping[str, str] | None = None,
        heap_mib: int = HEAP_MIB,
        cache: Path | None = None,
    ) -> None:
        """`port` is the first of `2 * nodes` consecutive ones; None takes free ones. `overrides` are server properties.
        `cache` is where fetched jars are kept (`jars.cache_home()`)."""
        self.home = home.resolve()
        self._count, self._port, self._owned = nodes, port, owned
        self._overrides, self._heap_mib, self._cache = dict(overrides or {}), heap_mib, cache
        self._guard: Guard | None = None
        self._runtime: Runtime | None = None
        self._nodes: dict[int, Node] = {}

    @property
    def runtime(self) -> Runtime:
        """Java and jars; fetched on first use, which may raise KafkaUnavailable."""
        if self._runtime is None:
            self._runtime = fast_runtime(self._cache)
        return self._runtime

    @property
    def bootstrap(self) -> str:
        """What clients connect to: `127.0.0.1:port[,…]`. Raises BrokerFailed before the first start."""
        return ",".join(f"{HOST}:{node.port}" for node in self._all())

    def start(self, node: int | None = None) -> Self:
        """Start what does not run (one node, or all) and wait until it serves. Raises KafkaUnavailable, BrokerFailed;
        after a failure nothing that this call started is left."""
        self._lay_out()
        chosen = [each for each in self._chosen(node) if each.pid() is None]
        for each in chosen:
            if not (is_free(each.port) and is_free(each.port + 1)):
                raise BrokerFailed(f"port {each.port} or {each.port + 1} of Kafka node {each.number} is taken")
        try:
            for each in chosen:
                each.spawn(group=self._group(), heap_mib=self._heap_mib)
            deadline = time.monotonic() + START_SECONDS_MAX
            for each in self._chosen(node):
                each.await_ready(deadline)
        except BaseException:
            self._end(chosen, signal.SIGKILL)
            raise
        return self

    def stop(self, node: int | None = None) -> None:
        """End cleanly (one node, or all), by force after 30 s. Data stays."""
        self._end(self._chosen(node), signal.SIGTERM)

    def kill(self, node: int | None = None) -> None:
        """kill -9 (one node, or all)."""
        self._end(self._chosen(node), signal.SIGKILL)

    def restart(self, node: int | None = None) -> None:
        """Stop if it runs, and start."""
        self.stop(node)
        self.start(node)

    def pause(self, node: int | None = None) -> None:
        """SIGSTOP: connections stay open, nothing answers."""
        for each in self._chosen(node):
            each.signal(signal.SIGSTOP)

    def resume(self, node: int | None = None) -> None:
        """SIGCONT."""
        for each in self._chosen(node):
            each.signal(signal.SIGCONT)

    def wipe(self) -> None:
        """Kill everything and delete `home`."""
        if (self.home / "cluster.json").exists():
            self.kill()
        shutil.rmtree(self.home, ignore_errors=True)
        self._nodes.clear()

    def status(self) -> list[NodeStatus]:
        """Empty before the first start."""
        nodes = self._all() if (self.home / "cluster.json").exists() else []
        return [NodeStatus(node.number, f"{HOST}:{node.port}", node.pid(), ready(node.port)) for node in nodes]

    def tool(self, *arguments: str, text: str = "", seconds: float = 60) -> str:
        """Run one of Kafka's command-line tools, see `tools.run`: `cluster.tool("topics", "--list")`."""
        return tools.run(self.runtime, self.bootstrap, arguments, text=text, seconds=seconds)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _chosen(self, number: int | None) -> list[Node]:
        nodes = self._all()
        return nodes if number is None else [self._nodes[number]]

    def _all(self) -> list[Node]:
        """The nodes, as laid out in `home`."""
        if not self._nodes:
            try:
                ports = json.loads((self.home / "cluster.json").read_text())["ports"]
            except FileNotFoundError:
                raise BrokerFailed(f"no Kafka was started in {self.home}") from None
            numbered = enumerate(ports, 1)
            self._nodes = {n: Node(self.runtime, self.home / f"node-{n}", n, port) for n, port in numbered}
        return list(self._nodes.values())

    def _lay_out(self) -> None:
        """Choose ports, write configuration, format what is not formatted."""
        plan = self.home / "cluster.json"
        if not plan.exists():
            first = self._port
            ports = free_ports(self._count) if first is None else tuple(range(first, first + 2 * self._count, 2))
            self.home.mkdir(parents=True, exist_ok=True)
            plan.write_text(json.dumps({"ports": ports, "id": _uuid(), "directories": [_uuid() for _ in ports]}))
        nodes = self._all()
        known = json.loads(plan.read_text())
        for node in nodes:
            if node.pid() is None:
                node.write(settings(node.folder, tuple(known["ports"]), node.number, self._overrides))
        mode: tuple[str, ...] = ("--standalone",)
        if len(nodes) > 1:
            voters = zip(nodes, known["directories"], strict=True)
            quorum = ",".join(f"{node.number}@{HOST}:{node.port + 1}:{directory}" for node, directory in voters)
            mode = ("--initial-controllers", quorum)
        format_all([node for node in nodes if not node.formatted], known["id"], mode)

    def _group(self) -> int | None:
        """The process group of the nodes of an owned cluster."""
        if not self._owned:
            return None
        if self._guard is None or not self._guard.alive:
            self._guard = Guard()
        return self._guard.group

    def _end(self, nodes: Iterable[Node], how: signal.Signals) -> None:
        nodes = list(nodes)
        for node in nodes:
            node.signal(how)
            node.signal(signal.SIGCONT)  # a paused one could not act on it
        for node in nodes:
            node.await_end()
        if self._guard is not None and not any(node.pid() for node in self._all()):
            self._guard.close()
            self._guard = None


def from_environment() -> External | None:
    """The Kafka that KAFKA_BROKERS names, or None. Raises BrokerFailed if none of its addresses answers."""
    configured = os.environ.get("KAFKA_BROKERS")
    if not configured:
        return None
    addresses = [address.strip().rpartition(":") for address in configured.split(",")]
    if not any(port.isdigit() and ready(int(port), host) for host, _, port in addresses):
        raise BrokerFailed(f"KAFKA_BROKERS={configured}: no Kafka answers there")
    return External(configured)


def _uuid() -> str:
    """A Kafka UUID: 16 bytes in 22 characters, never with a leading dash (its tools take that for an option)."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
