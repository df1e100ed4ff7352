"""The queue as a sink: what a request may say, how it is kept, what of it may change."""

from __future__ import annotations

from typing import Any

import pytest

from hub_app.domain.drafts import parse_draft, parse_patch
from hub_app.domain.fact import Fact
from hub_app.domain.limits import DAY_MS, HOUR_MS
from hub_app.domain.matching import Index, explain
from hub_app.domain.queue_sinks import QueueRules, duration_ms, duration_text
from hub_app.domain.subscription import Draft, QueueSink, Subscription, Verification, created, patched
from hub_app.domain.subscription_json import from_record, to_public, to_record
from tests.fakes.facts import fact

SINK = {"type": "queue", "topic": "orders", "name": "worker/ñ"}
RULES = QueueRules(lock_ms_min=60_000, ttl_ms_max=6 * DAY_MS)


def judge(rules: QueueRules = RULES, **sink: Any) -> Any:
    body = {"name": "n", "event_types": ["*"], "sink": SINK | sink}
    return parse_draft(body, check_url=lambda text: (text, ""), queues=rules)


def made(**sink: Any) -> Subscription:
    draft = judge(**sink)
    assert isinstance(draft, Draft), draft
    return created(draft, id="sub_q", tenant="t", secret="sealed", now_ms=5)


def test_defaults_and_destination() -> None:
    draft = judge()
    assert draft.sink == QueueSink(
        topic="orders", name="worker/ñ", lock_ms=60_000, deliveries_max=10, ttl_ms=6 * DAY_MS
    )
    assert draft.destination == "queue:orders/worker%2F%C3%B1"


@pytest.mark.parametrize(
    ("sink", "pointer"),
    [
        ({"topic": ""}, "/sink/topic"),
        ({"topic": None}, "/sink/topic"),
        ({"topic": "a\x1fb"}, "/sink/topic"),
        ({"topic": "\ud800"}, "/sink/topic"),
        ({"name": "ñ" * 129}, "/sink/name"),
        ({"name": 7}, "/sink/name"),
        ({"url": "https://x"}, "/sink/url"),
        *[({"receiveLockDurationInSeconds": v}, "/sink/receiveLockDurationInSeconds") for v in (59, 301, "60", True)],
        *[({"maxDeliveryCount": v}, "/sink/maxDeliveryCount") for v in (0, 11, 1.5, "3", False)],
        *[
            ({"eventTimeToLive": v}, "/sink/eventTimeToLive")
            for v in ("PT59S", "P6DT1S", "7d", "P1W", "P", "PT", "", 60, "P1D ", "-P1D")
        ],
    ],
)
def test_refused(sink: dict[str, Any], pointer: str) -> None:
    assert [problem.pointer for problem in judge(**sink)] == [pointer]


@pytest.mark.parametrize("lock_s", [60, 300])
def test_the_ends_of_ranges_are_inside(lock_s: int) -> None:
    sink = made(receiveLockDurationInSeconds=lock_s, maxDeliveryCount=1, eventTimeToLive=f"PT{lock_s}S").sink
    assert isinstance(sink, QueueSink)
    assert (sink.lock_ms, sink.deliveries_max, sink.ttl_ms) == (lock_s * 1000, 1, lock_s * 1000)


def test_a_deployment_for_tests_may_allow_short_locks() -> None:
    assert isinstance(judge(QueueRules(lock_ms_min=1_000), receiveLockDurationInSeconds=1), Draft)


def test_a_deployment_that_keeps_events_for_less_than_a_day_has_no_queues() -> None:
    assert [problem.pointer for problem in judge(QueueRules(ttl_ms_max=-HOUR_MS))] == ["/sink/eventTimeToLive"]


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P7D", 7 * DAY_MS), ("PT1H", HOUR_MS), ("P1DT2H3M4S", 93_784_000), ("PT90S", 90_000), ("P0DT60S", 60_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert duration_ms(text) == ms
    assert duration_ms(duration_text(ms)) == ms


def test_a_queue_is_active_at_once_and_survives_its_record() -> None:
    subscription = made(eventTimeToLive="P1DT12H")
    assert subscription.receives and subscription.inactive_since_ms is None
    assert from_record(to_record(subscription)) == subscription
    assert to_public(subscription)["sink"] == {
        **SINK,
        "receiveLockDurationInSeconds": 60,
        "maxDeliveryCount": 10,
        "eventTimeToLive": "P1DT12H",
    }


def test_numbers_may_change_and_the_address_may_not() -> None:
    subscription = made()
    ask = {"check_url": lambda text: (text, ""), "queues": RULES}
    draft = parse_patch({"sink": {"maxDeliveryCount": 2}}, subscription, **ask)  # type: ignore[arg-type]
    assert isinstance(draft, Draft)
    after = patched(subscription, draft, now_ms=6)
    assert isinstance(after.sink, QueueSink) and after.sink.deliveries_max == 2
    assert after.verification_state is Verification.ACTIVE and after.receives
    for change in ({"topic": "x"}, {"name": "x"}, {"type": "webhook", "url": "https://x"}):
        problems = parse_patch({"sink": change}, subscription, **ask)  # type: ignore[arg-type]
        assert not isinstance(problems, Draft)
        assert [problem.pointer for problem in problems] == [f"/sink/{next(iter(change))}"]


def test_a_queue_receives_what_has_its_topic() -> None:
    subscription = made()
    mine, other = fact(1)._replace(topic="orders"), fact(2)._replace(topic="invoices")
    index = Index("t", [subscription])
    matched: dict[int, bool] = {one.seq: bool(index.match(one)) for one in (mine, other)}
    assert matched == {1: True, 2: False}
    assert explain(subscription, mine) is None
    mismatch = explain(subscription, other)
    assert mismatch is not None and mismatch.condition == "topic"


def test_a_published_type_is_matched_whole() -> None:
    draft = parse_draft(
        {"name": "n", "event_types": ["com.example.made.v1"], "sink": SINK}, check_url=lambda text: (text, "")
    )
    assert isinstance(draft, Draft)
    subscription = created(draft, id="sub_q", tenant="t", secret="", now_ms=5)
    published: Fact = fact(1)._replace(topic="orders", event_type="com.example.made.v1")
    assert Index("t", [subscription]).match(published) == [subscription]
