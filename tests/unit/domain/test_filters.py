"""The 19 operators: what holds, what a missing key gives, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.domain.filters import (
    MISSING,
    OPERATORS,
    FieldProblem,
    Filter,
    compile_filter,
    compile_filters,
    parse_filters,
    payload_json,
    to_json,
)

ATTRIBUTES = {"subject": "Loan-7", "priority": "5", "ratio": "-1.5e1", "urgent": "true", "empty": ""}
DATA = {
    "n": 5,
    "f": 5.5,
    "s": "Straße",
    "t": True,
    "z": None,
    "list": [1],
    "obj": {"deep": {"er": "x"}, "": 1},
    "five": "5",
    "nan": float("nan"),
}


def parse(*items: Any) -> tuple[Filter, ...]:
    parsed = parse_filters(list(items))
    assert all(isinstance(one, Filter) for one in parsed), parsed
    return parsed  # type: ignore[return-value]


def item(operator: str, key: str, *values: Any) -> dict[str, Any]:
    made: dict[str, Any] = {"operatorType": operator, "key": key}
    field = OPERATORS[operator].field
    if field != "none":
        made[field] = values[0] if field == "value" else list(values)
    return made


def holds(operator: str, key: str, *values: Any, data: object = DATA) -> bool:
    return compile_filters(parse(item(operator, key, *values)))(ATTRIBUTES, lambda: data)


EXAMPLES: dict[str, tuple[Any, ...]] = {
    "number": (5,),
    "range": ([1, 9],),
    "bool": (True,),
    "string": ("x",),
    "null": (),
}
MATCH_WHEN_MISSING = {"NumberNotIn", "StringNotIn", "NumberNotInRange", "IsNullOrUndefined"}


def test_there_are_nineteen() -> None:
    assert len(OPERATORS) == 19


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("key", ["nothing", "data.nothing", "data.z", "data.obj.nothing", "data.s.deep", "data.list.0"])
def test_a_missing_key(operator: str, key: str) -> None:
    expected = operator in MATCH_WHEN_MISSING
    assert holds(operator, key, *EXAMPLES[OPERATORS[operator].type]) is expected


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("data", [MISSING, None, 5, "text", [1], {}])
def test_a_payload_that_has_no_keys(operator: str, data: object) -> None:
    came = holds(operator, "data.n", *EXAMPLES[OPERATORS[operator].type], data=data)
    assert came is (operator in MATCH_WHEN_MISSING)


@pytest.mark.parametrize("operator", [name for name, one in OPERATORS.items() if one.type != "null"])
def test_a_value_of_another_type_is_missing(operator: str) -> None:
    kind = OPERATORS[operator].type
    others = {
        "number": ["data.five", "data.t", "data.list", "data.obj", "data.nan", "subject", "empty", "urgent"],
        "range": ["data.five", "data.t", "data.list", "data.obj", "data.nan", "subject"],
        "bool": ["data.n", "data.s", "data.list", "subject", "priority"],
        "string": ["data.n", "data.t", "data.list", "data.obj"],
    }[kind]
    for key in others:
        assert holds(operator, key, *EXAMPLES[kind]) is (operator in MATCH_WHEN_MISSING), key


@pytest.mark.parametrize(
    ("operator", "key", "values", "expected"),
    [
        ("NumberIn", "data.n", (4, 5), True),
        ("NumberIn", "data.n", (5.0,), True),
        ("NumberIn", "data.n", (4, 6), False),
        ("NumberIn", "priority", (5,), True),
        ("NumberIn", "ratio", (-15,), True),
        ("NumberNotIn", "data.n", (4, 5), False),
        ("NumberNotIn", "data.n", (4, 6), True),
        ("NumberLessThan", "data.n", (5,), False),
        ("NumberLessThan", "data.n", (5.01,), True),
        ("NumberGreaterThan", "data.n", (5,), False),
        ("NumberGreaterThan", "data.n", (4.99,), True),
        ("NumberLessThanOrEquals", "data.n", (5,), True),
        ("NumberLessThanOrEquals", "data.n", (4,), False),
        ("NumberGreaterThanOrEquals", "data.n", (5,), True),
        ("NumberGreaterThanOrEquals", "data.n", (6,), False),
        ("NumberInRange", "data.n", ([5, 9],), True),
        ("NumberInRange", "data.n", ([1, 5],), True),
        ("NumberInRange", "data.n", ([1, 4.9], [5.1, 9]), False),
        ("NumberInRange", "data.n", ([5, 5],), True),
        ("NumberNotInRange", "data.n", ([1, 5],), False),
        ("NumberNotInRange", "data.n", ([1, 4.9], [5.1, 9]), True),
        ("NumberNotInRange", "data.n", ([1, 2], [4, 6]), False),
        ("BoolEquals", "data.t", (True,), True),
        ("BoolEquals", "data.t", (False,), False),
        ("BoolEquals", "urgent", (True,), True),
        ("StringIn", "data.s", ("x", "STRASSE"), True),
        ("StringIn", "subject", ("loan-7",), True),
        ("StringIn", "subject", ("loan",), False),
        ("StringIn", "empty", ("",), True),
        ("StringIn", "data.obj.deep.er", ("X",), True),
        ("StringNotIn", "subject", ("LOAN-7", "b"), False),
        ("StringNotIn", "subject", ("loan",), True),
        ("StringBeginsWith", "subject", ("x", "lOAN"), True),
        ("StringBeginsWith", "subject", ("oan",), False),
        ("StringNotBeginsWith", "subject", ("x", "loan"), False),
        ("StringNotBeginsWith", "subject", ("x", "oan"), True),
        ("StringEndsWith", "subject", ("-7",), True),
        ("StringEndsWith", "subject", ("-",), False),
        ("StringNotEndsWith", "subject", ("-7", "x"), False),
        ("StringNotEndsWith", "subject", ("-", "x"), True),
        ("StringContains", "subject", ("AN-",), True),
        ("StringContains", "subject", ("na",), False),
        ("StringNotContains", "subject", ("AN-", "x"), False),
        ("StringNotContains", "subject", ("na", "x"), True),
        ("IsNullOrUndefined", "data.z", (), True),
        ("IsNullOrUndefined", "data.n", (), False),
        ("IsNullOrUndefined", "data.list", (), False),
        ("IsNullOrUndefined", "data.obj", (), False),
        ("IsNullOrUndefined", "subject", (), False),
        ("IsNullOrUndefined", "empty", (), False),
        ("IsNotNull", "data.z", (), False),
        ("IsNotNull", "data.n", (), True),
        ("IsNotNull", "data.obj", (), True),
        ("IsNotNull", "empty", (), True),
    ],
)
def test_what_holds(operator: str, key: str, values: tuple[Any, ...], expected: bool) -> None:
    assert holds(operator, key, *values) is expected


@pytest.mark.parametrize(
    "text", ["5_0", " 5", "5 ", "0x10", "nan", "inf", "1e400", "05", "+5", "5.", ".5", "\u0665", "", "--5"]
)
def test_attributes_that_are_no_numbers(text: str) -> None:
    one = compile_filter(parse(item("NumberGreaterThanOrEquals", "x", -1e308))[0])
    assert one({"x": text}, lambda: MISSING) is False


@pytest.mark.parametrize(
    ("text", "number"), [("0", 0), ("-0", 0), ("12", 12), ("1.50", 1.5), ("2E2", 200), ("9" * 18, 10**18 - 1)]
)
def test_attributes_that_are_numbers(text: str, number: float) -> None:
    assert compile_filter(parse(item("NumberIn", "x", number))[0])({"x": text}, lambda: MISSING) is True


def test_every_filter_must_hold_and_attributes_are_asked_first() -> None:
    both = parse(item("NumberIn", "data.n", 5), item("StringIn", "subject", "other"))
    asked: list[int] = []

    def data() -> object:
        asked.append(1)
        return DATA

    assert compile_filters(both)(ATTRIBUTES, data) is False
    assert asked == []
    assert compile_filters(both)({"subject": "OTHER"}, data) is True
    assert compile_filters(both)({"subject": "other"}, lambda: {"n": 6}) is False
    assert compile_filters(())(ATTRIBUTES, data) is True


# -- refused -----------------------------------------------------------------------------------------------------------
ONE_OF = "must be one of " + ", ".join(OPERATORS)


@pytest.mark.parametrize(
    ("obj", "pointers"),
    [
        ({}, ["/filters"]),
        ("x", ["/filters"]),
        ([item("IsNotNull", "a")] * 26, ["/filters"]),
        ([None], ["/filters/0"]),
        ([[]], ["/filters/0"]),
        ([{}], ["/filters/0/operatorType", "/filters/0/key"]),
        ([{"operatorType": "stringIn", "key": "a", "values": ["x"]}], ["/filters/0/operatorType"]),
        ([{"operatorType": ["StringIn"], "key": "a"}], ["/filters/0/operatorType"]),
        ([item("StringIn", "a", "x") | {"more": 1, "a/b~c": 2}], ["/filters/0/more", "/filters/0/a~1b~0c"]),
        ([item("StringIn", "a", "x") | {"value": "x"}], ["/filters/0/value"]),
        ([item("NumberLessThan", "a", 1) | {"values": [1]}], ["/filters/0/values"]),
        ([item("IsNotNull", "a") | {"value": 1}], ["/filters/0/value"]),
        ([{"operatorType": "NumberIn", "key": "a", "value": 1}], ["/filters/0/value", "/filters/0/values"]),
        ([{"operatorType": "NumberIn", "key": "a"}], ["/filters/0/values"]),
        ([item("NumberIn", "a")], ["/filters/0/values"]),
        ([item("NumberIn", "a", *range(26))], ["/filters/0/values"]),
        ([item("NumberIn", "a", 1, "2", True, None, float("nan"))], [f"/filters/0/values/{i}" for i in (1, 2, 3, 4)]),
        ([item("NumberIn", "a", float("inf"))], ["/filters/0/values/0"]),
        ([item("NumberIn", "a", 2**63 - 1, 2**63, -(2**63))], ["/filters/0/values/1", "/filters/0/values/2"]),
        ([item("NumberInRange", "a", [1, 2**63])], ["/filters/0/values/0"]),
        ([item("StringIn", "a", "\ud800")], ["/filters/0/values/0"]),
        ([item("IsNotNull", "data.\ud800")], ["/filters/0/key"]),
        ([item("NumberLessThan", "a", "1")], ["/filters/0/value"]),
        ([{"operatorType": "NumberLessThan", "key": "a"}], ["/filters/0/value"]),
        (
            [item("NumberInRange", "a", [1, 2], [2, 1], [1], [1, 2, 3], 5)],
            [f"/filters/0/values/{i}" for i in (1, 2, 3, 4)],
        ),
        ([item("BoolEquals", "a", 1)], ["/filters/0/value"]),
        ([item("BoolEquals", "a", "true")], ["/filters/0/value"]),
        ([item("StringIn", "a", 1)], ["/filters/0/values/0"]),
        ([item("StringIn", "a", "x" * 513)], ["/filters/0/values/0"]),
        ([item("StringContains", "a", "")], ["/filters/0/values/0"]),
        ([item("StringNotBeginsWith", "a", "")], ["/filters/0/values/0"]),
        *[
            ([item("IsNotNull", key)], ["/filters/0/key"])
            for key in ["", "Subject", "a b", "a.b", "data", "data.", "data..a", "data.a.", "data." + "x" * 252, "é"]
        ],
        ([{"operatorType": "IsNotNull", "key": 7}], ["/filters/0/key"]),
        ([item("IsNotNull", "a"), {}, 5], ["/filters/1/operatorType", "/filters/1/key", "/filters/2"]),
    ],
)
def test_refused_with_every_problem(obj: object, pointers: list[str]) -> None:
    problems = parse_filters(obj)
    assert [one.pointer for one in problems if isinstance(one, FieldProblem)] == pointers
    assert len(problems) == len(pointers)


@pytest.mark.parametrize("obj", [None, []])
def test_no_filter(obj: object) -> None:
    assert parse_filters(obj) == ()


def test_at_the_limits() -> None:
    parsed = parse(*[item("StringIn", "a", *["x" * 512] * 25)] * 25)
    assert len(parsed) == 25 and len(parsed[0].values) == 25
    parse(item("IsNotNull", "data." + "x" * 251), item("StringIn", "a", ""), item("StringNotIn", "a", ""))


def test_the_operator_that_takes_the_other_field_is_said() -> None:
    (problem, _) = parse_filters([{"operatorType": "NumberIn", "key": "a", "value": 1}])
    assert problem == FieldProblem("/filters/0/value", "unknown field: NumberIn takes `values`")


# -- properties --------------------------------------------------------------------------------------------------------
numbers = st.one_of(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False))
ranges = st.lists(numbers, min_size=2, max_size=2).map(sorted)
values_of = {"number": numbers, "range": ranges, "bool": st.booleans(), "string": st.text(min_size=1, max_size=8)}


@st.composite
def items(draw: st.DrawFn) -> dict[str, Any]:
    operator = draw(st.sampled_from(sorted(OPERATORS)))
    one = OPERATORS[operator]
    key = draw(st.sampled_from(["subject", "priority", "x1", "data.n", "data.a.b"]))
    size = {"value": (1, 1), "values": (1, 5), "none": (0, 0)}[one.field]
    values = draw(st.lists(values_of.get(one.type, st.none()), min_size=size[0], max_size=size[1]))
    return item(operator, key, *values)


@given(st.lists(items(), max_size=6))
def test_parse_and_show_are_inverse(written: list[dict[str, Any]]) -> None:
    parsed = parse(*written)
    assert to_json(parsed) == written
    assert parse(*json.loads(json.dumps(to_json(parsed)))) == parsed


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from("nab"), inner, max_size=3)),
    max_leaves=8,
)


@given(items(), st.dictionaries(st.sampled_from(["subject", "priority", "x1"]), st.text(max_size=5)), json_values)
def test_a_filter_is_total_and_its_negation_is_its_opposite_where_the_key_is_there(
    written: dict[str, Any], attributes: dict[str, str], data: object
) -> None:
    one = compile_filter(parse(written)[0])(attributes, lambda: data)
    assert isinstance(one, bool)
    name = written["operatorType"]
    opposite = {"IsNotNull": "IsNullOrUndefined", "NumberLessThan": "NumberGreaterThanOrEquals"}.get(
        name, name.replace("String", "StringNot").replace("NumberIn", "NumberNotIn")
    )
    if opposite not in OPERATORS or opposite == name:
        return
    other = compile_filter(parse(written | {"operatorType": opposite})[0])(attributes, lambda: data)
    missing = OPERATORS[name].missing
    if OPERATORS[opposite].missing != missing:
        assert one is not other
    else:
        assert not (one and other)


@given(
    st.one_of(
        json_values, st.lists(st.dictionaries(st.sampled_from(["operatorType", "key", "values", "value"]), json_values))
    )
)
def test_any_json_is_judged(obj: object) -> None:
    parse_filters(obj)


# -- the payload -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "content_type", "expected"),
    [
        (b'{"a": 1}', None, {"a": 1}),
        (b'{"a": 1}', "application/json", {"a": 1}),
        (b'{"a": 1}', "Application/JSON; charset=utf-8", {"a": 1}),
        (b'{"a": 1}', "application/vnd.x+json", {"a": 1}),
        (b'{"a": 1}', "text/json", {"a": 1}),
        (b'{"a": 1, "a": 2}', None, {"a": 2}),
        (b"null", None, None),
        (b'{"a": 1}', "text/plain", MISSING),
        (b'{"a": 1}', "application/jsonp", MISSING),
        (b"", None, MISSING),
        (b"{", None, MISSING),
        (b"\xff", None, MISSING),
        (b"\xef\xbb\xbf{}", None, MISSING),
        ('{"a": 1}'.encode("utf-16"), None, MISSING),
        (b'{"a": NaN}', None, MISSING),
        (b"[Infinity]", None, MISSING),
        (b"[" * 10_000, None, MISSING),
        (b"[" * 100_000 + b"]" * 100_000, None, MISSING),
        (b"1" * 10_000, None, MISSING),
    ],
)
def test_payloads(value: bytes, content_type: str | None, expected: object) -> None:
    assert payload_json(value, content_type) == expected
    assert repr(MISSING) == "MISSING"
