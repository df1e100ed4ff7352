"""Dead letters of queues redriven, and past events replayed into a queue, over HTTP; the queues are real."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from agents.queue_steps import Delivered
from hub_app.adapters.clock import SystemClock
from hub_app.domain.delivery import Job
from hub_app.domain.ids import delivery_id
from hub_app.domain.queue import Operation
from hub_app.domain.queue_sinks import queue_destination
from hub_app.domain.subscription import QueueSink, Subscription
from hub_app.wire import dead_letters as wire
from tests.fakes.facts import fact
from tests.fakes.queues import QueueWorld, tokens
from tests.fakes.workers import NAMES, Deployment, Reply, Worker
from tests.support.event_grid import queue

ROOT = "/v1/dead-letters"


class Stage(NamedTuple):
    hub: Deployment
    worker: Worker
    world: QueueWorld
    key: str
    billing: Subscription

    async def ask(self, method: str, path: str, json: object = None, **headers: str) -> Reply:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.hub.ask(self.worker, method, path, key=self.key, json=json, headers=sent)

    async def buried(self, *ids: str) -> list[str]:
        """Events are received and rejected; the ids of their dead letters."""
        await self.world.give(*ids, tenant="t", topic="orders")
        got = await self.world.receive(self.billing)
        assert [one.fact.id for one in got] == list(ids)
        await self.world.settle(self.billing, Operation.REJECT, tokens(got))
        return [self.died(one) for one in got]

    def died(self, one: Delivered, series: str = "") -> str:
        """Its record in the deployment's own log, and its fact, which these two fakes do not share with the queues."""
        event, sink = one.fact, self.billing.sink
        assert isinstance(sink, QueueSink)
        id = delivery_id("t", event.seq, self.billing.id, series)
        where = queue_destination(sink)
        job = Job(id, 1, 0, "t", where, self.billing.id, series, event.seq, event.topic, event.received_at_ms, 0, 0, 0)
        self.hub.cluster.inboxes[0].add(event)
        record = wire.write(job, event.headers, event.value, reason="Rejected", at_ms=event.received_at_ms)
        self.hub.cluster.append(NAMES.dlq, 0, record)
        return id.hex()

    async def finish(self, reply: Reply) -> dict[str, Any]:
        assert reply.status == 202, reply
        await self.worker.run_operations()
        return body(await self.ask("GET", reply.headers["Location"]))


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    hub = Deployment(shards=1)
    worker = await hub.worker()
    world = QueueWorld(tmp_path, SystemClock(), subscriptions=worker.subscriptions, keyring=worker.deps.keyring)
    await world.start()
    worker.queue_world = world
    key = await hub.key(worker, "t")
    made = body(await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=queue("orders", "billing")))
    billing = worker.subscriptions.get("t", made["id"])
    assert billing is not None
    yield Stage(hub, worker, world, key, billing)
    await hub.close()
    await world.stop()


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def test_one_comes_again_with_attempts_of_its_own(stage: Stage) -> None:
    [id] = await stage.buried("a")
    reply = await stage.ask("POST", f"{ROOT}/{id}/redrive")
    assert (reply.status, body(reply)["id"]) == (202, id)
    [again] = await stage.world.receive(stage.billing)
    assert (again.fact.id, again.row.deliveries, again.row.series) == ("a", 1, body(reply)["series"])
    assert body(await stage.ask("GET", f"{ROOT}/{id}"))["state"] == "redriven"
    # It dies once more: another dead letter, that can be redriven like the first.
    await stage.world.settle(stage.billing, Operation.REJECT, [again.token])
    second = stage.died(again, again.row.series)
    assert second != id
    assert (await stage.ask("POST", f"{ROOT}/{second}/redrive")).status == 202
    assert len(await stage.world.receive(stage.billing)) == 1


async def test_the_same_request_gives_it_once(stage: Stage) -> None:
    """Protocol, "Queues": an enqueue with an operation's id counts once, also after the event was acknowledged."""
    [id] = await stage.buried("a")
    first = await stage.ask("POST", f"{ROOT}/{id}/redrive", Idempotency_Key="k")
    [again] = await stage.world.receive(stage.billing)
    assert await stage.world.settle(stage.billing, Operation.ACKNOWLEDGE, [again.token]) == [None]
    second = await stage.ask("POST", f"{ROOT}/{id}/redrive", Idempotency_Key="k")
    assert (second.json, second.headers.get("Idempotency-Replayed")) == (first.json, "true")
    assert await stage.world.receive(stage.billing) == []


