"""Parameters of a query, judged by their shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aiohttp import web

from hub_app.domain.instants import parse_rfc3339
from hub_app.web.describe import Query
from hub_app.web.problems import Problem, invalid_query
from hub_app.web.shapes import Instant, Whole


def parse_queries(request: web.Request, known: Sequence[Query]) -> dict[str, Any] | Problem:
    """Values by name: whole numbers as such, instants as milliseconds, else texts. Unknown names, and a name given
    twice, are refused."""
    names = [query.name for query in known]
    unknown = set(request.query) - set(names)
    if unknown:
        return invalid_query(min(unknown), f"is not a parameter here; known are {', '.join(names)}")
    found: dict[str, Any] = {}
    for query in known:
        given = request.query.getall(query.name, [])
        if not given:
            continue
        if len(given) > 1:
            return invalid_query(query.name, "is given twice")
        value = _value(given[0], query)
        error = next(iter(query.shape.check(value, "")), None)
        if error is not None:
            return invalid_query(query.name, error.detail)
        found[query.name] = parse_rfc3339(given[0]) if isinstance(query.shape, Instant) else value
    return found


def _value(text: str, query: Query) -> object:
    if isinstance(query.shape, Whole):
        return int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else text
    return text
