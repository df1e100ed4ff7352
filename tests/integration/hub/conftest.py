"""Real workers on a real Kafka. What costs seconds to start is shared by the tests of a module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hub_app.dev.kafka import Cluster, External
from hub_app.dev.worker import Worker
from tests.support.background import Background
from tests.support.deployment import Deployment
from tests.support.sink import RecordingSink

MakeDeployment = Callable[..., Deployment]


@pytest.fixture(scope="session")
def background() -> Iterator[Background]:
    """The loop that clients and sinks of these tests live on."""
    made = Background()
    yield made
    made.close()


@pytest.fixture(scope="session")
def sink(background: Background) -> Iterator[RecordingSink]:
    made = RecordingSink(background)
    yield made
    made.close()


@pytest.fixture(scope="module")
def make_shared(
    kafka: Cluster | External, background: Background, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MakeDeployment]:
    """Deployments that live as long as the module's tests."""
    made: list[Deployment] = []

    def make(**settings: str) -> Deployment:
        made.append(Deployment(background, kafka.bootstrap, tmp_path_factory.mktemp("hub"), **settings))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


@pytest.fixture(scope="session")
def hub(
    kafka: Cluster | External, background: Background, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """The deployment of the tests that only use what it does, each with tenants and sources of its own. They are named
    `test_steady_…` and so come last, that it need not take in the facts of the others."""
    made = Deployment(background, kafka.bootstrap, tmp_path_factory.mktemp("hub"), backoff="300ms,400ms,500ms")
    yield made
    made.close()


@pytest.fixture(scope="session")
def worker(hub: Deployment) -> Worker:
    """Its one worker. Leave it running."""
    return hub.started()


@pytest.fixture
def make_hub(background: Background, kafka: Cluster | External, tmp_path: Path) -> Iterator[MakeDeployment]:
    """`make_hub(bootstrap=…, **settings)`: a deployment of the test's own, on the shared Kafka if not told else."""
    made: list[Deployment] = []

    def make(*, bootstrap: str | None = None, **settings: str) -> Deployment:
        folder = tmp_path / f"hub-{len(made)}"
        made.append(Deployment(background, bootstrap or kafka.bootstrap, folder, **settings))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()
