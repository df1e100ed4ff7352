"""Producers' dead letters and quarantine, for administrators; the way back in."""

from __future__ import annotations

import base64
from types import SimpleNamespace
from typing import Any

import pytest

from hub_app.wire import facts as wire_facts
from hub_app.wire import observations, quarantine
from hub_app.wire.record import Record
from tests.fakes.facts import fact
from tests.fakes.workers import ADMIN_KEY, NAMES, Deployment, Reply, Worker

P = "x-lerian-dlq-"


def body(reply: Reply) -> dict[str, Any]:
    assert isinstance(reply.json, dict), reply
    return reply.json


def observe(
    hub: Deployment, number: int, *, origin: int | None = None, kind: str = "auth_error", tenant: str = "t"
) -> None:
    headers: list[tuple[str, bytes | None]] = [
        (P + "source-topic", b"lerian.streaming.lender"),
        (P + "error-class", kind.encode()),
        (P + "error-message", b"no"),
        ("ce-tenantid", tenant.encode()),
    ]
    if origin is not None:
        headers += [(P + "source-partition", b"0"), (P + "source-offset", b"%d" % origin)]
    record = observations.write("lerian.streaming.lender.dlq", 0, number, 5, headers, b"payload")
    hub.cluster.append(NAMES.observations, number % hub.cluster.shards, record)


def hold(hub: Deployment, partition: int = 1, *, value: bytes = b'{"n":1}', **changes: str | None) -> str:
    """A record that stands in quarantine; its id."""
    headers = [(name, data) for name, data in fact(7).headers if name.removeprefix("ce-") not in changes]
    headers += [(f"ce-{name}", text.encode()) for name, text in changes.items() if text is not None]
    source = SimpleNamespace(
        topic="lerian.streaming.lender", partition=3, offset=99, key=b"k", value=value, headers=headers
    )
    made = quarantine.write(source, reason="tenant_missing", detail="no ce-tenantid")
    offset = hub.cluster.append(NAMES.quarantine, partition, Record(made.key, made.value, made.headers))
    return f"{partition}.{offset}"


async def test_observed_with_filters_and_pages(hub: Deployment, worker: Worker) -> None:
    for number in range(6):
        observe(
            hub, number, kind="network_timeout" if number == 3 else "auth_error", tenant="u" if number == 4 else "t"
        )
    found = body(await hub.ask(worker, "GET", "/admin/dlq", key=ADMIN_KEY))
    assert (len(found["dead_letters"]), found["next"]) == (6, None)
    row = found["dead_letters"][0]
    assert (row["error_class"], row["source_topic"], row["origin"]) == ("auth_error", "lerian.streaming.lender", None)
    assert base64.b64decode(row["payload_base64"]) == b"payload"
    for query, count in (("class=network_timeout", 1), ("tenant=u", 1), ("source=lender", 6), ("source=cards", 0)):
        found = body(await hub.ask(worker, "GET", f"/admin/dlq?{query}", key=ADMIN_KEY))
        assert len(found["dead_letters"]) == count, query
    seen, cursor = [], ""
    while True:
        found = body(await hub.ask(worker, "GET", f"/admin/dlq?limit=2{cursor}", key=ADMIN_KEY))
        seen += [row["offset"] for row in found["dead_letters"]]
        if found["next"] is None:
            break
        cursor = f"&cursor={found['next']}"
    assert sorted(seen) == list(range(6))


