"""The configuration of nodes, free ports, and the names of Kafka's own tools."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

import pytest

from hub_app.dev.kafka.jars import Runtime
from hub_app.dev.kafka.node import ready, settings
from hub_app.dev.kafka.ports import HIGHEST, HOST, LOWEST, free_ports, is_free
from hub_app.dev.kafka.tools import TOOLS, command


@pytest.mark.parametrize(("nodes", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")])
def test_replication_follows_the_number_of_nodes(tmp_path: Path, nodes: int, replicas: str, in_sync: str) -> None:
    ports = tuple(range(20_000, 20_000 + 2 * nodes, 2))
    found = settings(tmp_path, ports, nodes, {})
    assert found["node.id"] == str(nodes)
    assert {value for name, value in found.items() if name.endswith("replication.factor")} == {replicas}
    assert {value for name, value in found.items() if name.endswith((".min.isr", "insync.replicas"))} == {in_sync}
    assert found["controller.quorum.bootstrap.servers"].count(HOST) == nodes
    assert found["listeners"] == f"PLAINTEXT://{HOST}:{ports[-1]},CONTROLLER://{HOST}:{ports[-1] + 1}"


def test_overrides_win(tmp_path: Path) -> None:
    found = settings(tmp_path, (20_000,), 1, {"num.partitions": "1", "message.max.bytes": "5"})
    assert (found["num.partitions"], found["message.max.bytes"]) == ("1", "5")


def test_free_ports_are_pairs_that_nobody_listens_on() -> None:
    ports = free_ports(3)
    assert [port - ports[0] for port in ports] == [0, 2, 4]
    assert ports[0] >= LOWEST
    assert ports[-1] + 1 < HIGHEST + 6
    with socket.create_server((HOST, ports[0])):
        assert not is_free(ports[0])
        assert is_free(ports[0] + 1)


def test_an_open_port_is_not_a_broker_that_serves() -> None:
    with socket.create_server((HOST, 0)) as server:
        port = server.getsockname()[1]
        server.settimeout(5)

        def answer(reply: bytes) -> bool:
            def serve() -> None:
                connection, _ = server.accept()
                with connection:
                    connection.recv(64)
                    connection.sendall(reply)

            thread = Thread(target=serve)
            thread.start()
            found = ready(port)
            thread.join()
            return found

        assert not answer(b"")
        assert not answer(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        assert not answer(bytes([0, 0, 0, 6, 0, 0, 0, 1, 0, 35]))  # UNSUPPORTED_VERSION
        assert answer(bytes([0, 0, 0, 10, 0, 0, 0, 1, 0, 0]))
    assert not ready(port)


def test_tools_know_where_the_broker_is(tmp_path: Path) -> None:
    runtime = Runtime(Path("java"), (Path("a.jar"), Path("b.jar")), tmp_path / "classes.jsa")
    line = command(runtime, "127.0.0.1:1", ("topics", "--list"))
    assert line[-4:] == ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", "127.0.0.1:1", "--list"]
    assert line[line.index("-cp") + 1] == "a.jar:b.jar"
    assert "--bootstrap-server" not in command(runtime, "127.0.0.1:1", ("dump", "--files", "x"))
    elsewhere = command(runtime, "127.0.0.1:1", ("topics", "--bootstrap-server", "127.0.0.1:2", "--list"))
    assert elsewhere.count("--bootstrap-server") == 1


@pytest.mark.parametrize("arguments", [(), ("topic",), ("--list",)])
def test_an_unknown_tool_lists_the_known(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    runtime = Runtime(Path("java"), (), tmp_path / "classes.jsa")
    with pytest.raises(ValueError, match=" ".join(TOOLS)):
        command(runtime, "127.0.0.1:1", arguments)
