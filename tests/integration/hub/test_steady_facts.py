"""What producers write, as it comes: new topics, every codec, transactions."""

from __future__ import annotations

import pytest
from aiokafka import AIOKafkaProducer

from hub_app.dev.facts import NewFact, headers, make_topics, topic_of
from hub_app.dev.worker import Worker
from tests.support.deployment import Deployment, facts
from tests.support.sink import RecordingSink, webhook_id

TENANT, PATH = "facts-in", "/facts-in"


@pytest.fixture(scope="module", autouse=True)
def subscribed(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    """Everything of the tenant goes to one path."""
    hub.api(worker, TENANT).subscribe(sink.url(PATH))


def test_a_topic_that_appears_is_read_from_its_beginning(hub: Deployment, worker: Worker, sink: RecordingSink) -> None:
    source = hub.source("new", create=False)
    hub.run(make_topics(hub.bootstrap, [source]))
    made = facts(source, 50, tenants=[TENANT])
    hub.send(made)
    sink.wait_for(PATH, map(webhook_id, made))
    assert sink.counts(PATH, map(webhook_id, made)) == dict.fromkeys(map(webhook_id, made), 1)


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_read(hub: Deployment, sink: RecordingSink, codec: str | None) -> None:
    source = hub.source(codec or "plain")
    made = facts(source, 200, tenants=[TENANT], body=b'{"text":"' + b"ab" * 500 + b'"}')
    hub.send(made, compression=codec)
    sink.wait_for(PATH, map(webhook_id, made))
    got = {request.id: request.body for request in sink.requests(PATH)}
    assert {got[webhook_id(fact)] for fact in made} == {made[0].body}


def test_row_03_only_committed_transactions_are_facts_and_their_gaps_hold_nothing_up(
    hub: Deployment, worker: Worker, sink: RecordingSink
) -> None:
    source = hub.source("bank")
    made = facts(source, 40, tenants=[TENANT])

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=hub.bootstrap, transactional_id=source) as producer:
            for start in range(0, 40, 10):
                await producer.begin_transaction()
                for fact in made[start : start + 10]:
                    await producer.send_and_wait(topic_of(source), fact.body, headers=headers(fact), partition=0)
                if start % 20:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()

    hub.run(produce())
    last = NewFact(id=f"{source}-last", tenant=TENANT, source=source)
    hub.send([last])
    committed = [*made[:10], *made[20:30], last]
    sink.wait_for(PATH, map(webhook_id, committed))
    assert sink.counts(PATH, map(webhook_id, [*made, last])) == dict.fromkeys(map(webhook_id, committed), 1)
