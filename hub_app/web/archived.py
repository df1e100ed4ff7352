"""Pages of a whole topic, for administrators: from any worker, partition by partition (`agents.archive`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from aiohttp import web

from agents.archive import START, Place
from hub_app.domain.errors import BrokerTrouble
from hub_app.domain.operation import SEQ_MAX
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Query
from hub_app.web.problems import Problem, invalid_query, json_response
from hub_app.web.shapes import Text

LIMIT_DEFAULT: Final = 50
LOOK_S: Final = 15.0
_PLACE: Final = re.compile(r"([0-9]{1,5})\.([0-9]{1,18})", re.ASCII)
AFTER_PLACE: Final = Query(
    "cursor", Text(pattern=_PLACE.pattern, meaning="the `next` of an answer before"), "the page after"
)


def place_of(text: str) -> Place | None:
    """`<partition>.<offset>`, as cursors and ids of records are written."""
    match = _PLACE.fullmatch(text)
    return None if match is None else Place(int(match[1]), int(match[2]))


@asynccontextmanager
async def bounded_look() -> AsyncIterator[None]:
    """Raises BrokerTrouble when Kafka takes too long."""
    try:
        async with asyncio.timeout(LOOK_S):
            yield
    except TimeoutError as error:
        raise BrokerTrouble("Kafka does not answer in time") from error


class Archived:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def page(
        self, topic: str, query: dict[str, Any], name: str, pick: Callable[[Any], dict[str, Any] | None]
    ) -> web.Response | Problem:
        """`query` has passed: `cursor limit since until`. `name` is the member that holds the rows."""
        place = place_of(query["cursor"]) if "cursor" in query else START
        assert place is not None
        if place.partition >= self._deps.settings.shards:
            return invalid_query("cursor", "expected the `next` of an answer before")
        async with bounded_look():
            rows, after = await self._deps.archive.page(
                topic,
                place,
                limit=query.get("limit", LIMIT_DEFAULT),
                since_ms=query.get("since", 0),
                until_ms=query.get("until", SEQ_MAX),
                pick=pick,
            )
        return json_response({name: rows, "next": None if after is None else f"{after.partition}.{after.offset}"})
