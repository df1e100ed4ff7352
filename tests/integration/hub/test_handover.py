"""From one worker to three and back, all restarted in turn, one paused past its session: under load, and counted at the
sink. Nothing is lost, and two workers attempt the same job only across a fence."""

from __future__ import annotations

import os
import signal

import pytest

from hub_app.dev.worker import Worker
from hub_app.kafka.client import SESSION_TIMEOUT_MS
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment
from tests.support.sink import RecordingSink
from tests.support.stream import Stream, repeats
from tests.support.waiting import holds, until

TENANTS = [f"tenant-{i}" for i in range(18)]
WORKERS = 8  # attempts at once in each process
PER_S = 150
TICK_JOBS = 2 * PER_S // 10
"""Claims and outcomes of a fifth of a second: more than what waits for its tick and its acknowledgement."""
PATH = "/handover"


@pytest.fixture(scope="module")
def hub(make_shared: MakeDeployment) -> Deployment:
    return make_shared(shards="6", dispatch_timeout="1s", dispatch_connect_timeout="1s")


@pytest.fixture(scope="module")
def first(hub: Deployment, sink: RecordingSink) -> Worker:
    made = hub.started()
    for number, tenant in enumerate(TENANTS):
        hub.api(made, tenant).subscribe(sink.url(f"{PATH}?{number}"))
    return made


@pytest.fixture(scope="module")
def others(hub: Deployment) -> tuple[Worker, Worker]:
    return hub.worker(), hub.worker()


@pytest.fixture
def three(hub: Deployment, first: Worker, others: tuple[Worker, Worker]) -> list[Worker]:
    """All three, running and settled."""
    all_three = [first, *others]
    for worker in all_three:
        if not worker.alive():
            worker.start()
    hub.wait_owners(*all_three)
    return all_three


def goes_on(stream: Stream, count: int = 2 * PER_S) -> None:
    """So many more facts are acknowledged."""
    reached = len(stream.sent)
    until(lambda: len(stream.sent) > reached + count, "load")


def test_from_one_to_three_and_back(
    hub: Deployment, first: Worker, others: tuple[Worker, Worker], sink: RecordingSink
) -> None:
    hub.wait_owners(first)
    with Stream(hub, hub.source("scale"), TENANTS, per_s=PER_S) as stream:
        goes_on(stream)
        for worker in others:
            worker.start()
        hub.wait_owners(first, *others)
        goes_on(stream)
        attempts = [worker.metric("hub_attempts_total") for worker in others]
        for worker in others:
            assert worker.stop() == 0
        hub.wait_owners(first)
        goes_on(stream)
    assert all(attempts)
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) == 0


def test_all_three_are_restarted_in_turn(hub: Deployment, three: list[Worker], sink: RecordingSink) -> None:
    with Stream(hub, hub.source("rolling"), TENANTS, per_s=PER_S) as stream:
        for worker in three:
            goes_on(stream, PER_S)
            assert worker.stop() == 0
            worker.start()
            hub.wait_owners(*three)
        goes_on(stream, PER_S)
    sink.wait_for(PATH, stream.ids())
    assert repeats(sink, PATH, stream.ids()) == 0


def test_one_is_paused_past_its_session_and_lets_go(hub: Deployment, three: list[Worker], sink: RecordingSink) -> None:
    """What it had in hand is attempted by another, once the claim is old enough. When it goes on it attempts nothing
    that it no longer owns: no repeat comes after that."""
    *rest, paused = three
    with Stream(hub, hub.source("paused"), TENANTS, per_s=PER_S) as stream:
        goes_on(stream)
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            # It cannot be asked for its metrics meanwhile.
            until(lambda: set(hub.owners("dispatch").values()) == {worker.url for worker in rest}, "owners", seconds=40)
            reached = len(stream.sent)
            sink.wait_for(PATH, stream.ids()[:reached], seconds=40)
            holds(paused.alive, "it is paused", seconds=SESSION_TIMEOUT_MS / 2_000)
            across = repeats(sink, PATH, stream.ids())
            reclaimed = sum(worker.metric("hub_reclaims_total") for worker in rest)
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        hub.wait_owners(*three, seconds=60)
        goes_on(stream)
    sink.wait_for(PATH, stream.ids())
    assert across <= min(reclaimed, WORKERS) + TICK_JOBS
    assert repeats(sink, PATH, stream.ids()) == across
    assert paused.alive()