async def test_many_beside_those_of_webhooks(stage: Stage) -> None:
    ids = await stage.buried("a", "b", "c")
    wish = {"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": "https://crm.example.com/in"}}
    webhook = body(await stage.ask("POST", "/v1/subscriptions", wish))
    where, other = "https://crm.example.com/in", fact(99)
    job = Job(delivery_id("t", 99, webhook["id"]), 8, 0, "t", where, webhook["id"], "", 99, "lender", 5, 0, 0, 0)
    record = wire.write(job, other.headers, other.value, reason="exhausted", at_ms=other.received_at_ms)
    stage.hub.cluster.append(NAMES.dlq, 0, record)
    dry = await stage.finish(await stage.ask("POST", f"{ROOT}/redrive", {"dry_run": True}))
    assert (dry["state"], dry["made"]) == ("done", 4)
    assert await stage.world.receive(stage.billing) == []
    over = await stage.finish(await stage.ask("POST", f"{ROOT}/redrive", {"subscription": stage.billing.id}))
    assert (over["state"], over["made"]) == ("done", 3)
    got = await stage.world.receive(stage.billing)
    assert [(one.fact.id, one.row.series) for one in got] == [(id, over["id"]) for id in "abc"]
    rest = await stage.finish(await stage.ask("POST", f"{ROOT}/redrive", {}))
    assert (rest["state"], rest["made"]) == ("done", 1)
    listed = body(await stage.ask("GET", f"{ROOT}?state=redriven"))["dead_letters"]
    assert {row["id"] for row in listed} == {*ids, job.delivery_id.hex()}


async def test_an_event_that_is_gone_cannot_come_again(stage: Stage) -> None:
    """The row of a queue holds no payload, so what was kept with the dead letter is of no use to it."""
    [id] = await stage.buried("a")
    stage.hub.cluster.inboxes[0].expire(1 << 60)
    reply = await stage.ask("POST", f"{ROOT}/{id}/redrive")
    assert (reply.status, body(reply)["type"]) == (409, "urn:streaming-hub:problem:event-gone")
    over = await stage.finish(await stage.ask("POST", f"{ROOT}/redrive", {}))
    assert (over["state"], over["made"]) == ("done", 0)
    assert body(await stage.ask("GET", f"{ROOT}/{id}"))["state"] == "dead"


async def test_while_the_shard_moves(stage: Stage) -> None:
    """503, and the letter stands as it was: nothing says redriven before the queue has it."""
    [id] = await stage.buried("a")
    stage.world.lease = False
    assert (await stage.ask("POST", f"{ROOT}/{id}/redrive")).status == 503
    stage.world.lease = True
    assert body(await stage.ask("GET", f"{ROOT}/{id}"))["state"] == "dead"
    assert (await stage.ask("POST", f"{ROOT}/{id}/redrive")).status == 202
    assert [one.fact.id for one in await stage.world.receive(stage.billing)] == ["a"]


async def test_past_events_are_replayed_into_a_queue(stage: Stage) -> None:
    await stage.world.give("a", "b", tenant="t", topic="orders")
    got = await stage.world.receive(stage.billing)
    await stage.world.settle(stage.billing, Operation.ACKNOWLEDGE, tokens(got))
    stage.hub.cluster.inboxes[0].add(*(one.fact for one in got))
    path = f"/v1/subscriptions/{stage.billing.id}/replay"
    dry = await stage.finish(await stage.ask("POST", path, {"from_seq": 0, "dry_run": True}))
    assert (dry["state"], dry["made"]) == ("done", 2)
    assert await stage.world.receive(stage.billing) == []
    over = await stage.finish(await stage.ask("POST", path, {"from_seq": got[1].fact.seq}))
    assert (over["state"], over["made"]) == ("done", 1)
    [again] = await stage.world.receive(stage.billing)
    assert (again.fact.id, again.row.deliveries, again.row.series) == ("b", 1, over["id"])
