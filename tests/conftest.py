"""What every tier shares: uvloop under asyncio tests, and a real Kafka for those that ask for one."""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from hub_app.dev.kafka import Cluster, External, from_environment


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], AbstractEventLoop]]:
    """The hub runs on uvloop, so its tests do."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster | External]:
    """One Kafka for the whole session, started by the first test that wants it: `kafka.bootstrap`, `kafka.tool(…)`.

    The one of KAFKA_BROKERS if set. Without any Kafka a test fails and says what to install; it never skips.
    Tests share it: their topics stand below a `topic_prefix`; who wants to stop, kill or pause one takes `make_kafka`.
    """
    if (external := from_environment()) is not None:
        yield external
        return
    cluster = Cluster(tmp_path_factory.mktemp("kafka") / "shared")
    try:
        yield cluster.start()
    finally:
        cluster.wipe()


@pytest.fixture
def make_kafka(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """`make_kafka(nodes=1, overrides={…})`: a started Kafka of the test's own, to kill or pause; wiped in the end."""
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        cluster = Cluster(tmp_path / f"kafka-{len(made)}", **options)
        made.append(cluster)
        return cluster.start()

    yield make
    for cluster in made:
        cluster.wipe()
