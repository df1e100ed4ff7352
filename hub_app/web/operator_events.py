"""What people are told about their subscriptions and sinks: warned, disabled, recovered, breakers, many dead letters. A
tenant reads its own, from its partition of `hub.operator`; administrators read everybody's."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from agents.operator_log import OperatorPage
from hub_app.domain.operator import OperatorEvent, OperatorKind
from hub_app.topics import names
from hub_app.web.archived import AFTER_PLACE, Archived, bounded_look
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Query
from hub_app.web.paging import LIMIT, LIMIT_DEFAULT
from hub_app.web.problems import Problem, json_response
from hub_app.web.pull import START
from hub_app.web.queries import parse_queries
from hub_app.web.serve import Ask
from hub_app.web.shapes import Instant, Text
from hub_app.wire import operator as wire

KINDS: Final = tuple(kind.value for kind in OperatorKind)
_SUBSCRIPTION: Final = Query("subscription", Text(length_min=1, length_max=128), "about this subscription only")
_KIND: Final = Query("kind", Text(one_of=KINDS), "of this kind only")
TOLD: Final = (
    Query("after", Text(pattern=f"{START}|[0-9]{{1,18}}", meaning="the `next` of an answer before"), "its `next`"),
    LIMIT,
    _KIND,
    _SUBSCRIPTION,
)
EVERYBODYS: Final = (
    AFTER_PLACE,
    LIMIT,
    _KIND,
    Query("tenant", Text(length_min=1, length_max=256), "of this tenant only"),
    Query("since", Instant(), "written at this instant or later"),
    Query("until", Instant(), "written before this instant"),
)


class OperatorRoutes:
    def __init__(self, deps: WebDeps) -> None:
        self._deps, self._topic = deps, names(deps.settings.topic_prefix).operator
        self._archived = Archived(deps)

    async def own(self, ask: Ask) -> web.Response | Problem:
        """Oldest first. `next` is never null: it is where to go on later. A page may be short, or empty, also where
        there are more: the next request looks on from there."""
        query = parse_queries(ask.request, TOLD)
        if isinstance(query, Problem):
            return query
        limit, after = query.get("limit", LIMIT_DEFAULT), query.get("after", START)
        async with bounded_look():
            page = await self._deps.operator_events.page(
                ask.tenant, None if after == START else int(after), limit, wants=lambda event: _wanted(event, query)
            )
        if not isinstance(page, OperatorPage):
            detail = "operator events after this cursor are no longer kept; go on with `next`"
            return Problem(410, "cursor-gone", "The cursor is behind what is kept", detail, extra={"next": START})
        place = START if page.after is None else str(page.after)
        return json_response({"operator_events": [wire.to_json(event) for event in page.events], "next": place})

    async def everybodys(self, ask: Ask) -> web.Response | Problem:
        """Partition by partition, each oldest first. A page may be short, or empty, with `next` moved on."""
        query = parse_queries(ask.request, EVERYBODYS)
        if isinstance(query, Problem):
            return query

        def pick(record: Any) -> dict[str, object] | None:
            event = wire.read(record.key, record.value)
            if not isinstance(event, OperatorEvent) or not _wanted(event, query):
                return None
            return {"tenant": event.tenant, **wire.to_json(event)}

        return await self._archived.page(self._topic, query, "operator_events", pick)


def _wanted(event: OperatorEvent, query: dict[str, Any]) -> bool:
    return bool(
        query.get("kind", event.kind) == event.kind
        and query.get("subscription", event.subscription) == event.subscription
        and query.get("tenant", event.tenant) == event.tenant
    )
