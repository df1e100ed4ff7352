"""Starts that must not be: one clear line each, an exit status that tells who has to act, nothing left half-started."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from hub_app.dev.kafka import Cluster
from hub_app.dev.worker import Worker
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment

WRONG_SETTING, TRY_LATER = 78, 75


def end_of(worker: Worker, seconds: float = 60) -> tuple[int, list[str]]:
    """Exit status, and the lines for people, of a worker that ends by itself."""
    assert worker.process is not None
    status = worker.process.wait(seconds)
    log = worker.log_path.read_text()
    assert "Traceback" not in log, log
    return status, [line for line in log.splitlines() if line.startswith("streaming-hub: ")]


@pytest.fixture
def fresh(make_hub: MakeDeployment) -> Deployment:
    return make_hub()


def topics(hub: Deployment) -> list[str]:
    return [name for name in hub.run(hub.list_topics()) if name.startswith(hub.prefix)]


def test_another_number_of_partitions_names_both(fresh: Deployment) -> None:
    fresh.run(fresh.make_topic(f"{fresh.prefix}facts", {}, partitions=3))
    status, lines = end_of(fresh.worker().start())
    assert status == WRONG_SETTING
    assert lines == [f"streaming-hub: {fresh.prefix}facts: has 3 partitions, but 4 are wanted"]
    assert topics(fresh) == [f"{fresh.prefix}facts"]


def test_wrong_settings_are_told_all_at_once(fresh: Deployment) -> None:
    worker = fresh.worker(
        shards="0", backoff="10", dispatch_timeout="1h", sender="curl", kek_ref="NOT_THERE", kafka_brokers="nowhere"
    )
    status, lines = end_of(worker.start())
    assert status == WRONG_SETTING
    for name in ("SHARDS", "BACKOFF", "DISPATCH_TIMEOUT", "SENDER", "KEK_REF", "KAFKA_BROKERS"):
        assert len([line for line in lines if f"STREAMING_HUB_{name}" in line]) == 1, (name, lines)
    assert len(lines) == 6, lines
    assert topics(fresh) == []
    assert not worker.data.exists()


def test_a_port_that_is_taken(fresh: Deployment) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        status, lines = end_of(fresh.worker(http_listen_addr=f"127.0.0.1:{port}").start())
    assert status == TRY_LATER
    assert lines == [
        f"streaming-hub: STREAMING_HUB_HTTP_LISTEN_ADDR 127.0.0.1:{port} cannot be used: Address already in use"
    ]
    assert topics(fresh) == []


def test_a_data_folder_in_use(fresh: Deployment) -> None:
    """The one that runs goes on as if nothing had been."""
    first = fresh.started()
    second = fresh.worker(data=first.data)
    second.log_path = first.data.with_suffix(".second.log")
    status, lines = end_of(second.start())
    assert status == TRY_LATER
    assert lines == [f"streaming-hub: data folder {first.data} is in use by another worker (process {first.pid})"]
    assert first.alive()
    assert first.get("/readyz")[0] == 200
    assert fresh.api(first, "acme").call("GET", "/v1/events?after=start")["events"] == []


def test_a_data_folder_that_cannot_be_made(fresh: Deployment) -> None:
    blocked = fresh.folder / "a-file"
    blocked.parent.mkdir(parents=True)
    blocked.write_text("not a folder")
    worker = fresh.worker()
    worker.environment["STREAMING_HUB_DATA_DIR"] = str(blocked / "data")
    status, lines = end_of(worker.start())
    assert status == TRY_LATER
    assert lines == [f"streaming-hub: data folder {blocked / 'data'} cannot be used: Not a directory"]


def test_a_worker_with_a_name_starts_on_a_kafka_that_has_seen_none(
    make_kafka: Callable[..., Cluster], make_hub: MakeDeployment
) -> None:
    """Which has no group coordinator yet to ask who else has the name."""
    hub = make_hub(bootstrap=make_kafka().bootstrap, instance_id="one")
    assert hub.started().stop() == 0
