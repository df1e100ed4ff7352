"""Dead letters through the API: listed, filtered, read, redriven one or many, discarded."""

from __future__ import annotations

from typing import Any

import pytest

from hub_app.domain.delivery import Job
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.ids import delivery_id, event_id
from hub_app.wire import dead_letters as wire
from hub_app.wire import jobs as wire_jobs
from tests.fakes.facts import fact
from tests.fakes.workers import NAMES, Deployment, Reply, Worker

URL = "https://crm.example.com/in"
ROOT = "/v1/dead-letters"
PROBLEM = "urn:streaming-hub:problem:"
DIED_AT_MS = 1_767_323_045_000


@pytest.fixture
async def key(hub: Deployment, worker: Worker) -> str:
    return await hub.key(worker, "t", "manage")


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


async def made(hub: Deployment, worker: Worker, key: str, **more: Any) -> str:
    wish = {"name": "n", "event_types": ["loan.*"], "sink": {"type": "webhook", "url": URL}, **more}
    return str(body(await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=wish))["id"])


def die(
    hub: Deployment,
    seq: int,
    subscription: str,
    *,
    tenant: str = "t",
    reason: str = "exhausted",
    series: str = "",
    value: bytes = b'{"n":1}',
    at_ms: int | None = None,
    **more: Any,
) -> str:
    """A delivery is given up; its id."""
    event = fact(seq, tenant, value=value, **more)
    id = delivery_id(tenant, seq, subscription, series)
    job = Job(id, 8, 0, tenant, URL, subscription, series, seq, event.topic, event.received_at_ms, 0, 0, 0)
    when = DIED_AT_MS + seq if at_ms is None else at_ms
    record = wire.write(job, event.headers, value, reason=reason, at_ms=when, status=500, error="http_500: no")
    hub.cluster.append(NAMES.dlq, hub.cluster.shard_of(tenant), record)
    return id.hex()


def deliveries(hub: Deployment) -> list[Job]:
    read = [wire_jobs.read(entry.record.headers) for entry in hub.cluster.log if entry.topic == NAMES.deliveries]
    return [job for job in read if isinstance(job, Job)]


async def listed(hub: Deployment, worker: Worker, key: str, query: str = "") -> list[str]:
    reply = await hub.ask(worker, "GET", f"{ROOT}{query}", key=key)
    assert reply.status == 200, reply
    return [row["id"] for row in body(reply)["dead_letters"]]


# -- seen --------------------------------------------------------------------------------------------------------------
async def test_listed_and_read_with_its_payload(hub: Deployment, worker: Worker, key: str) -> None:
    id = die(hub, 7, "sub_a", value=b'{"b":1,"a":2,"b":3}')
    [row] = body(await hub.ask(worker, "GET", ROOT, key=key))["dead_letters"]
    assert (row["id"], row["reason"], row["status"], row["error"]) == (id, "exhausted", 500, "http_500: no")
    assert (row["subscription"], row["seq"], row["event_type"], row["attempts"]) == ("sub_a", 7, "loan.approved", 8)
    assert (row["state"], row["payload_bytes"], row["died_at"]) == ("dead", 19, "2026-01-02T03:04:05.007Z")
    read = await hub.ask(worker, "GET", f"{ROOT}/{id}", key=key)
    assert b'"data":{"b":1,"a":2,"b":3}' in read.body
    assert body(read)["event"]["id"] == "id-7"
    assert {name: value for name, value in body(read).items() if name != "event"} == row


async def test_a_payload_that_was_left_out_is_found_among_the_facts(hub: Deployment, worker: Worker, key: str) -> None:
    job = Job(delivery_id("t", 7, "sub_a"), 8, 0, "t", URL, "sub_a", "", 7, "lender", 5, 0, 0, 0)
    record = wire.write(job, fact(7).headers, b"x" * (3 << 20), reason="payload_too_large", at_ms=DIED_AT_MS)
    hub.cluster.append(NAMES.dlq, hub.cluster.shard_of("t"), record)
    path = f"{ROOT}/{job.delivery_id.hex()}"
    assert body(await hub.ask(worker, "GET", path, key=key))["event"] is None
    hub.cluster.inboxes[hub.cluster.shard_of("t")].add(fact(7, value=b'{"here":1}'))
    assert body(await hub.ask(worker, "GET", path, key=key))["event"]["data"] == {"here": 1}


async def test_filters_and_pages(hub: Deployment, worker: Worker, key: str) -> None:
    ids = [die(hub, seq, "sub_a" if seq % 2 else "sub_b") for seq in range(1, 7)]
    ids.append(die(hub, 7, "sub_c", reason="expired", event_type="card.made"))
    assert await listed(hub, worker, key) == ids
    assert await listed(hub, worker, key, "?subscription=sub_b") == ids[1:6:2]
    assert await listed(hub, worker, key, "?reason=expired") == ids[6:]
    assert await listed(hub, worker, key, "?type=card.made") == ids[6:]
    since, until = "2026-01-02T03:04:05.003Z", "2026-01-02T03:04:05.005Z"
    assert await listed(hub, worker, key, f"?since={since}&until={until}") == ids[2:4]
    first = body(await hub.ask(worker, "GET", f"{ROOT}?limit=4", key=key))
    rest = await listed(hub, worker, key, f"?limit=4&cursor={first['next']}")
    assert [row["id"] for row in first["dead_letters"]] + rest == ids
    assert body(await hub.ask(worker, "GET", f"{ROOT}?limit=7", key=key))["next"] is None


