"""Who receives a fact, and the first condition that fails for the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.drafts import parse_draft
from hub_app.domain.event_types import pattern_problem, patterns_for
from hub_app.domain.fact import Fact
from hub_app.domain.matching import Index, Mismatch, explain
from hub_app.domain.subscription import Draft, Subscription, created, disabled, verified


def fact(**changes: Any) -> Fact:
    base: dict[str, Any] = {
        "seq": 1,
        "tenant": "acme",
        "topic": "lender",
        "source": "lender",
        "id": "e1",
        "type": "studio.lerian.lender.loan.approved",
        "event_type": "loan.approved",
        "headers": (("ce-id", b"e1"), ("ce-subject", b"loan-7"), ("hub-tenant", b"acme")),
        "value": b'{"amount": 5}',
        "received_at_ms": 1,
    }
    return Fact(**(base | changes))


def subscription(*, id: str = "sub_1", tenant: str = "acme", active: bool = True, **changes: Any) -> Subscription:
    body = {
        "name": "n",
        "event_types": ["loan.approved"],
        "sink": {"type": "webhook", "url": "https://x.example/"},
    } | changes
    draft = parse_draft(body, check_url=lambda url: (url, ""))
    assert isinstance(draft, Draft), draft
    made = created(draft, id=id, tenant=tenant, secret="sealed", now_ms=1)
    return verified(made, now_ms=2, enable=False) if active else made


def received(fact: Fact, *subscriptions: Subscription) -> list[str]:
    return [one.id for one in Index(fact.tenant, subscriptions).match(fact)]


@pytest.mark.parametrize(
    ("pattern", "event_type", "matches"),
    [
        ("loan.approved", "loan.approved", True),
        ("loan.approved", "loan.Approved", False),
        ("loan.approved", "loan.approved.v2", False),
        ("loan.*", "loan.approved", True),
        ("loan.*", "loans.approved", False),
        ("*.approved", "loan.approved", True),
        ("*.approved", "loan.refused", False),
        ("*.*", "loan.approved", True),
        ("*", "loan.approved", True),
        # Published without a resource type: the whole ce-type, which `*` for a part does not take apart.
        ("*", "com.example.loan.approved", True),
        ("com.example.loan.approved", "com.example.loan.approved", True),
        ("*.*", "com.example.loan.approved", False),
        ("com.*", "com.example.loan.approved", False),
        ("*.approved", "com.example.loan.approved", False),
        ("Ping", "Ping", True),
        ("*.*", "Ping", False),
        ("*", "Ping", True),
        ("*", ".", True),
        ("*.*", ".", False),
    ],
)
def test_event_types(pattern: str, event_type: str, matches: bool) -> None:
    one, other = subscription(event_types=[pattern]), fact(event_type=event_type)
    assert received(other, one) == (["sub_1"] if matches else [])
    assert (explain(one, other) is None) is matches


@pytest.mark.parametrize(
    "pattern", ["*", "a.b", "a.*", "*.b", "*.*", "a", "a.b.c", "com.x.y.z", "é.ü", "a b.c", "x" * 512]
)
def test_patterns(pattern: str) -> None:
    assert pattern_problem(pattern) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "",
            ".",
            "a.",
            ".b",
            "a..b",
            "lo*.b",
            "a.b*",
            "**",
            "*a",
            "a.b.*",
            "*.b.c",
            "a\n",
            " a",
            "a ",
            "\x7f",
            "\ud800",
        ),
        *("x" * 513, None, 5, ["a.b"], "studio.lerian.lender.loan.approved"),
    ],
)
def test_refused_patterns(pattern: object) -> None:
    assert pattern_problem(pattern) is not None


def test_a_ce_type_is_answered_with_what_was_meant() -> None:
    problem = pattern_problem("studio.lerian.lender.loan.approved")
    assert problem == "is a ce-type: write loan.approved, and pin the origin lender"


ACTIVE = subscription()


@pytest.mark.parametrize(
    ("one", "other", "condition"),
    [
        (ACTIVE, fact(), None),
        (ACTIVE, fact(tenant="acme "), "tenant"),
        (ACTIVE, fact(tenant="Acme"), "tenant"),
        (disabled(ACTIVE, reason="failing", now_ms=3), fact(), "enabled"),
        (subscription(active=False), fact(), "verification_state"),
        (subscription(active=False, enabled=False), fact(), "enabled"),
        (ACTIVE, fact(event_type="loan.refused"), "event_types"),
        (subscription(origin=["lender"]), fact(), None),
        (subscription(origin=["other", "lender"]), fact(), None),
        (subscription(origin=["other"]), fact(), "origin"),
        (subscription(origin=["Lender"]), fact(), "origin"),
        (subscription(origin=[]), fact(), None),
        (subscription(filters=[{"operatorType": "StringIn", "key": "subject", "values": ["LOAN-7"]}]), fact(), None),
        (subscription(filters=[{"operatorType": "StringIn", "key": "subject", "values": ["x"]}]), fact(), "filters"),
        (subscription(filters=[{"operatorType": "NumberIn", "key": "data.amount", "values": [5]}]), fact(), None),
        (
            subscription(filters=[{"operatorType": "NumberIn", "key": "data.amount", "values": [5]}]),
            fact(headers=(("ce-datacontenttype", b"text/plain"),)),
            "filters",
        ),
        # The hub's own headers are no attributes.
        (subscription(filters=[{"operatorType": "IsNotNull", "key": "tenant"}]), fact(), "filters"),
        # All wrong at once: the first is told.
        (
            disabled(subscription(tenant="other", active=False, event_types=["a.b"]), reason="x", now_ms=3),
            fact(),
            "tenant",
        ),
    ],
)
def test_the_first_condition_that_fails(one: Subscription, other: Fact, condition: str | None) -> None:
    why = explain(one, other)
    assert (why.condition if why else None) == condition
    assert Index(other.tenant, [one]).match(other) == ([] if condition else [one])
    assert Index(one.tenant, [one]).match(other) == ([] if condition else [one])


def test_explanations_are_for_people() -> None:
    two = [{"operatorType": "IsNotNull", "key": "subject"}, {"operatorType": "IsNotNull", "key": "data.x"}]
    assert explain(subscription(filters=two), fact()) == Mismatch(
        "filters", "filter 1: IsNotNull on data.x does not hold"
    )
    assert explain(disabled(ACTIVE, reason="failing", now_ms=3), fact()) == Mismatch("enabled", "failing")
    assert explain(subscription(origin=["a", "b"]), fact()) == Mismatch("origin", "lender is none of a, b")


def test_a_subscription_with_several_patterns_receives_once_and_order_is_kept() -> None:
    ones = [
        subscription(id="sub_3", event_types=["*"]),
        subscription(id="sub_1", event_types=["loan.*", "*.approved", "loan.approved"]),
        subscription(id="sub_2", event_types=["loan.approved"]),
    ]
    assert received(fact(), *ones) == ["sub_3", "sub_1", "sub_2"]


def test_no_subscription_is_a_correct_answer() -> None:
    assert received(fact()) == []


def test_the_payload_is_parsed_once_for_all_and_only_if_asked() -> None:
    class Counted(bytes):
        parsed = 0

        def decode(self, *args: Any) -> str:  # type: ignore[override]
            Counted.parsed += 1
            return super().decode(*args)

    by_data = [{"operatorType": "NumberIn", "key": "data.amount", "values": [5]}]
    by_both = [*by_data, {"operatorType": "StringIn", "key": "subject", "values": ["x"]}]
    one = fact(value=Counted(b'{"amount": 5}'))
    assert received(one, subscription(filters=by_both), subscription(id="sub_2")) == ["sub_2"]
    assert Counted.parsed == 0
    assert len(received(one, *[subscription(id=f"sub_{i}", filters=by_data) for i in range(5)])) == 5
    assert Counted.parsed == 1


def test_attributes_that_are_not_utf8_do_not_break_matching() -> None:
    one = subscription(filters=[{"operatorType": "IsNotNull", "key": "subject"}])
    assert received(fact(headers=(("ce-subject", b"\xff"),)), one) == ["sub_1"]


def test_remembered_event_types_are_bounded() -> None:
    index = Index("acme", [subscription(event_types=["*"])])
    for i in range(2_000):
        assert len(index.match(fact(event_type=f"r{i}.e"))) == 1
    assert len(index._by_type) <= 256


parts = st.sampled_from(["a", "b", "*"])
patterns = st.one_of(st.builds("{}.{}".format, parts, parts), st.sampled_from(["*", "a", "a.b.c"]))
event_types = st.sampled_from(["a.a", "a.b", "b.a", "a", "b", "a.b.c", "c.c"])


@given(
    st.lists(
        st.tuples(
            st.lists(patterns, min_size=1, max_size=3),
            st.lists(st.sampled_from(["lender", "x"]), max_size=2),
            st.booleans(),
            st.booleans(),
            st.sampled_from(["acme", "other"]),
            st.sampled_from([[], [{"operatorType": "StringIn", "key": "subject", "values": ["loan-7"]}]]),
        ),
        max_size=8,
    ),
    event_types,
    st.sampled_from(["lender", "y"]),
    st.sampled_from([b"loan-7", b"other"]),
)
def test_match_is_what_explain_does_not_refuse(
    drawn: list[tuple[list[str], list[str], bool, bool, str, list[dict[str, Any]]]],
    event_type: str,
    source: str,
    subject: bytes,
) -> None:
    ones = [
        subscription(
            id=f"sub_{i}", event_types=types, origin=origin, active=active, enabled=on, tenant=tenant, filters=filters
        )
        for i, (types, origin, active, on, tenant, filters) in enumerate(drawn)
    ]
    one = fact(event_type=event_type, source=source, headers=(("ce-subject", subject),))
    index = Index("acme", ones)
    assert index.match(one) == [other for other in ones if explain(other, one) is None]
    assert index.match(one) == index.match(one)


@given(st.text(max_size=12))
def test_every_event_type_is_looked_up_under_patterns_that_may_be_asked_for(event_type: str) -> None:
    looked_up = patterns_for(event_type)
    assert event_type in looked_up and "*" in looked_up
    assert len(set(looked_up)) == len(looked_up) or "*" in event_type
