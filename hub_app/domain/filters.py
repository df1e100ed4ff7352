"""Filters of a subscription: the 19 operators of Event Grid, with its table for missing keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

FILTERS_MAX: Final = 25
VALUES_MAX: Final = 25

Predicate = Callable[[Mapping[str, str], Callable[[], object]], bool]
"""(attributes by name without `ce-`, the payload as parsed JSON or MISSING, called only if needed) -> holds?"""


class FieldProblem(NamedTuple):
    """One thing wrong with a request: a JSON pointer, and what must change."""

    pointer: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """`values`: as many as the operator takes (ranges are pairs)."""

    operator: str
    key: str
    values: tuple[object, ...]


def parse_filters(obj: object, *, pointer: str = "/filters") -> tuple[Filter, ...] | tuple[FieldProblem, ...]:
    """Every problem at once. No filter at all is an empty tuple."""
    raise NotImplementedError


def compile_filters(filters: tuple[Filter, ...]) -> Predicate:
    """One predicate: every filter holds."""
    raise NotImplementedError
