"""The life of a subscription, its record and its read model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.filters import Filter
from hub_app.domain.limits import DAY_MS, HOUR_MS
from hub_app.domain.subscription import (
    BY_REQUEST,
    OVERLAP_MS_MAX,
    Draft,
    Subscription,
    Verification,
    WebhookSink,
    created,
    disabled,
    enabled,
    patched,
    rotated,
    signing_secrets,
    verification_failed,
    verified,
)
from hub_app.domain.subscription_json import MASK, from_record, to_public, to_record

T0 = 1_767_323_045_678
DRAFT = Draft(
    name="loans",
    event_types=("loan.*",),
    origin=("lender",),
    filters=(Filter(operator="NumberInRange", key="data.n", values=((1, 2.5),)),),
    sink=WebhookSink(url="https://x.example/in", headers=(("X-Env", "prod"), ("Authorization", "Bearer tops3cret"))),
    destination="https://x.example/in",
)


def new(**changes: Any) -> Subscription:
    return created(replace(DRAFT, **changes), id="sub_1", tenant="acme", secret="sealed-one", now_ms=T0)


PENDING = new()
ACTIVE = verified(PENDING, now_ms=T0 + 1, enable=False)
PAUSED = disabled(ACTIVE, reason="failing", now_ms=T0 + 2)
PENDING_OFF = new(enabled=False)


def draft_of(one: Subscription, **changes: Any) -> Draft:
    names = ("name", "event_types", "origin", "filters", "sink", "destination", "enabled")
    return replace(Draft(**{name: getattr(one, name) for name in names}), **changes)


def moved(one: Subscription) -> Draft:
    return draft_of(one, sink=replace(one.sink, url="https://y.example/"), destination="https://y.example/")


# -- life --------------------------------------------------------------------------------------------------------------
def test_created_waits_for_its_probe() -> None:
    assert (PENDING.enabled, PENDING.verification_state, PENDING.receives) == (True, Verification.PENDING, False)
    assert PENDING.revision == 1
    assert PENDING.created_at_ms == PENDING.updated_at_ms == PENDING.enabled_at_ms == PENDING.inactive_since_ms == T0
    assert (PENDING.disabled_reason, PENDING.disabled_at_ms) == (None, None)


def test_created_disabled_says_by_whom() -> None:
    assert (PENDING_OFF.enabled, PENDING_OFF.disabled_reason, PENDING_OFF.disabled_at_ms) == (False, BY_REQUEST, T0)


STATES = {"pending": PENDING, "active": ACTIVE, "paused": PAUSED, "pending and off": PENDING_OFF}
STEPS: dict[str, Callable[[Subscription], Subscription]] = {
    "verified": lambda one: verified(one, now_ms=T0 + 9, enable=False),
    "verified by request": lambda one: verified(one, now_ms=T0 + 9, enable=True),
    "not verified": verification_failed,
    "disabled": lambda one: disabled(one, reason="other", now_ms=T0 + 9),
    "enabled": lambda one: enabled(one, now_ms=T0 + 9),
    "moved": lambda one: patched(one, moved(one), now_ms=T0 + 9),
    "renamed": lambda one: patched(one, draft_of(one, name="other"), now_ms=T0 + 9),
    "patched off": lambda one: patched(one, draft_of(one, enabled=False), now_ms=T0 + 9),
    "patched on": lambda one: patched(one, draft_of(one, enabled=True), now_ms=T0 + 9),
    "rotated": lambda one: rotated(one, secret="two", overlap_ms=1, now_ms=T0 + 9),
}
# (enabled, active) after each step in each state, `=` where the very same object comes back.
TABLE = {
    "verified": {"pending": "E A", "active": "=", "paused": "=", "pending and off": "- A"},
    "verified by request": {"pending": "E A", "active": "E A", "paused": "E A", "pending and off": "E A"},
    "not verified": {"pending": "=", "active": "=", "paused": "=", "pending and off": "="},
    "disabled": {"pending": "- -", "active": "- A", "paused": "=", "pending and off": "="},
    "enabled": {"pending": "=", "active": "=", "paused": "E A", "pending and off": "E -"},
    "moved": {"pending": "E -", "active": "E -", "paused": "- -", "pending and off": "- -"},
    "renamed": {"pending": "E -", "active": "E A", "paused": "- A", "pending and off": "- -"},
    "patched off": {"pending": "- -", "active": "- A", "paused": "=", "pending and off": "="},
    "patched on": {"pending": "=", "active": "=", "paused": "E A", "pending and off": "E -"},
    "rotated": {"pending": "E -", "active": "E A", "paused": "- A", "pending and off": "- -"},
}


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("step", STEPS)
def test_every_step_in_every_state(step: str, state: str) -> None:
    before, wanted = STATES[state], TABLE[step][state]
    after = STEPS[step](before)
    if wanted == "=":
        assert after is before
        return
    is_active = after.verification_state is Verification.ACTIVE
    assert f"{'E' if after.enabled else '-'} {'A' if is_active else '-'}" == wanted
    assert after.revision == before.revision + 1
    assert after.updated_at_ms == T0 + 9
    assert after.created_at_ms == T0
    # Enabled and disabled say so consistently.
    assert (after.disabled_at_ms is None) is after.enabled is (after.disabled_reason is None)
    if after.enabled and not before.enabled:
        assert after.enabled_at_ms == T0 + 9
    # Inactive since it stopped receiving, not since it was last changed.
    if after.receives:
        assert after.inactive_since_ms is None
    elif before.receives:
        assert after.inactive_since_ms == T0 + 9
    else:
        assert after.inactive_since_ms == before.inactive_since_ms


def test_disabling_never_touches_verification() -> None:
    for one in STATES.values():
        assert disabled(one, reason="failing", now_ms=T0 + 9).verification_state is one.verification_state


def test_the_first_reason_stays() -> None:
    again = disabled(PAUSED, reason="another", now_ms=T0 + 99)
    assert (again.disabled_reason, again.disabled_at_ms) == ("failing", T0 + 2)


def test_a_verification_by_request_makes_the_past_void() -> None:
    """Also of one that was enabled and active: its streak of failures is cleared."""
    assert verified(ACTIVE, now_ms=T0 + 9, enable=True).enabled_at_ms == T0 + 9
    assert verified(PENDING, now_ms=T0 + 9, enable=False).enabled_at_ms == T0


def test_a_change_of_the_rest_of_the_sink_keeps_it_verified() -> None:
    changed = patched(ACTIVE, draft_of(ACTIVE, sink=replace(ACTIVE.sink, timeout_ms=5, headers=())), now_ms=T0 + 9)
    assert changed.receives and changed.sink.timeout_ms == 5


def test_moved_and_disabled_at_once() -> None:
    changed = patched(ACTIVE, replace(moved(ACTIVE), enabled=False), now_ms=T0 + 9)
    assert (changed.enabled, changed.verification_state) == (False, Verification.PENDING)
    assert changed.revision == ACTIVE.revision + 1


# -- secrets -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("overlap_ms", "at_ms", "expected"),
    [
        (DAY_MS, 0, ("two", "sealed-one")),
        (DAY_MS, DAY_MS - 1, ("two", "sealed-one")),
        (DAY_MS, DAY_MS, ("two",)),
        (1, 0, ("two", "sealed-one")),
        (0, 0, ("two",)),
        (OVERLAP_MS_MAX, 7 * 24 * HOUR_MS - 1, ("two", "sealed-one")),
    ],
)
def test_rotation(overlap_ms: int, at_ms: int, expected: tuple[str, ...]) -> None:
    assert (
        signing_secrets(rotated(ACTIVE, secret="two", overlap_ms=overlap_ms, now_ms=T0), now_ms=T0 + at_ms) == expected
    )


def test_a_second_rotation_ends_the_oldest_at_once() -> None:
    twice = rotated(
        rotated(ACTIVE, secret="two", overlap_ms=DAY_MS, now_ms=T0), secret="three", overlap_ms=5, now_ms=T0 + 1
    )
    assert signing_secrets(twice, now_ms=T0 + 2) == ("three", "two")


@pytest.mark.parametrize("overlap_ms", [-1, OVERLAP_MS_MAX + 1])
def test_overlaps_outside_seven_days(overlap_ms: int) -> None:
    with pytest.raises(ValueError, match="7 days"):
        rotated(ACTIVE, secret="two", overlap_ms=overlap_ms, now_ms=T0)


def test_before_a_rotation_one_secret() -> None:
    assert signing_secrets(ACTIVE, now_ms=T0) == ("sealed-one",)


# -- record and read model ---------------------------------------------------------------------------------------------
instants = st.integers(0, 4 * 10**12)
optional_instants = st.one_of(st.none(), instants)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
filters = st.builds(
    Filter,
    operator=st.just("StringIn"),
    key=st.just("subject"),
    values=st.lists(texts, min_size=1, max_size=3).map(tuple),
)
subscriptions = st.builds(
    Subscription,
    id=texts,
    tenant=texts,
    name=texts,
    event_types=st.lists(texts, max_size=3).map(tuple),
    origin=st.lists(texts, max_size=3).map(tuple),
    filters=st.lists(filters, max_size=3).map(tuple),
    sink=st.builds(
        WebhookSink,
        url=texts,
        headers=st.dictionaries(texts, texts, max_size=3).map(lambda d: tuple(d.items())),
        timeout_ms=instants,
    ),
    destination=texts,
    enabled=st.booleans(),
    verification_state=st.sampled_from(Verification),
    disabled_reason=st.one_of(st.none(), texts),
    disabled_at_ms=optional_instants,
    enabled_at_ms=instants,
    inactive_since_ms=optional_instants,
    created_at_ms=instants,
    updated_at_ms=instants,
    revision=instants,
    secret=st.just("sealed-A"),
    previous_secret=st.one_of(st.none(), st.just("sealed-B")),
    previous_secret_until_ms=optional_instants,
)


@given(subscriptions)
def test_record_round_trip(one: Subscription) -> None:
    assert from_record(orjson.loads(orjson.dumps(to_record(one)))) == one
    assert from_record(json.loads(json.dumps(to_record(one))) | {"of a newer version": 1}) == one


@given(subscriptions)
def test_secrets_leave_through_the_record_alone(one: Subscription) -> None:
    for shown in (repr(one), str(one), json.dumps(to_public(one))):
        assert "sealed-" not in shown
    assert "sealed-A" in json.dumps(to_record(one))


@pytest.mark.parametrize("one", STATES.values(), ids=STATES)
def test_records_of_every_state(one: Subscription) -> None:
    assert from_record(to_record(one)) == one


@pytest.mark.parametrize("name", sorted(set(to_record(ACTIVE)) - {"origin"}))
@pytest.mark.parametrize("value", [b"", object(), 1.5, [1], {"type": "sqs"}])
def test_records_that_are_none(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_record(to_record(ACTIVE) | {name: value})


@pytest.mark.parametrize(
    "change",
    [
        *[{name: None} for name in ("id", "tenant", "sink", "enabled", "revision", "secret", "verification_state")],
        {"revision": True},
        {"enabled": 1},
        {"verification_state": "unknown"},
        {"origin": "lender"},
        {"sink": {"type": "webhook", "url": "x", "headers": [], "timeout_ms": 1}},
        {"sink": {"type": "webhook", "url": "x", "headers": {"a": 1}, "timeout_ms": 1}},
        {"filters": [{"operatorType": "Unknown", "key": "a"}]},
    ],
)
def test_more_records_that_are_none(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        from_record(to_record(ACTIVE) | change)


def test_an_empty_record_is_none() -> None:
    with pytest.raises(ValueError, match="id"):
        from_record({})


def test_the_read_model() -> None:
    assert to_public(PAUSED) == {
        "id": "sub_1",
        "tenant": "acme",
        "name": "loans",
        "event_types": ["loan.*"],
        "origin": ["lender"],
        "filters": [{"operatorType": "NumberInRange", "key": "data.n", "values": [[1, 2.5]]}],
        "sink": {
            "type": "webhook",
            "url": "https://x.example/in",
            "headers": {"X-Env": "prod", "Authorization": MASK},
            "timeout_ms": 10_000,
        },
        "enabled": False,
        "verification_state": "active",
        "disabled_reason": "failing",
        "disabled_at": "2026-01-02T03:04:05.680Z",
        "created_at": "2026-01-02T03:04:05.678Z",
        "updated_at": "2026-01-02T03:04:05.680Z",
        "revision": 3,
        "destination": "https://x.example/in",
    }


@pytest.mark.parametrize("name", ["Authorization", "X-Api-Key", "x-token", "Cookie", "X-Client-Secret", "X-Password"])
def test_headers_that_look_like_credentials_are_masked(name: str) -> None:
    one = new(sink=WebhookSink(url="https://x", headers=((name, "tops3cret"),)))
    assert "tops3cret" not in json.dumps(to_public(one)) + repr(one)
