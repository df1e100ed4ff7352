"""Filters of a subscription: the 19 operators of Event Grid (docs/http-api.md, "Filters").

All filters must hold; inside one, one value is enough. A key names an attribute (`subject`, an extension) or a place in
the payload (`data.a.b`). **Missing** is: not there, JSON null, or a value of another type than the operator compares.
A missing key matches `NumberNotIn`, `NumberNotInRange`, `StringNotIn` and `IsNullOrUndefined` (for that one, a value of
any type is there), and no other.

Attributes travel as text, so number operators read an attribute that is written as a number, and `BoolEquals` one that
is `true` or `false`. In the payload a string is a string. Lists and objects are no value that can be compared.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, TypeAlias, TypeGuard

from hub_app.domain.limits import (
    FILTER_KEY_BYTES_MAX,
    FILTER_VALUE_CHARS_MAX,
    FILTER_VALUES_MAX,
    FILTERS_MAX,
)

Scalar: TypeAlias = "str | int | float | bool"
Value: TypeAlias = "Scalar | tuple[int | float, int | float]"
Predicate = Callable[[Mapping[str, str], Callable[[], object]], bool]
"""(attributes by name without `ce-`, the payload as parsed JSON or MISSING, called only if needed) -> holds?"""


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()


class FieldProblem(NamedTuple):
    """One thing wrong with a request: a JSON pointer, and what must change."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """`values`: one for operators that take `value`, none for the null tests, else 1 to 25 (ranges are pairs)."""

    operator: str
    key: str
    values: tuple[Value, ...]


class _Operator(NamedTuple):
    """`type`: number, range, bool, string or null. `field`: value, values or none. `holds(actual, values)` for a value
    of the operator's type (strings folded); `missing`: what a missing key gives."""

    type: str
    field: str
    holds: Callable[[object, tuple[object, ...]], bool]
    missing: bool


def _none_of(holds: Callable[[object, tuple[object, ...]], bool]) -> Callable[[object, tuple[object, ...]], bool]:
    return lambda actual, values: not holds(actual, values)


def _any_of(test: Callable[..., bool]) -> Callable[[object, tuple[object, ...]], bool]:
    return lambda actual, values: any(test(actual, value) for value in values)


_IN = _any_of(lambda actual, value: actual == value)
_IN_RANGE = _any_of(lambda actual, pair: pair[0] <= actual <= pair[1])
_BEGINS = _any_of(lambda actual, value: actual.startswith(value))
_ENDS = _any_of(lambda actual, value: actual.endswith(value))
_CONTAINS = _any_of(lambda actual, value: value in actual)

OPERATORS: Final[Mapping[str, _Operator]] = {
    "NumberIn": _Operator("number", "values", _IN, False),
    "NumberNotIn": _Operator("number", "values", _none_of(_IN), True),
    "NumberLessThan": _Operator("number", "value", _any_of(lambda actual, value: actual < value), False),
    "NumberGreaterThan": _Operator("number", "value", _any_of(lambda actual, value: actual > value), False),
    "NumberLessThanOrEquals": _Operator("number", "value", _any_of(lambda actual, value: actual <= value), False),
    "NumberGreaterThanOrEquals": _Operator("number", "value", _any_of(lambda actual, value: actual >= value), False),
    "NumberInRange": _Operator("range", "values", _IN_RANGE, False),
    "NumberNotInRange": _Operator("range", "values", _none_of(_IN_RANGE), True),
    "BoolEquals": _Operator("bool", "value", _IN, False),
    "StringIn": _Operator("string", "values", _IN, False),
    "StringNotIn": _Operator("string", "values", _none_of(_IN), True),
    "StringBeginsWith": _Operator("string", "values", _BEGINS, False),
    "StringNotBeginsWith": _Operator("string", "values", _none_of(_BEGINS), False),
    "StringEndsWith": _Operator("string", "values", _ENDS, False),
    "StringNotEndsWith": _Operator("string", "values", _none_of(_ENDS), False),
    "StringContains": _Operator("string", "values", _CONTAINS, False),
    "StringNotContains": _Operator("string", "values", _none_of(_CONTAINS), False),
    "IsNullOrUndefined": _Operator("null", "none", lambda actual, values: False, True),
    "IsNotNull": _Operator("null", "none", lambda actual, values: True, False),
}

# The numbers JSON writes; of an attribute nothing else is taken for one (no `1_000`, ` 5`, `0x10`, `nan`).
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,300})(?:\.[0-9]{1,300})?(?:[eE][+-]?[0-9]{1,4})?")
_ATTRIBUTE: Final = re.compile(r"[a-z0-9_-]+")


