"""A deployment of one or more workers, closed after the test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.fakes.workers import Deployment, Worker


@pytest.fixture
async def hub() -> AsyncIterator[Deployment]:
    deployment = Deployment()
    yield deployment
    await deployment.close()


@pytest.fixture
async def worker(hub: Deployment) -> Worker:
    return await hub.worker()
