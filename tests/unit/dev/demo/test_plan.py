"""The demo's plan: reproducible, of every kind, and deserving what it says it deserves."""

from __future__ import annotations

from collections import Counter

import pytest

from hub_app.dev.demo.plan import COLLISION, FAULTS, TENANTS, WISHES, Kind, Plan, webhook_id
from hub_app.dev.facts import headers, topic_of
from hub_app.domain.cloudevents import Accept, Drop, Quarantine, judge


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan("r1", 1_000)


def test_the_same_run_makes_the_same_plan(plan: Plan) -> None:
    assert Plan("r1", 1_000).records == plan.records
    assert Plan("r2", 1_000).records != plan.records


def test_how_many_of_each_kind(plan: Plan) -> None:
    assert {kind: plan.count(kind) for kind in Kind} == {
        Kind.FACT: 1_000,
        Kind.DUPLICATE: 20,
        Kind.MALFORMED: 10,
        Kind.SYSTEM: 4,
    }


def test_each_record_deserves_what_is_planned(plan: Plan) -> None:
    for kind, fact, reason in plan.records:
        verdict = judge(topic_of(fact.source), headers(fact), fact.body, default_tenant=None)
        if kind is Kind.SYSTEM:
            assert isinstance(verdict, Drop)
        elif kind is Kind.MALFORMED and reason != COLLISION:
            assert isinstance(verdict, Quarantine)
            assert verdict.reason == reason
        else:
            assert isinstance(verdict, Accept)


def test_repeats_come_after_what_they_repeat(plan: Plan) -> None:
    seen: dict[str, bytes] = {}
    repeated = Counter[Kind]()
    for kind, fact, reason in plan.records:
        if kind is Kind.FACT:
            assert seen.setdefault(fact.id, fact.body) == fact.body
        elif kind is Kind.DUPLICATE or reason == COLLISION:
            assert (seen[fact.id] == fact.body) is (kind is Kind.DUPLICATE)
            repeated[kind] += 1
    assert repeated[Kind.DUPLICATE] == 20
    assert repeated[Kind.MALFORMED] >= 1


def test_small_plans_have_every_fault() -> None:
    reasons = {planned.reason for planned in Plan("r1", 200).records if planned.kind is Kind.MALFORMED}
    assert reasons == FAULTS.keys()


def test_what_is_expected_where(plan: Plan) -> None:
    expected = plan.expected()
    assert expected.keys() == {f"/{wish.manner}/{tenant}" for wish in WISHES for tenant in TENANTS}
    facts = [planned.fact for planned in plan.records if planned.kind is Kind.FACT]
    for tenant in TENANTS:
        own = {webhook_id(fact): fact for fact in facts if fact.tenant == tenant}
        assert expected[f"/good/{tenant}"] == own.keys()
        assert {own[event].resource for event in expected[f"/slow/{tenant}"]} == {"payment"}
        assert {own[event].resource for event in expected[f"/flaky/{tenant}"]} == {"loan_application"}
        assert {(own[event].resource, own[event].event) for event in expected[f"/dead/{tenant}"]} == {
            ("account", "closed")
        }


def test_a_suffix_goes_to_the_topics() -> None:
    plan = Plan("r1", 200, "-r1")
    assert plan.sources == ("ledger-r1", "lender-r1")
    assert {planned.fact.source for planned in plan.records} == set(plan.sources)