# -- parsing -----------------------------------------------------------------------------------------------------------
def parse_filters(obj: object, *, pointer: str = "/filters") -> tuple[Filter, ...] | tuple[FieldProblem, ...]:
    """`[{operatorType, key, value | values}]`. Every problem at once; no filter at all (or null) is an empty tuple."""
    if obj is None:
        return ()
    if not isinstance(obj, list):
        return (FieldProblem(pointer, "must be a list of filters"),)
    if len(obj) > FILTERS_MAX:
        return (FieldProblem(pointer, f"holds {len(obj)} filters; at most {FILTERS_MAX}"),)
    filters: list[Filter] = []
    problems: list[FieldProblem] = []
    for i, item in enumerate(obj):
        parsed = _parse_filter(item, f"{pointer}/{i}")
        if isinstance(parsed, Filter):
            filters.append(parsed)
        else:
            problems += parsed
    return tuple(problems) if problems else tuple(filters)


def _parse_filter(item: object, at: str) -> Filter | list[FieldProblem]:
    if not isinstance(item, dict):
        return [FieldProblem(at, "must be an object with operatorType, key and value or values")]
    problems = []
    name = item.get("operatorType")
    operator = OPERATORS.get(name) if isinstance(name, str) else None
    if operator is None:
        problems.append(FieldProblem(f"{at}/operatorType", f"must be one of {', '.join(OPERATORS)}"))
    key = item.get("key")
    wrong_key = _key_problem(key)
    if wrong_key is not None:
        problems.append(FieldProblem(f"{at}/key", wrong_key))
    known = {"operatorType", "key"} | ({operator.field} if operator else {"value", "values"})
    problems += [
        FieldProblem(f"{at}/{escaped(field)}", "unknown field" + _instead(name, operator, field))
        for field in item
        if field not in known
    ]
    values: tuple[Value, ...] = ()
    if operator is not None and operator.field != "none":
        parsed = _parse_values(item, operator, at)
        if isinstance(parsed, tuple):
            values = parsed
        else:
            problems += parsed
    if problems:
        return problems
    assert isinstance(name, str) and isinstance(key, str)
    return Filter(operator=name, key=key, values=values)


def _instead(name: object, operator: _Operator | None, field: object) -> str:
    if operator is None or field not in ("value", "values"):
        return "; known are operatorType, key, value, values"
    return f": {name} takes no value" if operator.field == "none" else f": {name} takes `{operator.field}`"


def _key_problem(key: object) -> str | None:
    if not isinstance(key, str) or not key:
        return "must be the name of an attribute, or data.… for a place in the payload"
    if not is_unicode(key) or len(key.encode()) > FILTER_KEY_BYTES_MAX:
        return f"must be a text of at most {FILTER_KEY_BYTES_MAX} bytes"
    if key == "data":
        return "must name a place in the payload, as in data.amount"
    if key.startswith("data."):
        return None if all(key.split(".")) else "has an empty part between two dots"
    if not _ATTRIBUTE.fullmatch(key):
        return "must be the name of an attribute (lower-case letters and digits), or start with data."
    return None


def _parse_values(item: Mapping[str, object], operator: _Operator, at: str) -> tuple[Value, ...] | list[FieldProblem]:
    given = item.get(operator.field)
    at = f"{at}/{operator.field}"
    if operator.field == "value":
        problem = _value_problem(given, operator)
        return [FieldProblem(at, problem)] if problem else (_value(given),)
    if not isinstance(given, list) or not 1 <= len(given) <= FILTER_VALUES_MAX:
        return [FieldProblem(at, f"must be a list of 1 to {FILTER_VALUES_MAX} values")]
    problems = [(i, _value_problem(value, operator)) for i, value in enumerate(given)]
    found = [FieldProblem(f"{at}/{i}", problem) for i, problem in problems if problem]
    return found or tuple(_value(value) for value in given)


def _value(value: object) -> Value:
    """A value already judged; a range becomes a pair."""
    if isinstance(value, list):
        return (value[0], value[1])
    assert isinstance(value, str | int | float)
    return value


def _value_problem(value: object, operator: _Operator) -> str | None:
    match operator.type:
        case "number":
            return None if _is_storable_number(value) else "must be a number of at most 63 bits"
        case "range":
            if not (isinstance(value, list) and len(value) == 2 and all(_is_storable_number(end) for end in value)):
                return "must be a range: a list of two numbers of at most 63 bits"
            return None if value[0] <= value[1] else "must be a range whose first number is not the greater one"
        case "bool":
            return None if isinstance(value, bool) else "must be true or false"
        case _:
            if not isinstance(value, str) or len(value) > FILTER_VALUE_CHARS_MAX or not is_unicode(value):
                return f"must be a text of at most {FILTER_VALUE_CHARS_MAX} characters"
            # Every text begins with, ends with and contains the empty one: surely not what was meant.
            return None if value or operator.holds in (_IN, OPERATORS["StringNotIn"].holds) else "must not be empty"


