"""Requests judged: every problem at once, by pointer."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.drafts import SINKS, parse_draft, parse_patch
from hub_app.domain.filters import FieldProblem, Filter
from hub_app.domain.subscription import Draft, Subscription, WebhookSink, created, patched, rotated, verified
from hub_app.domain.subscription_json import to_public

URL = "https://crm.example.com/in"
BODY: dict[str, Any] = {
    "name": "loans to crm",
    "event_types": ["loan_application.*"],
    "origin": ["lender"],
    "filters": [],
    "sink": {"type": "webhook", "url": URL, "headers": {"X-Env": "prod"}, "timeout_ms": 10_000},
    "enabled": True,
}


def check_url(url: str) -> tuple[str, str]:
    return (url.lower(), "") if url.lower().startswith("https://") else ("", "must be https")


def judge(obj: object) -> Draft | tuple[FieldProblem, ...]:
    return parse_draft(obj, check_url=check_url)


def with_sink(**changes: Any) -> dict[str, Any]:
    return BODY | {"sink": BODY["sink"] | changes}


def without(name: str, body: dict[str, Any] = BODY) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def test_the_example_of_the_documentation() -> None:
    assert judge(BODY) == Draft(
        name="loans to crm",
        event_types=("loan_application.*",),
        origin=("lender",),
        filters=(),
        sink=WebhookSink(url=URL, headers=(("X-Env", "prod"),), timeout_ms=10_000),
        destination=URL,
    )


def test_what_may_be_left_out() -> None:
    draft = judge({"name": "n", "event_types": ["*"], "sink": {"type": "webhook", "url": "HTTPS://x.example/"}})
    assert draft == Draft(
        name="n",
        event_types=("*",),
        origin=(),
        filters=(),
        sink=WebhookSink(url="https://x.example/", headers=(), timeout_ms=10_000),
        destination="https://x.example/",
        enabled=True,
        verify=True,
    )


def test_nulls_where_they_mean_none() -> None:
    draft = judge(BODY | {"origin": None, "filters": None} | with_sink(headers=None, timeout_ms=None))
    assert isinstance(draft, Draft) and draft.sink.timeout_ms == 10_000 and draft.sink.headers == ()


def test_flags_filters_and_repeats() -> None:
    filters = [{"operatorType": "IsNotNull", "key": "subject"}]
    draft = judge(
        BODY
        | {
            "enabled": False,
            "verify": False,
            "filters": filters,
            "event_types": ["b.c", "a.b", "b.c"],
            "origin": ["x", "x"],
        }
    )
    assert isinstance(draft, Draft)
    assert (draft.enabled, draft.verify) == (False, False)
    assert draft.filters == (Filter(operator="IsNotNull", key="subject", values=()),)
    assert (draft.event_types, draft.origin) == (("b.c", "a.b"), ("x",))


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        (None, [""]),
        ([], [""]),
        ("x", [""]),
        ({}, ["/sink", "/name", "/event_types"]),
        (BODY | {"id": "x", "a/b": 1, "c~d": 1}, ["/id", "/a~1b", "/c~0d"]),
        *[(BODY | {"name": name}, ["/name"]) for name in ["", " ", None, 5, "x" * 201, "a\nb", "\x7f", "\ud800"]],
        *[(BODY | {"event_types": types}, ["/event_types"]) for types in [[], None, "a.b", {}, ["a.b"] * 101]],
        (BODY | {"event_types": ["a.b", "", "lo*.x", 5]}, [f"/event_types/{i}" for i in (1, 2, 3)]),
        *[(BODY | {"origin": origin}, ["/origin"]) for origin in ["lender", {}, ["x"] * 101]],
        (BODY | {"origin": ["ok", "", "a\nb", 5, "é" * 513, "\ud800"]}, [f"/origin/{i}" for i in (1, 2, 3, 4, 5)]),
        (BODY | {"filters": {}}, ["/filters"]),
        (BODY | {"filters": [{"operatorType": "x", "key": "subject"}]}, ["/filters/0/operatorType"]),
        *[(BODY | {flag: value}, [f"/{flag}"]) for flag in ("enabled", "verify") for value in (None, 1, "true")],
        *[(BODY | {"sink": sink}, ["/sink"]) for sink in (None, [], "https://x")],
        *[(BODY | {"sink": {"type": kind}}, ["/sink/type"]) for kind in (None, "smtp", "Webhook", 5, ["webhook"])],
        (BODY | {"sink": {"type": "webhook"}}, ["/sink/url"]),
        (with_sink(url=5), ["/sink/url"]),
        (with_sink(url="http://x.example/"), ["/sink/url"]),
        (with_sink(method="PUT"), ["/sink/method"]),
        *[(with_sink(timeout_ms=ms), ["/sink/timeout_ms"]) for ms in (0, 99, 10_001, -1, 1.5, "5", True)],
        *[(with_sink(headers=headers), ["/sink/headers"]) for headers in ([], "x", {f"x{i}": "v" for i in range(33)})],
        (with_sink(headers={"Host": "x", "a b": "x", "ok": "v"}), ["/sink/headers/Host", "/sink/headers/a b"]),
        (with_sink(headers={"X-A": "1", "x-a": "2"}), ["/sink/headers/x-a"]),
        (with_sink(headers={"X-A": 1, "X-B": None, "X-C": "a\r\nb"}), [f"/sink/headers/X-{c}" for c in "ABC"]),
        (with_sink(headers={f"x{i}": "v" * 2_000 for i in range(5)}), ["/sink/headers"]),
        (with_sink(headers={"Authorization": "***"}), ["/sink/headers/Authorization"]),
        (
            {
                "nme": "x",
                "event_types": [],
                "sink": {"type": "webhook", "url": "ftp://x", "colour": 1},
                "enabled": "no",
            },
            ["/nme", "/sink/colour", "/sink/url", "/name", "/event_types", "/enabled"],
        ),
    ],
)
def test_refused_with_every_problem(body: object, pointers: list[str]) -> None:
    problems = judge(body)
    assert not isinstance(problems, Draft)
    assert [one.pointer for one in problems] == pointers
    assert all(one.detail for one in problems)


def test_at_the_limits() -> None:
    draft = judge(
        {
            "name": "x" * 200,
            "event_types": [f"r{i}.e" for i in range(100)],
            "origin": [f"s{i}" for i in range(99)] + ["é" * 512],
            "sink": {"type": "webhook", "url": URL, "headers": {f"x{i}": "" for i in range(32)}, "timeout_ms": 100},
        }
    )
    assert isinstance(draft, Draft)


def test_a_mask_is_refused_only_where_answers_show_one() -> None:
    assert isinstance(judge(with_sink(headers={"X-Env": "***"})), Draft)


@pytest.mark.parametrize("kind", [kind for kind, parse in SINKS.items() if parse is None])
def test_sinks_that_are_known_and_not_built(kind: str) -> None:
    (problem,) = judge(BODY | {"sink": {"type": kind, "anything": 1}})  # type: ignore[misc]
    assert problem == FieldProblem("/sink/type", f"{kind}: not built in this version; use webhook or queue")


def test_the_sinks_of_the_schema() -> None:
    assert list(SINKS) == ["webhook", "queue", "sqs", "eventbridge", "rabbitmq", "kafka"]
    assert [kind for kind, parse in SINKS.items() if parse] == ["webhook", "queue"]


# -- changes -----------------------------------------------------------------------------------------------------------
def subscription(**changes: Any) -> Subscription:
    draft = judge(BODY | changes)
    assert isinstance(draft, Draft)
    made = created(draft, id="sub_1", tenant="acme", secret="sealed", now_ms=1_000)
    return verified(made, now_ms=2_000, enable=False)


def change(current: Subscription, obj: object, **options: Any) -> Subscription:
    draft = parse_patch(obj, current, check_url=check_url, **options)
    assert isinstance(draft, Draft), draft
    return patched(current, draft, now_ms=5_000)


def test_nothing_asked_changes_nothing() -> None:
    current = subscription()
    assert change(current, {}) is current
    assert change(current, {"name": current.name, "sink": {"url": URL}}) is current
    assert change(current, {"sink": {}}) is current


def test_what_was_read_and_is_writable_may_be_sent_back() -> None:
    current = subscription(**with_sink(headers={"Authorization": "Bearer x", "X-Env": "prod"}))
    shown = {name: to_public(current)[name] for name in ("name", "event_types", "origin", "filters", "sink", "enabled")}
    assert change(current, json.loads(json.dumps(shown))) is current


def test_each_field_by_itself() -> None:
    current = subscription()
    assert change(current, {"name": "other"}).name == "other"
    assert change(current, {"event_types": ["*"]}).event_types == ("*",)
    assert change(current, {"origin": None}).origin == ()
    assert change(current, {"filters": [{"operatorType": "IsNotNull", "key": "a"}]}).filters[0].key == "a"
    assert change(current, {"enabled": False}).enabled is False
    changed = change(current, {"sink": {"timeout_ms": 500}})
    assert changed.sink == WebhookSink(url=URL, headers=(("X-Env", "prod"),), timeout_ms=500)
    assert changed.receives


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"X-New": "1"}, {"Authorization": "Bearer x", "X-Env": "prod", "X-New": "1"}),
        ({"X-Env": None}, {"Authorization": "Bearer x"}),
        ({"x-env": "test"}, {"Authorization": "Bearer x", "x-env": "test"}),
        ({"Authorization": "***"}, {"Authorization": "Bearer x", "X-Env": "prod"}),
        ({"authorization": "***"}, {"Authorization": "Bearer x", "X-Env": "prod"}),
        ({"Authorization": "Bearer y"}, {"X-Env": "prod", "Authorization": "Bearer y"}),
        ({"Unknown": None}, {"Authorization": "Bearer x", "X-Env": "prod"}),
    ],
)
def test_headers_are_merged(asked: dict[str, Any], expected: dict[str, str]) -> None:
    current = subscription(**with_sink(headers={"Authorization": "Bearer x", "X-Env": "prod"}))
    assert dict(change(current, {"sink": {"headers": asked}}).sink.headers) == expected


def test_all_headers_go_by_null() -> None:
    assert change(subscription(), {"sink": {"headers": None}}).sink.headers == ()


@pytest.mark.parametrize(
    ("asked", "pointers"),
    [
        ([], [""]),
        ({"verify": True}, ["/verify"]),
        ({"id": "x", "revision": 5}, ["/id", "/revision"]),
        ({"name": None}, ["/name"]),
        ({"enabled": None}, ["/enabled"]),
        ({"sink": None}, ["/sink"]),
        ({"sink": {"type": "queue"}}, ["/sink/type"]),
        ({"sink": {"url": "http://x"}}, ["/sink/url"]),
        ({"sink": {"headers": {"X-Token": "***"}}}, ["/sink/headers/X-Token"]),
        ({"sink": {"headers": {"Host": "x"}}}, ["/sink/headers/Host"]),
        ({"sink": {"headers": 5}}, ["/sink/headers"]),
    ],
)
def test_refused_changes(asked: object, pointers: list[str]) -> None:
    problems = parse_patch(asked, subscription(), check_url=check_url)
    assert not isinstance(problems, Draft)
    assert [one.pointer for one in problems] == pointers


def test_a_lowered_bound_does_not_refuse_every_change() -> None:
    changed = change(subscription(), {"name": "other"}, timeout_ms_max=3_000)
    assert changed.sink.timeout_ms == 3_000 and changed.receives


def test_secrets_are_not_touched_by_changes() -> None:
    current = rotated(subscription(), secret="newer", overlap_ms=1_000, now_ms=3_000)
    changed = change(current, {"sink": {"url": "https://other.example/"}})
    assert (changed.secret, changed.previous_secret) == ("newer", "sealed")


# -- anything at all ---------------------------------------------------------------------------------------------------
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(sorted(BODY)), st.text(max_size=6)), inner),
    ),
    max_leaves=10,
)
bodies = st.fixed_dictionaries(
    {},
    optional={
        **{name: st.one_of(json_values, st.just(BODY[name])) for name in BODY},
        "sink": st.one_of(
            json_values,
            st.dictionaries(st.sampled_from(["type", "url", "headers", "timeout_ms"]), json_values).map(
                lambda d: BODY["sink"] | d
            ),
        ),
    },
)


@given(st.one_of(json_values, bodies))
def test_any_json_is_judged(body: object) -> None:
    for judged in (judge(body), parse_patch(body, subscription(), check_url=check_url)):
        if not isinstance(judged, Draft):
            assert judged and all(one.pointer == "" or one.pointer.startswith("/") for one in judged)
