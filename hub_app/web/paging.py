"""Lists in pages: newest last, a cursor that names the last row seen, so that rows made or deleted between two pages
neither repeat nor hide others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from aiohttp import web

from hub_app.web.describe import Query
from hub_app.web.problems import Problem, invalid_query
from hub_app.web.shapes import Text, Whole

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
_CURSOR: Final = re.compile(r"([0-9]{1,16})\.([A-Za-z0-9_]{1,80})", re.ASCII)

CURSOR: Final = Query("cursor", Text(pattern=_CURSOR.pattern), "the `next` of the answer before")
LIMIT: Final = Query("limit", Whole(low=1, high=LIMIT_MAX), f"rows of a page; {LIMIT_DEFAULT} when not given")
PAGING: Final = (CURSOR, LIMIT)

Place = tuple[int, str]
"""(made at, id): the order of a list."""
Row = TypeVar("Row")


class Paging(NamedTuple):
    after: Place | None
    limit: int


def parse_paging(request: web.Request, *, limit_max: int = LIMIT_MAX) -> Paging | Problem:
    unknown = set(request.query) - {"cursor", "limit"}
    if unknown:
        return invalid_query(min(unknown), "is not a parameter here; known are cursor and limit")
    limit, cursor = request.query.get("limit", str(min(LIMIT_DEFAULT, limit_max))), request.query.get("cursor")
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:5]) <= limit_max):
        return invalid_query("limit", f"expected a whole number from 1 to {limit_max}")
    if cursor is None:
        return Paging(None, int(limit))
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        return invalid_query("cursor", "expected the `next` of an earlier answer")
    return Paging((int(match[1]), match[2]), int(limit))


def page_of(rows: Mapping[Place, Row], paging: Paging) -> tuple[list[Row], str | None]:
    """The page, and the cursor of the next one; None at the end."""
    after = paging.after
    places = sorted(place for place in rows if after is None or place > after)
    shown = places[: paging.limit]
    more = len(places) > len(shown)
    return [rows[place] for place in shown], f"{shown[-1][0]}.{shown[-1][1]}" if more else None
