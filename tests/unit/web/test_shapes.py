"""One description of a body: it validates, and its schema says the same."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_app.web.admin import NEW_KEY
from hub_app.web.problems import FieldError, pointer
from hub_app.web.shapes import Flag, ListOf, Member, Record, Text, Whole

SHAPE = Record(
    members={
        "name": Member(shape=Text(length_min=1, length_max=5), meaning="a name", required=True),
        "kind": Member(shape=Text(one_of=("a", "b")), meaning="a kind"),
        "code": Member(shape=Text(pattern=r"[A-Z]{2}", meaning="two capitals"), meaning="a code"),
        "size": Member(shape=Whole(low=1, high=9), meaning="a size"),
        "open": Member(shape=Flag(), meaning="a flag"),
        "tags": Member(shape=ListOf(item=Text(length_max=3), items_min=1, items_max=2, unique=True), meaning="tags"),
    }
)


@pytest.mark.parametrize(
    ("value", "errors"),
    [
        ({"name": "x"}, []),
        ({"name": "x", "kind": "a", "code": "AB", "size": 9, "open": False, "tags": ["a", "b"]}, []),
        ({}, ["/name"]),
        ({"name": ""}, ["/name"]),
        ({"name": "123456"}, ["/name"]),
        ({"name": None}, ["/name"]),
        ({"name": "x", "kind": "c"}, ["/kind"]),
        ({"name": "x", "code": "AB\n"}, ["/code"]),
        ({"name": "x", "size": 0}, ["/size"]),
        ({"name": "x", "size": True}, ["/size"]),
        ({"name": "x", "size": 1.5}, ["/size"]),
        ({"name": "x", "open": 1}, ["/open"]),
        ({"name": "x", "tags": []}, ["/tags"]),
        ({"name": "x", "tags": ["a", "a"]}, ["/tags/1"]),
        ({"name": "x", "tags": ["long", 7]}, ["/tags/0", "/tags/1"]),
        ({"name": "x", "a/b~c": 1}, ["/a~1b~0c"]),
        ("text", [""]),
        (None, [""]),
    ],
)
def test_every_error_has_its_pointer(value: object, errors: list[str]) -> None:
    found = list(SHAPE.check(value, ""))
    assert [error.pointer for error in found] == errors
    assert all(error.detail for error in found)


def test_an_unknown_field_is_told_what_is_known() -> None:
    assert FieldError("/nmae", "not a known field; did you mean name?") in list(SHAPE.check({"nmae": 1}, ""))
    [error] = Record(members={"a": Member(shape=Flag(), meaning="")}).check({"zzz": 1}, "")
    assert error.detail == "not a known field; known are a"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 11) | st.sampled_from(["", "a", "b", "AB", "abcd", "123456", "a\n"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*SHAPE.members, "scopes", "other"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.parametrize("shape", [SHAPE, NEW_KEY], ids=["all", "new key"])
@given(value=VALUES)
def test_the_schema_accepts_what_the_check_accepts(shape: Record, value: Any) -> None:
    """The schema may be laxer in one thing: it does not forbid control characters in texts without a pattern."""
    accepted = not list(shape.check(value, ""))
    by_schema = jsonschema.Draft202012Validator(shape.schema()).is_valid(value)
    assert by_schema or not accepted
    if "\n" not in repr(value) and "\\n" not in repr(value):
        assert accepted == by_schema


def test_schemas_are_schemas() -> None:
    jsonschema.Draft202012Validator.check_schema(SHAPE.schema())


def test_pointers_are_escaped() -> None:
    assert pointer("a/b", "~", 0) == "/a~1b/~0/0"