@pytest.mark.parametrize(
    ("query", "name"),
    [("?limit=0", "limit"), ("?cursor=x", "cursor"), ("?since=now", "since"), ("?state=x", "state"), ("?a=1", "a")],
)
async def test_a_parameter_is_named(hub: Deployment, worker: Worker, key: str, query: str, name: str) -> None:
    reply = await hub.ask(worker, "GET", ROOT + query, key=key)
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (400, f"?{name}")


async def test_the_same_death_told_twice_is_one(hub: Deployment, worker: Worker, key: str) -> None:
    assert die(hub, 7, "sub_a") == die(hub, 7, "sub_a")
    assert len(await listed(hub, worker, key)) == 1


@pytest.mark.parametrize("id", ["0" * 32, "x", "0" * 31, "%C3%84" * 32, "0" * 33])
async def test_one_that_is_not_there(hub: Deployment, worker: Worker, key: str, id: str) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/redrive")):
        assert (await hub.ask(worker, method, f"{ROOT}/{id}{path}", key=key)).status == 404


async def test_a_tenant_sees_and_touches_only_its_own(hub: Deployment, worker: Worker, key: str) -> None:
    id = die(hub, 7, await made(hub, worker, key))
    for tenant in ("u", "t ", "T"):
        other = await hub.key(worker, tenant, "manage")
        assert await listed(hub, worker, other) == []
        for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/redrive")):
            assert (await hub.ask(worker, method, f"{ROOT}/{id}{path}", key=other)).status == 404
    assert await listed(hub, worker, key) == [id]


# -- redriven ----------------------------------------------------------------------------------------------------------
async def test_redriven_is_a_new_delivery_of_the_same_event(hub: Deployment, worker: Worker, key: str) -> None:
    subscription = await made(hub, worker, key)
    id = die(hub, 7, subscription, value=b"\xff\x00", content_type="application/octet-stream")
    reply = await hub.ask(worker, "POST", f"{ROOT}/{id}/redrive", key=key)
    assert (reply.status, body(reply)["id"]) == (202, id)
    [job] = deliveries(hub)
    assert (job.attempt, job.seq, job.series, job.subscription) == (1, 7, body(reply)["series"], subscription)
    assert job.delivery_id == delivery_id("t", 7, subscription, job.series)
    assert job.received_at_ms > DIED_AT_MS
    record = next(entry.record for entry in hub.cluster.log if entry.topic == NAMES.deliveries)
    ce = dict(wire_jobs.carried(record.headers))
    sent_before = event_id("t", "lender", "lender", "id-7")
    assert event_id("t", job.topic, ce["ce-source"].decode(), ce["ce-id"].decode()) == sent_before
    assert record.value == b"\xff\x00"
    assert await listed(hub, worker, key) == []
    assert await listed(hub, worker, key, "?state=redriven") == [id]


async def test_row_12_redriven_again_really_sends_again(hub: Deployment, worker: Worker, key: str) -> None:
    """Faults, 12."""
    id = die(hub, 7, await made(hub, worker, key))
    for _ in range(2):
        assert (await hub.ask(worker, "POST", f"{ROOT}/{id}/redrive", key=key)).status == 202
    assert len({job.delivery_id for job in deliveries(hub)}) == 2


async def test_the_same_request_sends_once(hub: Deployment, worker: Worker, key: str) -> None:
    id = die(hub, 7, await made(hub, worker, key))
    replies = [
        await hub.ask(worker, "POST", f"{ROOT}/{id}/redrive", key=key, headers={"Idempotency-Key": "k"})
        for _ in range(2)
    ]
    assert [reply.headers.get("Idempotency-Replayed") for reply in replies] == [None, "true"]
    assert replies[0].json == replies[1].json
    assert len(deliveries(hub)) == 1


async def test_only_where_it_can_be_received(hub: Deployment, worker: Worker, key: str) -> None:
    gone, off = die(hub, 1, "sub_gone"), die(hub, 2, await made(hub, worker, key, enabled=False))
    for id, slug in ((gone, "deleted"), (off, "not-active")):
        reply = await hub.ask(worker, "POST", f"{ROOT}/{id}/redrive", key=key)
        assert (reply.status, body(reply)["type"]) == (409, PROBLEM + slug)
    assert deliveries(hub) == []


async def test_discarded_leaves_the_list(hub: Deployment, worker: Worker, key: str) -> None:
    id = die(hub, 7, "sub_a")
    for _ in range(2):
        assert (await hub.ask(worker, "DELETE", f"{ROOT}/{id}", key=key)).status == 204
    assert await listed(hub, worker, key) == []
    assert await listed(hub, worker, key, "?state=discarded") == [id]


