"""Something of everything, for requests that are made up to meet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hub_app.domain.delivery import Job
from hub_app.domain.ids import delivery_id
from hub_app.wire import dead_letters
from tests.fakes.facts import fact
from tests.fakes.workers import NAMES, Deployment, Worker

TENANT = "t"


class World(NamedTuple):
    """`parts`: values of path parameters that exist, by name, or by path and name."""

    key: str
    parts: Mapping[str, list[Any]]


async def prepared(hub: Deployment, worker: Worker) -> World:
    key = await hub.key(worker, TENANT)
    subscriptions = []
    for number in range(3):
        wish = {
            "name": f"n{number}",
            "event_types": ["*"],
            "sink": {"type": "webhook", "url": "https://crm.example.com/in"},
        }
        reply = await hub.ask(worker, "POST", "/v1/subscriptions", key=key, json=wish)
        assert isinstance(reply.json, dict)
        subscriptions.append(reply.json["id"])
    keys = [(await hub.key(worker, TENANT)).split("_")[1] for _ in range(3)]
    inbox = hub.cluster.inboxes[hub.cluster.shard_of(TENANT)]
    inbox.add(*(fact(seq, TENANT) for seq in range(1, 9)))
    dead = [_dies(hub, seq, subscriptions[0]) for seq in (1, 2, 3)]
    return World(
        key,
        {
            "id": subscriptions,
            "seq": [1, 2, 8],
            "tenant": [TENANT],
            "/admin/tenants/{tenant}/keys/{id}:id": keys,
            **{f"/v1/dead-letters/{{id}}{rest}:id": dead for rest in ("", "/redrive")},
        },
    )


def _dies(hub: Deployment, seq: int, subscription: str) -> str:
    event, id = fact(seq, TENANT), delivery_id(TENANT, seq, subscription)
    job = Job(id, 8, 0, TENANT, "https://crm.example.com/in", subscription, "", seq, event.topic, 5, 0, 0, 0)
    record = dead_letters.write(job, event.headers, event.value, reason="exhausted", at_ms=event.received_at_ms)
    hub.cluster.append(NAMES.dlq, hub.cluster.shard_of(TENANT), record)
    return id.hex()
