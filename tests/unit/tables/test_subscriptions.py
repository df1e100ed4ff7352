"""The table of subscriptions: by tenant, in order, with a matcher that is never stale."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_app.domain.fact import Fact
from hub_app.domain.idempotency import Answer
from hub_app.domain.subscription import Subscription, Verification, WebhookSink
from hub_app.wire import subscriptions as wire
from hub_app.wire.owned import write_deleted
from hub_app.wire.record import Record
from tables.subscriptions import GONE_MAX, SubscriptionsTable


def subscription(id: str, tenant: str = "acme", created_at_ms: int = 1, enabled: bool = True) -> Subscription:
    return Subscription(
        id=id,
        tenant=tenant,
        name="loans to crm",
        event_types=("loan.*",),
        origin=(),
        filters=(),
        sink=WebhookSink(url="https://crm.example.com/in", headers=(("X-Env", "prod"),)),
        destination="https://crm.example.com/in",
        enabled=enabled,
        verification_state=Verification.ACTIVE,
        disabled_reason=None,
        disabled_at_ms=None,
        enabled_at_ms=created_at_ms,
        inactive_since_ms=None if enabled else created_at_ms,
        created_at_ms=created_at_ms,
        updated_at_ms=created_at_ms,
        revision=1,
        secret="sealed",
    )


def fact(tenant: str = "acme") -> Fact:
    return Fact(1, tenant, "lender", "lender", "id", "studio.lerian.lender.loan.paid", "loan.paid", (), b"", 0)


def apply(table: SubscriptionsTable, offset: int, record: Record, partition: int = 0) -> None:
    table.apply(partition, offset, record.key, record.value, record.headers)


@pytest.fixture
def table() -> SubscriptionsTable:
    return SubscriptionsTable("hub.subscriptions")


def test_tenants_see_their_own_oldest_first(table: SubscriptionsTable) -> None:
    apply(table, 0, wire.write(subscription("b", created_at_ms=2)))
    apply(table, 1, wire.write(subscription("c", created_at_ms=1)))
    apply(table, 2, wire.write(subscription("a", created_at_ms=2)))
    apply(table, 3, wire.write(subscription("a", tenant="other")))
    assert [row.id for row in table.of_tenant("acme")] == ["c", "a", "b"]
    assert table.get("other", "a") == subscription("a", tenant="other")
    assert table.get("other", "b") is None
    assert (table.count("acme"), len(table), table.tenants()) == (3, 4, ["acme", "other"])


def test_the_matcher_is_compiled_once_and_never_stale(table: SubscriptionsTable) -> None:
    assert table.matcher("acme").match(fact()) == []
    apply(table, 0, wire.write(subscription("a")))
    matcher = table.matcher("acme")
    assert [row.id for row in matcher.match(fact())] == ["a"]
    apply(table, 1, wire.write(subscription("z", tenant="other")))
    assert table.matcher("acme") is matcher
    assert table.matcher("other").match(fact()) == []
    apply(table, 2, wire.write(replace(subscription("a"), enabled=False, revision=2)))
    assert table.matcher("acme").match(fact()) == []
    apply(table, 3, wire.write(subscription("a")))
    apply(table, 4, write_deleted("acme", "a"))
    assert table.matcher("acme").match(fact()) == []
    assert (len(table), table.tenants()) == (1, ["other"])


def test_a_subscription_that_can_no_longer_be_read_goes_on_as_it_was(table: SubscriptionsTable) -> None:
    """The last thing understood, in view of readiness: to forget it would lose its facts in silence."""
    apply(table, 0, wire.write(subscription("a")))
    table.apply(0, 1, b"acme\x1fa", b'{"of": "tomorrow"}', ())
    assert table.get("acme", "a") == subscription("a")
    assert len(table.matcher("acme").match(fact())) == 1
    assert [row.key for row in table.unreadable.values()] == ["acme/a"]


def test_answers_outlive_a_deletion_within_a_bound(table: SubscriptionsTable) -> None:
    answers = (Answer("k", "d", 1, "204"),)
    apply(table, 0, wire.write(subscription("a"), answers))
    assert table.answers("acme", "a") == answers
    apply(table, 1, write_deleted("acme", "a", answers))
    assert (table.get("acme", "a"), table.answers("acme", "a"), len(table)) == (None, answers, 0)
    apply(table, 2, wire.write(subscription("a")))
    assert table.answers("acme", "a") == ()
    apply(table, 3, write_deleted("acme", "a", answers))
    for number in range(GONE_MAX):
        apply(table, 4 + number, write_deleted("acme", f"b{number}", answers))
    assert table.answers("acme", "a") == ()
    assert table.answers("acme", "b0") == answers


def test_a_deletion_without_answers_leaves_nothing_behind(table: SubscriptionsTable) -> None:
    apply(table, 0, write_deleted("acme", "a", (Answer("k", "d", 1, "204"),)))
    apply(table, 1, write_deleted("acme", "a"))
    assert table.answers("acme", "a") == ()


def test_a_log_made_anew_is_forgotten(table: SubscriptionsTable) -> None:
    apply(table, 5, wire.write(subscription("a")))
    apply(table, 6, write_deleted("acme", "b", (Answer("k", "d", 1, "204"),)))
    matcher = table.matcher("acme")
    table.reset(0)
    assert (len(table), table.offset(0), table.answers("acme", "b")) == (0, 0, ())
    assert table.matcher("acme") is not matcher
    assert table.matcher("acme").match(fact()) == []


def test_records_come_back_as_they_went_in_and_say_nothing_of_secrets() -> None:
    given = replace(subscription("a", tenant="ten ant"), previous_secret="sealed too", previous_secret_until_ms=7)
    answers = (Answer("k", "d", 1, "t"), Answer("k2", "d", 2, ""))
    record = wire.write(given, answers)
    assert record.key == b"ten ant\x1fa"
    assert wire.read(record.key, record.value, record.headers) == wire.Stored("ten ant", "a", given, answers)
    gone = write_deleted("ten ant", "a", answers)
    assert gone.value is None
    assert wire.read(gone.key, gone.value, gone.headers) == wire.Stored("ten ant", "a", None, answers)
    assert "sealed" not in repr(given)
