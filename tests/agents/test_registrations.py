"""Creating, replacing and deleting, over a writer that fails where a test wants it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from agents.owner import OwnerLog, OwnerSetup
from agents.registrations import KEYS_PER_TENANT_MAX, Idempotent, KeyStore, Refusal, Written
from hub_app.domain.apikey import ApiKey
from hub_app.domain.errors import BrokerTrouble, Fenced
from hub_app.domain.idempotency import Answer, Claim, Clash, key_digest
from hub_app.domain.ids import tenant_key
from hub_app.topics import partition_for
from hub_app.wire.record import Headers
from tables.keys import KeysTable
from tests.fakes.clock import FakeClock
from tests.fakes.transactions import FakeBroker

TOPIC, SHARDS, TTL_MS = "hub.keys", 4, 24 * 3_600_000
SHARD = partition_for(tenant_key("acme"), SHARDS)


def api_key(id: str, name: str = "") -> ApiKey:
    return ApiKey(id=id, tenant="acme", name=name, scopes=frozenset(), secret_sha256=bytes(32), created_at_ms=1)


class Owner:
    """The owner of acme's shard over a fake broker; its table is what its tail would have read."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker, self.clock, self.table = broker, FakeClock(), KeysTable(TOPIC)
        self.log = OwnerLog(OwnerSetup("hub.", broker.producer, lambda: True, self._catch_up, self._apply, 200))
        self.keys = KeyStore(self.log, self.table, shards=SHARDS, clock=self.clock, idempotency_ttl_ms=TTL_MS)

    async def _catch_up(self, shard: int) -> None:
        for offset, sent in enumerate(self.broker.logs[TOPIC, shard]):
            if sent is not None:
                self.table.apply(shard, offset, sent.key, sent.value, list(sent.headers))

    def _apply(
        self, topic: str, partition: int, offset: int, key: bytes, value: bytes | None, headers: Headers
    ) -> None:
        self.table.apply_own(partition, offset, key, value, headers)


@pytest.fixture
async def owner() -> AsyncIterator[Owner]:
    owner = Owner(FakeBroker())
    await owner.log.open(SHARD)
    yield owner
    await owner.log.stop()


def asked(key: str = "k", digest: str = "d", answer: str = "201") -> Idempotent:
    return Idempotent(Claim(key, digest), answer)


async def test_create_replace_delete(owner: Owner) -> None:
    first, second = api_key("a"), api_key("a", "renamed")
    assert await owner.keys.create(first) == Written()
    assert owner.table.get("a") == first
    assert await owner.keys.create(first) is Refusal.EXISTS
    assert await owner.keys.replace(first, second) == Written()
    assert await owner.keys.replace(first, second) is Refusal.STALE
    assert await owner.keys.delete("acme", "a", before=first) is Refusal.STALE
    assert await owner.keys.delete("acme", "a", before=second) == Written()
    assert await owner.keys.delete("acme", "a") is Refusal.MISSING
    assert await owner.keys.replace(second, first) is Refusal.MISSING
    assert owner.table.get("a") is None


async def test_two_equal_requests_at_once_make_one(owner: Owner) -> None:
    results = await asyncio.gather(*(owner.keys.create(api_key("a", f"n{n}"), asked()) for n in range(5)))
    answer = Answer(key_digest("acme", "k"), "d", owner.clock.now_ms(), "201")
    assert results == [Written(), answer, answer, answer, answer]
    assert len(owner.broker.committed(TOPIC, SHARD)) == 1


async def test_the_same_key_for_another_request_clashes(owner: Owner) -> None:
    await owner.keys.create(api_key("a"), asked())
    assert await owner.keys.create(api_key("a"), asked(digest="other")) is Clash.OTHER_REQUEST
    owner.clock.advance(TTL_MS)
    assert await owner.keys.create(api_key("a"), asked(digest="other")) is Refusal.EXISTS


async def test_the_next_owner_repeats_the_answer(owner: Owner) -> None:
    await owner.keys.create(api_key("a"), asked())
    successor = Owner(owner.broker)
    await successor.log.open(SHARD)
    assert isinstance(await successor.keys.create(api_key("a"), asked()), Answer)
    assert await successor.keys.replace(api_key("a"), api_key("a", "b"), asked("k2", answer="200")) == Written()
    repeated = await successor.keys.replace(api_key("a"), api_key("a", "b"), asked("k2"))
    assert isinstance(repeated, Answer)
    assert repeated.text == "200"
    assert isinstance(await successor.keys.create(api_key("a"), asked()), Answer)  # still: both are remembered
    await successor.log.stop()


async def test_a_tenant_has_a_bound(owner: Owner) -> None:
    results = await asyncio.gather(*(owner.keys.create(api_key(f"a{n}")) for n in range(KEYS_PER_TENANT_MAX)))
    assert set(results) == {Written()}
    assert await owner.keys.create(api_key("one more")) is Refusal.TOO_MANY
    assert await owner.keys.delete("acme", "a0") == Written()
    assert await owner.keys.create(api_key("one more")) == Written()


@pytest.mark.parametrize("failure", ["before", "lost answer"])
async def test_a_write_that_failed_is_looked_for_before_it_is_made_again(owner: Owner, failure: str) -> None:
    made, renamed = api_key("a"), api_key("a", "renamed")
    owner.broker.failures.append(failure)
    assert await owner.keys.create(made, asked()) == Written()
    owner.broker.failures.append(failure)
    assert await owner.keys.replace(made, renamed) == Written()
    owner.broker.failures.append(failure)
    assert await owner.keys.delete("acme", "a") == Written()
    values = [sent.value for sent in owner.broker.committed(TOPIC, SHARD)]
    assert len(values) == 3
    assert values[2] is None
    assert owner.table.get("a") is None


async def test_a_change_by_another_in_between_is_seen(owner: Owner) -> None:
    """Fenced, owned again, read to the end: the decision is made on what the other owner left."""
    made = api_key("a")
    await owner.keys.create(made)
    other = Owner(owner.broker)
    await other.log.open(SHARD)
    await other.keys.replace(made, replace(made, name="by the other"))
    assert await owner.keys.replace(made, replace(made, name="by me")) is Refusal.STALE
    assert owner.table.get("a") == replace(made, name="by the other")
    await other.log.stop()


async def test_a_broker_that_always_refuses_is_trouble(owner: Owner) -> None:
    owner.broker.failures += ["before"] * 3
    with pytest.raises(BrokerTrouble):
        await owner.keys.create(api_key("a"))
    assert await owner.keys.create(api_key("a")) == Written()


async def test_a_shard_that_is_not_here_is_fenced(owner: Owner) -> None:
    await owner.log.close(SHARD)
    with pytest.raises(Fenced):
        await owner.keys.create(api_key("a"))
    assert owner.table.get("a") is None