async def test_what_people_did_is_in_the_log(hub: Deployment, worker: Worker, key: str) -> None:
    """The table is made from the log alone, marks included."""
    one, two = die(hub, 1, await made(hub, worker, key)), die(hub, 2, "sub_b")
    await hub.ask(worker, "POST", f"{ROOT}/{one}/redrive", key=key)
    await hub.ask(worker, "DELETE", f"{ROOT}/{two}", key=key)
    shard = hub.cluster.shard_of("t")
    table = worker.dead_letters.table(shard)
    assert table is not None
    table.begin_again()
    assert await listed(hub, worker, key, "?state=redriven") == []
    for entry in [entry for entry in hub.cluster.log if entry.topic == NAMES.dlq]:
        worker.dead_letters.take_in(shard, [Record(entry)], entry.offset + 1)
    assert await listed(hub, worker, key, "?state=redriven") == [one]
    assert await listed(hub, worker, key, "?state=discarded") == [two]
    assert table.position() == 4


class Record:
    def __init__(self, entry: Any) -> None:
        self.offset, self.headers, self.value = entry.offset, entry.record.headers, entry.record.value


# -- many --------------------------------------------------------------------------------------------------------------
async def bulk(hub: Deployment, worker: Worker, key: str, **wish: Any) -> dict[str, Any]:
    reply = await hub.ask(worker, "POST", f"{ROOT}/redrive", key=key, json=wish)
    assert reply.status == 202, reply
    await worker.run_operations()
    return body(await hub.ask(worker, "GET", reply.headers["Location"], key=key))


async def test_many_by_filter(hub: Deployment, worker: Worker, key: str) -> None:
    one, two = await made(hub, worker, key), await made(hub, worker, key)
    ids = [die(hub, seq, one if seq % 2 else two, reason="expired" if seq > 4 else "exhausted") for seq in range(1, 9)]
    dry = await bulk(hub, worker, key, subscription=one, reason="exhausted", dry_run=True)
    assert (dry["state"], dry["made"], deliveries(hub)) == ("done", 2, [])
    over = await bulk(hub, worker, key, subscription=one, reason="exhausted")
    assert (over["kind"], over["state"], over["looked_at"], over["made"]) == ("redrive", "done", 2, 2)
    assert [job.seq for job in deliveries(hub)] == [1, 3]
    assert {job.series for job in deliveries(hub)} == {over["id"]}
    assert await listed(hub, worker, key, "?state=redriven") == [ids[0], ids[2]]
    rest = await bulk(hub, worker, key)
    assert rest["made"] == 6
    assert await listed(hub, worker, key) == []


async def test_what_dies_again_is_not_redriven_by_the_same_operation(hub: Deployment, worker: Worker, key: str) -> None:
    subscription = await made(hub, worker, key)
    die(hub, 1, subscription)
    reply = await hub.ask(worker, "POST", f"{ROOT}/redrive", key=key, json={})
    series = body(reply)["id"]
    die(hub, 1, subscription, series=series)
    await worker.run_operations()
    assert len(deliveries(hub)) == 1


async def test_many_in_steps_and_resumed_after_a_crash(hub: Deployment, worker: Worker, key: str) -> None:
    subscription = await made(hub, worker, key)
    for seq in range(1, 251):
        die(hub, seq, subscription)
    await hub.ask(worker, "POST", f"{ROOT}/redrive", key=key, json={})
    worker.write_fails = BrokerTrouble
    with pytest.raises(BrokerTrouble):
        await worker.runner.step()
    worker.write_fails = None
    heir = await hub.worker()
    hub.cluster.give("t", heir)
    await heir.run_operations()
    jobs = deliveries(hub)
    assert sorted({job.seq for job in jobs}) == list(range(1, 251))
    assert len({job.delivery_id for job in jobs}) == 250
    assert await listed(hub, heir, key) == []


@pytest.mark.parametrize(
    ("wish", "pointer"),
    [
        ({"reson": "x"}, "/reson"),
        ({"since": "x"}, "/since"),
        ({"since": "2026-01-02T00:00:00Z", "until": "2026-01-02T00:00:00Z"}, "/until"),
        ({"subscription": ""}, "/subscription"),
    ],
)
async def test_the_field_is_named(hub: Deployment, worker: Worker, key: str, wish: object, pointer: str) -> None:
    reply = await hub.ask(worker, "POST", f"{ROOT}/redrive", key=key, json=wish)
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (422, pointer)


async def test_the_old_ones_go(hub: Deployment, worker: Worker, key: str) -> None:
    now_ms = worker.clock.now_ms()
    old, young = die(hub, 1, "sub_a", at_ms=now_ms - 721 * 3_600_000), die(hub, 2, "sub_a", at_ms=now_ms)
    shard = hub.cluster.shard_of("t")
    assert await listed(hub, worker, key) == [old, young]
    worker.dead_letters.expire(shard)
    assert await listed(hub, worker, key) == [young]
    assert die(hub, 1, "sub_a", at_ms=now_ms) == old
    assert await listed(hub, worker, key) == [young, old]