async def test_records_about_one_origin_are_one(hub: Deployment, worker: Worker) -> None:
    for number in range(4):
        observe(hub, number, origin=number // 2)
    found = body(await hub.ask(worker, "GET", "/admin/dlq", key=ADMIN_KEY))
    assert len(found["dead_letters"]) == 2
    assert {row["origin"]["offset"] for row in found["dead_letters"]} == {0, 1}


async def test_quarantine_is_shown_as_it_came(hub: Deployment, worker: Worker) -> None:
    id = hold(hub, tenantid=None)
    [row] = body(await hub.ask(worker, "GET", "/admin/quarantine?class=tenant_missing", key=ADMIN_KEY))["records"]
    assert (row["id"], row["reason"], row["topic"], row["offset"]) == (
        id,
        "tenant_missing",
        "lerian.streaming.lender",
        99,
    )
    assert ["ce-id", "id-7"] in row["headers"]
    assert base64.b64decode(row["payload_base64"]) == b'{"n":1}'
    assert body(await hub.ask(worker, "GET", "/admin/quarantine?class=x", key=ADMIN_KEY))["records"] == []


async def test_repaired_and_ingested(hub: Deployment) -> None:
    worker = await hub.worker(TENANT_ID="single")
    id = hold(hub, specversion="0.3", value=b'{"b":1,"a":2}')
    path = f"/admin/quarantine/{id}/ingest"
    as_it_is = await hub.ask(worker, "POST", path, key=ADMIN_KEY)
    assert as_it_is.status == 422
    assert "specversion" in body(as_it_is)["errors"][0]["detail"]
    reply = await hub.ask(worker, "POST", path, key=ADMIN_KEY, json={"headers": {"CE-SpecVersion": "1.0"}})
    assert (reply.status, body(reply)) == (202, {"tenant": "t", "source": "lender", "event_id": "id-7"})
    [entry] = [entry for entry in hub.cluster.log if entry.topic == NAMES.facts]
    assert entry.partition == hub.cluster.shard_of("t")
    read = wire_facts.read(entry.record.headers, entry.record.value, epoch=0, offset=entry.offset)
    assert (read.tenant, read.id, read.value) == ("t", "id-7", b'{"b":1,"a":2}')  # type: ignore[union-attr]
    assert wire_facts.origin(entry.record.headers) == ("lerian.streaming.lender", 3, 99)


@pytest.mark.parametrize(
    ("wish", "pointer"),
    [
        ({"headers": {"ce-id": 7}}, "/headers/ce-id"),
        ({"headers": []}, "/headers"),
        ({"value_base64": "%"}, "/value_base64"),
        ({"tenant": "t"}, "/tenant"),
        ({"headers": {"ce-id": None}}, "/headers"),
        ({"headers": {"ce-systemevent": "true"}}, "/headers/ce-systemevent"),
    ],
)
async def test_the_field_is_named(hub: Deployment, worker: Worker, wish: object, pointer: str) -> None:
    reply = await hub.ask(worker, "POST", f"/admin/quarantine/{hold(hub)}/ingest", key=ADMIN_KEY, json=wish)
    assert (reply.status, body(reply)["errors"][0]["pointer"]) == (422, pointer)
    assert not [entry for entry in hub.cluster.log if entry.topic == NAMES.facts]


@pytest.mark.parametrize("id", ["1.5", "99.0", "x", "1", "99999.1", "1.-1"])
async def test_one_that_is_not_there(hub: Deployment, worker: Worker, id: str) -> None:
    hold(hub)
    assert (await hub.ask(worker, "POST", f"/admin/quarantine/{id}/ingest", key=ADMIN_KEY)).status == 404


async def test_for_administrators_alone(hub: Deployment, worker: Worker) -> None:
    key = await hub.key(worker, "t")
    for method, path in (("GET", "/admin/dlq"), ("GET", "/admin/quarantine"), ("POST", "/admin/quarantine/0.0/ingest")):
        assert (await hub.ask(worker, method, path, key=key)).status == 403
        assert (await hub.ask(worker, method, path)).status == 401


@pytest.mark.parametrize("query", ["?cursor=x", "?cursor=9.0", "?limit=0", "?since=x", "?a=1"])
async def test_a_parameter_is_named(hub: Deployment, worker: Worker, query: str) -> None:
    for path in ("/admin/dlq", "/admin/quarantine"):
        assert (await hub.ask(worker, "GET", path + query, key=ADMIN_KEY)).status == 400
