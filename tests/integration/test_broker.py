"""The launcher of the development Kafka: what it starts serves, survives what it should, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from hub_app.dev import broker
from hub_app.dev.kafka import BrokerFailed, Cluster
from hub_app.dev.kafka.ports import HOST, free_ports

MakeKafka = Callable[..., Cluster]
WAIT_SECONDS = 20


async def _send(cluster: Cluster, topic: str, *values: bytes, headers: list[tuple[str, bytes]] | None = None) -> None:
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True) as producer:
        for value in values:
            await producer.send_and_wait(topic, value, headers=headers)


async def _read(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    async with AIOKafkaConsumer(topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        return [(await asyncio.wait_for(consumer.getone(), WAIT_SECONDS)).value for _ in range(count)]


def _gone(pid: int) -> bool:
    """The process has ended within the time limit."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (stat := Path(f"/proc/{pid}/stat")).exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


async def test_one_node_lives_through_kill_restart_and_pause(make_kafka: MakeKafka) -> None:
    cluster = make_kafka()
    cluster.tool("topics", "--create", "--topic", "t", "--partitions", "1")
    await _send(cluster, "t", b"before")
    first = cluster.status()[0].pid

    cluster.kill()
    assert [(node.pid, node.ready) for node in cluster.status()] == [(None, False)]
    cluster.start()
    assert cluster.status()[0].pid not in (None, first)
    await _send(cluster, "t", b"after kill")

    cluster.restart()
    cluster.pause()
    sending = asyncio.create_task(_send(cluster, "t", b"while paused"))
    done, _ = await asyncio.wait([sending], timeout=1)
    assert not done
    assert not cluster.status()[0].ready
    cluster.resume()
    await asyncio.wait_for(sending, WAIT_SECONDS)
    assert await _read(cluster, "t", 3) == [b"before", b"after kill", b"while paused"]

    pid = cluster.status()[0].pid
    assert pid is not None
    cluster.pause()
    cluster.stop()  # a paused one too
    assert _gone(pid)


async def test_three_nodes_serve_while_one_is_dead(make_kafka: MakeKafka) -> None:
    cluster = make_kafka(nodes=3)
    assert len(cluster.bootstrap.split(",")) == 3
    cluster.tool("topics", "--create", "--topic", "t", "--replication-factor", "3")
    await _send(cluster, "t", b"all three")
    cluster.kill(2)
    assert [node.ready for node in cluster.status()] == [True, False, True]
    await asyncio.wait_for(_send(cluster, "t", b"two"), WAIT_SECONDS)
    cluster.start(2)
    assert all(node.ready for node in cluster.status())


def test_a_second_start_finds_it_running(make_kafka: MakeKafka) -> None:
    cluster = make_kafka()
    pid = cluster.status()[0].pid
    again = Cluster(cluster.home)
    again.start()
    assert [node.pid for node in again.status()] == [pid]


async def test_kafkas_own_tools(kafka: Cluster, topic_prefix: str) -> None:
    topic = topic_prefix + "tools"
    kafka.tool("topics", "--create", "--topic", topic, "--partitions", "2")
    assert topic in kafka.tool("topics", "--list").split()
    kafka.tool("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=60000")
    assert "retention.ms=60000" in kafka.tool("configs", "--describe", "--topic", topic)
    kafka.tool("produce", "--topic", topic, text="one\ntwo\n")
    await _send(kafka, topic, b"three", headers=[("hub-tenant", b"acme")])
    assert sum(int(line.split(":")[2]) for line in kafka.tool("offsets", "--topic", topic).split()) == 3
    wanted = ("--from-beginning", "--max-messages", "3", "--formatter-property", "print.headers=true")
    lines = kafka.tool("consume", "--topic", topic, "--group", topic, *wanted).splitlines()
    assert sorted(lines) == ["NO_HEADERS\tone", "NO_HEADERS\ttwo", "hub-tenant:acme\tthree"]
    assert topic in kafka.tool("groups", "--list").split()
    with pytest.raises(subprocess.CalledProcessError):
        kafka.tool("topics", "--describe", "--topic", "missing")


PARENT = """
import sys, time
from pathlib import Path
from hub_app.dev.kafka import Cluster
cluster = Cluster(Path(sys.argv[1])).start()
print(cluster.status()[0].pid, flush=True)
time.sleep(600)
"""


def test_an_owned_broker_dies_with_its_owner(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "kafka")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid = int(owner.stdout.readline())
        owner.send_signal(signal.SIGKILL)
    assert _gone(pid)


def test_the_command_line_leaves_it_running(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KAFKA_BROKERS", raising=False)
    home, port = str(tmp_path / "kafka"), free_ports(1)[0]

    def call(*arguments: str) -> tuple[int, str]:
        status = broker.main(["--home", home, *arguments])
        out, err = capfd.readouterr()
        return status, out + err

    assert call("status") == (0, "no Kafka here\n")
    assert call("tool", "topics", "--list")[0] == broker.EX_TEMPFAIL
    try:
        # Started by a process that has ended since.
        start = [sys.executable, "-m", "hub_app.dev.broker", "--home", home, "--port", str(port), "start"]
        subprocess.run(start, check=True)
        status, text = call("status")
        assert status == 0
        assert f"127.0.0.1:{port}: ready" in text
        assert call("tool", "topics", "--create", "--topic", "t")[0] == 0
        assert call("tool", "topics", "--list") == (0, "t\n")
        assert call("tool", "tpoics")[0] == 2
    finally:
        assert call("wipe")[0] == 0
    assert not Path(home).exists()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    port = free_ports(1)[0]
    taken = pytest.raises(BrokerFailed, match=rf"port {port} or {port + 1} .*is taken")
    with socket.create_server((HOST, port)), taken:
        Cluster(tmp_path / "kafka", port=port).start()


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "kafka", overrides={"num.io.threads": "none"})
    with pytest.raises(BrokerFailed, match=r"num\.io\.threads"):
        cluster.start()
    assert [node.pid for node in cluster.status()] in ([], [None])
