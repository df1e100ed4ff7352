"""kill -9 at any moment, with the disk and without it: no fact is lost, and few come twice."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence

import pytest

from hub_app.dev.facts import FactProducer, NewFact
from hub_app.dev.worker import Worker
from tests.bench import _lib
from tests.integration.hub.conftest import MakeDeployment
from tests.support.deployment import Deployment, facts, header
from tests.support.sink import RecordingSink, Reply, Request, webhook_id
from tests.support.waiting import holds, until

FACTS, KILLS, CHUNK = 20_000, 5, 250
TENANTS = [f"tenant-{i}" for i in range(10)]
SEED = int(os.environ.get("SEED", str(random.SystemRandom().randrange(1 << 32))))
REPEATS_PER_KILL_MAX = 200
SETTINGS = {
    "instance_id": "one",  # gets its shards back at once
    "dispatch_workers": "32",
    "dispatch_timeout": "1s",
    "dispatch_connect_timeout": "1s",
}


@pytest.fixture
def counting() -> Iterator[_lib.Sink]:
    """A sink in a process of its own that counts by webhook-id."""
    with _lib.sink(record="webhook-id") as sink:
        yield sink


def subscribed(hub: Deployment, worker: Worker, sink: _lib.Sink) -> None:
    for number, tenant in enumerate(TENANTS):
        hub.api(worker, tenant).subscribe(sink.url(f"/d{number}"))
    sink.forget()


def settled(sink: _lib.Sink, made: Sequence[NewFact], *, seconds: float) -> int:
    """Waits for every fact; how many requests there were beyond one each, once no more come."""
    wanted = {webhook_id(fact) for fact in made}
    until(lambda: sink.counts()[1] >= len(wanted), sink.counts, seconds=seconds)
    arrivals = sink.arrivals()
    assert wanted - arrivals.keys() == set()
    return sum(arrival.times for arrival in arrivals.values()) - len(arrivals)


async def produce(bootstrap: str, made: Sequence[NewFact], seconds: float) -> None:
    """In chunks, spread over so long."""
    async with FactProducer(bootstrap) as producer:
        began = time.monotonic()
        for start in range(0, len(made), CHUNK):
            await asyncio.sleep(max(0.0, began + seconds * start / len(made) - time.monotonic()))
            await producer.send_many(made[start : start + CHUNK])


def test_five_kills_in_twenty_thousand_facts(make_hub: MakeDeployment, counting: _lib.Sink) -> None:
    """At random moments: at work, while shards are opened, before there is a connection."""
    print(f"SEED={SEED}")
    draw = random.Random(SEED)
    hub = make_hub(**SETTINGS)
    worker = hub.started()
    subscribed(hub, worker, counting)
    made = facts(hub.source("kills"), FACTS, tenants=TENANTS)
    # Every other kill comes while the worker is starting, the others while it works.
    moments = [draw.uniform(*((0.5, 2.5) if number % 2 else (0.2, 2.5))) for number in range(KILLS)]
    producing = hub.start(produce(hub.bootstrap, made, 20.0))
    for number, moment in enumerate(moments):
        if number % 2 == 0:
            worker.wait_ready()
        holds(worker.alive, worker.log_tail, seconds=moment)
        worker.kill()
        worker.start()
    producing.result(60)
    worker.wait_ready()
    assert settled(counting, made, seconds=60) <= KILLS * REPEATS_PER_KILL_MAX


def test_an_empty_disk_after_a_kill(make_hub: MakeDeployment, counting: _lib.Sink) -> None:
    """Everything is rebuilt from Kafka: what was delivered is not sent again, what was not is, and pull has it all."""
    hub = make_hub(**SETTINGS)
    worker = hub.started()
    subscribed(hub, worker, counting)
    made = facts(hub.source("wiped"), 6_000, tenants=TENANTS)
    producing = hub.start(produce(hub.bootstrap, made, 5.0))
    until(lambda: counting.counts()[1] > 1_500, counting.counts)
    worker.kill()
    shutil.rmtree(worker.data)
    worker.start().wait_ready()
    producing.result(60)
    assert settled(counting, made, seconds=60) <= REPEATS_PER_KILL_MAX
    api = hub.api(worker, TENANTS[3])
    events = api.call("GET", "/v1/events?after=start&limit=1000")["events"]
    assert sorted(event["id"] for event in events) == sorted(fact.id for fact in made if fact.tenant == TENANTS[3])
    known = worker.metric("hub_duplicates_total")
    hub.send(made[:1_000])
    until(lambda: worker.metric("hub_duplicates_total") - known == 1_000, "known ids are known again")


INTERRUPTED_S = 1.0 + 2.0
"""A claim without an outcome counts as interrupted past its deadline (DISPATCH_TIMEOUT) and a margin."""


def test_row_27_a_worker_killed_between_the_answer_and_its_record_sends_again(
    make_hub: MakeDeployment, sink: RecordingSink
) -> None:
    """Faults, 27: the sink has taken the event, the hub does not know; the sink tells by the id."""
    hub = make_hub(**SETTINGS)
    worker = hub.started()
    source = hub.source("killed")
    path = f"/{source}"

    def take_and_kill(request: Request) -> Reply:
        if request.nth == 1:
            os.kill(worker.pid, signal.SIGKILL)
        return Reply()

    hub.api(worker, source).subscribe(sink.behave(path, take_and_kill))
    fact = NewFact(id=source, tenant=source, source=source)
    hub.send([fact])
    until(lambda: not worker.alive(), "the worker dies")
    killed_at = time.monotonic()
    worker.start().wait_ready()
    until(lambda: len(sink.requests(path)) == 2, "the event comes again")
    first, second = sink.requests(path)
    assert (first.id, first.body) == (second.id, second.body) == (webhook_id(fact), fact.body)
    assert [r.header("x-lerian-attempt") for r in (first, second)] == ["1", "1"]  # an interruption is no attempt
    assert second.at_s - killed_at >= INTERRUPTED_S - 1.0  # its claim was made a little before
    until(lambda: hub.metric("hub_attempts_total") == 1, "its outcome is recorded")
    assert hub.metric("hub_reclaims_total") == 1
    assert [header(r, "hub-outcome") for r in hub.records("attempts")].count("delivered") == 1


def test_what_is_finished_around_one_that_hangs_is_not_sent_again(
    make_hub: MakeDeployment, sink: RecordingSink
) -> None:
    """Faults, 2: the low-water mark stands at the one in hand; the attempts log tells what lies beyond it."""
    hub = make_hub(**{**SETTINGS, "dispatch_timeout": "4s"})
    worker = hub.started()
    source = hub.source("hangs")
    path = f"/{source}"
    made = facts(source, 300, tenants=[source])
    fourth = webhook_id(made[3])
    url = sink.behave(path, lambda r: Reply(delay_ms=60_000 if (r.id, r.nth) == (fourth, 1) else 0))
    hub.api(worker, source).subscribe(url)
    for start in range(0, len(made), 50):
        hub.send(made[start : start + 50])
    sink.wait_for(path, map(webhook_id, made))
    until(lambda: worker.metric("hub_attempts_total") == len(made) - 1, "all others are recorded")
    worker.kill()
    worker.start().wait_ready()
    until(lambda: len(sink.requests(path, fourth)) == 2, "it comes again")
    first, second = sink.requests(path, fourth)
    assert second.at_s - first.at_s >= 4.0
    assert sum(sink.counts(path).values()) == len(made) + 1
