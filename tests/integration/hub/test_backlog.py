"""A long queue before a slow sink lies on disk: memory stays bounded, and other tenants do not feel it (faults, 5)."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.bench import _lib
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import facts
from tests.support.sink import RecordingSink, webhook_id
from tests.support.waiting import until

BACKLOG = 30_000
RSS_MIB_MAX = 300
BODY = b'{"text":"' + b"x" * 1_500 + b'"}'


@pytest.fixture
def slow() -> Iterator[_lib.Sink]:
    with _lib.sink(record="webhook-id") as sink:
        yield sink


def test_row_05_memory_does_not_grow_with_a_backlog(
    make_hub: MakeDeployment, slow: _lib.Sink, sink: RecordingSink
) -> None:
    hub = make_hub(instance_id="one")
    worker = hub.started()
    crowd = [f"slow-{i}" for i in range(8)]
    for tenant in crowd:
        hub.api(worker, tenant).subscribe(slow.url("/!slow/500"))
    hub.api(worker, "quick").subscribe(sink.url(f"/{hub.run_id}"))
    worker.stop()
    hub.send(facts(hub.source("backlog"), BACKLOG, tenants=crowd, body=BODY))
    worker.start().wait_ready()
    peak = 0.0

    def taken_in() -> bool:
        nonlocal peak
        peak = max(peak, _lib.rss_mib(worker.pid))
        return worker.metric("hub_matched_deliveries_total") >= BACKLOG

    until(taken_in, lambda: worker.metric("hub_matched_deliveries_total"), seconds=90)
    until(lambda: worker.metric("hub_backlog_jobs") > BACKLOG * 0.9, lambda: worker.metric("hub_backlog_jobs"))
    assert max(peak, _lib.rss_mib(worker.pid)) < RSS_MIB_MAX
    began = time.monotonic()
    [fact] = facts(hub.source("quick"), 1, tenants=["quick"])
    hub.send([fact])
    sink.wait_for(f"/{hub.run_id}", [webhook_id(fact)], seconds=10)
    assert time.monotonic() - began < 5
    assert worker.metric("hub_backlog_jobs") > BACKLOG * 0.8