def _is_number(value: object) -> TypeGuard[int | float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _is_storable_number(value: object) -> bool:
    """Larger whole numbers are not read alike by all readers of JSON."""
    return _is_number(value) and (isinstance(value, float) or -(2**63) < value < 2**63)


def is_unicode(text: str) -> bool:
    """Whether it can be encoded: JSON can write half of a surrogate pair."""
    return not any("\ud800" <= c <= "\udfff" for c in text)


def to_json(filters: Iterable[Filter]) -> list[dict[str, object]]:
    """As a request writes them: the inverse of `parse_filters`."""
    shown = []
    for one in filters:
        item: dict[str, object] = {"operatorType": one.operator, "key": one.key}
        field = OPERATORS[one.operator].field
        if field == "value":
            item["value"] = one.values[0]
        elif field == "values":
            item["values"] = [list(value) if isinstance(value, tuple) else value for value in one.values]
        shown.append(item)
    return shown


def escaped(name: object) -> str:
    """A name as a part of a JSON pointer (RFC 6901), cut where a stranger made it endless."""
    return str(name)[:128].replace("~", "~0").replace("/", "~1")


# -- holding -----------------------------------------------------------------------------------------------------------
def compile_filters(filters: tuple[Filter, ...]) -> Predicate:
    """One predicate: every filter holds. Those on attributes are asked first, so that the payload of a fact that they
    refuse is never parsed."""
    tests = [compile_filter(one) for one in sorted(filters, key=lambda one: one.key.startswith("data."))]
    if len(tests) == 1:
        return tests[0]
    return lambda attributes, data: all(test(attributes, data) for test in tests)


def compile_filter(one: Filter) -> Predicate:
    """The predicate of one filter."""
    operator = OPERATORS[one.operator]
    values: tuple[object, ...] = one.values
    if operator.type == "string":
        values = tuple(str(value).casefold() for value in one.values)
    holds, missing = operator.holds, operator.missing
    if one.key.startswith("data."):
        path = tuple(one.key.split(".")[1:])
        of_payload = _PAYLOAD_VALUES[operator.type]

        def in_payload(attributes: Mapping[str, str], data: Callable[[], object]) -> bool:
            actual = of_payload(_at(data(), path))
            return missing if actual is MISSING else holds(actual, values)

        return in_payload
    key, of_attribute = one.key, _ATTRIBUTE_VALUES[operator.type]

    def in_attributes(attributes: Mapping[str, str], data: Callable[[], object]) -> bool:
        text = attributes.get(key)
        actual = MISSING if text is None else of_attribute(text)
        return missing if actual is MISSING else holds(actual, values)

    return in_attributes


def _at(data: object, path: tuple[str, ...]) -> object:
    for part in path:
        if not isinstance(data, dict) or part not in data:
            return MISSING
        data = data[part]
    return MISSING if data is None else data


def _number_of_text(text: str) -> object:
    if not _NUMBER.fullmatch(text):
        return MISSING
    number = int(text) if text.lstrip("-").isdigit() else float(text)
    return number if math.isfinite(number) else MISSING


_ATTRIBUTE_VALUES: Final[Mapping[str, Callable[[str], object]]] = {
    "number": _number_of_text,
    "range": _number_of_text,
    "bool": lambda text: {"true": True, "false": False}.get(text, MISSING),
    "string": str.casefold,
    "null": lambda text: text,
}
_PAYLOAD_VALUES: Final[Mapping[str, Callable[[object], object]]] = {
    "number": lambda value: value if _is_number(value) else MISSING,
    "range": lambda value: value if _is_number(value) else MISSING,
    "bool": lambda value: value if isinstance(value, bool) else MISSING,
    "string": lambda value: value.casefold() if isinstance(value, str) else MISSING,
    "null": lambda value: value,
}


def payload_json(value: bytes, content_type: str | None) -> object:
    """The payload for filters: parsed if its content type is JSON (the default) and its bytes are, else MISSING."""
    media = (content_type or "application/json").split(";", 1)[0].strip().lower()
    if not (media.endswith(("/json", "+json"))):
        return MISSING
    try:
        return json.loads(value.decode(), parse_constant=_refuse)  # of bytes it would take UTF-16 too
    except (ValueError, RecursionError):
        return MISSING


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
