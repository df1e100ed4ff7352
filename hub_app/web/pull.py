"""Facts by seq: `GET /v1/events` with a cursor and a long poll, `GET /v1/events/:seq`.

A cursor is the decimal seq of the last fact seen (`start` before the first one), so a reader can begin anywhere it has
seen, and `next` of an answer is the `after` of the following request, also when the page is empty. Work per call is
bounded in rows and bytes: a page may be short, or empty, with `next` moved on."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import orjson
from aiohttp import web

from hub_app.domain.errors import Fenced
from hub_app.domain.event_types import pattern_problem, patterns_for
from hub_app.domain.fact import Fact, JsonFact, OpaqueFact
from hub_app.domain.instants import rfc3339
from hub_app.domain.publishing import is_json_type
from hub_app.web.deps import InboxReader, WebDeps
from hub_app.web.describe import Query as Parameter
from hub_app.web.problems import Problem, invalid_query, json_response, not_found, unavailable
from hub_app.web.serve import WAIT_MS_MAX, Ask
from hub_app.web.shapes import Text, Whole

LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
PAGE_BYTES_MAX: Final = 4 * 1024 * 1024
SEQ_MAX: Final = (1 << 63) - 1
START: Final = "start"
BEFORE_ALL: Final = -1
LISTED_MAX: Final = 50  # types or origins in one query
PULLING: Final = (
    Parameter("after", Text(length_max=19), "the `next` of the answer before, or the seq of the last event seen"),
    Parameter("limit", Whole(low=1, high=LIMIT_MAX), f"events of a page; {LIMIT_DEFAULT} when not given"),
    Parameter("type", Text(length_min=1, length_max=512), "patterns, as those of a subscription", repeated=True),
    Parameter("origin", Text(length_min=1), "sources", repeated=True),
    Parameter("wait", Whole(low=0, high=WAIT_MS_MAX // 1000), "seconds to wait for an event"),
)
_NAME: Final = re.compile(r"ce-([a-z0-9]{1,20})", re.ASCII)
_OWN_MEMBERS: Final = frozenset(("data", "data_base64", "seq", "specversion", "id", "source", "type"))


class Query(NamedTuple):
    """`after` is None when the reader gave no cursor: from the oldest fact there is."""

    after: int | None
    limit: int
    wants: Callable[[str, str], bool] | None


class Pull:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def events(self, ask: Ask) -> web.Response | Problem:
        query = parse_query(ask.request)
        if isinstance(query, Problem):
            return query
        inbox = self._inbox(ask)
        horizon = inbox.horizon(ask.tenant)
        if query.after is not None and query.after < horizon:
            return _gone(inbox, ask.tenant, horizon)
        after = query.after if query.after is not None else horizon
        if not ask.wait_ms:
            return self._page(ask, query, after)
        return await self._poll(ask, query, after)

    async def event(self, ask: Ask) -> web.Response | Problem:
        seq = parse_seq(ask.part("seq"))
        fact = None if seq is None else self._inbox(ask).fact(ask.tenant, seq)
        return not_found("event") if fact is None else json_response(event_json(fact))

    def _inbox(self, ask: Ask) -> InboxReader:
        inbox = self._deps.owners.inbox(ask.shard) if self._deps.owners.is_here(ask.shard) else None
        if inbox is None:
            raise Fenced("the shard is not open here")
        return inbox

    def _page(self, ask: Ask, query: Query, after: int) -> web.Response:
        inbox = self._inbox(ask)
        page = inbox.events_after(ask.tenant, after, limit=query.limit, bytes_max=PAGE_BYTES_MAX, wants=query.wants)
        return _answer(page.facts, page.next_seq, inbox.newest(ask.tenant))

    async def _poll(self, ask: Ask, query: Query, after: int) -> web.Response | Problem:
        """Waits until one wanted fact is there. Ends early, with an empty page and the place reached, when the shard
        moves, the worker stops or the reader is gone."""
        clock = self._deps.clock
        until_ms = clock.monotonic_ms() + ask.wait_ms
        waiting = self._deps.arrivals.enter(ask.tenant)
        if waiting is None:
            return unavailable("too many long polls are waiting in this worker", retry_after_s=5)
        with waiting:
            while True:
                if not self._deps.owners.is_here(ask.shard) or (inbox := self._deps.owners.inbox(ask.shard)) is None:
                    return _answer([], after, None)
                page = inbox.events_after(
                    ask.tenant, after, limit=query.limit, bytes_max=PAGE_BYTES_MAX, wants=query.wants
                )
                after, left_ms = page.next_seq, until_ms - clock.monotonic_ms()
                over = left_ms <= 0 or self._deps.stopping() or ask.request.transport is None
                if page.facts or page.more or over:
                    return _answer(page.facts, after, inbox.newest(ask.tenant))
                await waiting.wait(left_ms / 1000)


def parse_query(request: web.Request) -> Query | Problem:
    unknown = set(request.query) - {"after", "limit", "type", "origin", "wait"}
    if unknown:
        return invalid_query(min(unknown), "is not a parameter here; known are after, limit, type, origin, wait")
    after_text, limit_text = request.query.get("after"), request.query.get("limit", str(LIMIT_DEFAULT))
    after = None if after_text is None else BEFORE_ALL if after_text == START else parse_seq(after_text)
    if after_text is not None and after is None:
        return invalid_query("after", "expected the `next` of an earlier answer, or the seq of the last event seen")
    if not (limit_text.isascii() and limit_text.isdigit() and 1 <= int(limit_text[:5]) <= LIMIT_MAX):
        return invalid_query("limit", f"expected a whole number from 1 to {LIMIT_MAX}")
    types, origins = request.query.getall("type", []), request.query.getall("origin", [])
    for name, values in (("type", types), ("origin", origins)):
        if len(values) > LISTED_MAX or not all(values):
            return invalid_query(name, f"expected at most {LISTED_MAX} values, none empty")
    problem = next((problem for text in types if (problem := pattern_problem(text))), None)
    if problem is not None:
        return invalid_query("type", problem)
    return Query(after, int(limit_text), _wants(types, origins))


def _wants(types: list[str], origins: list[str]) -> Callable[[str, str], bool] | None:
    """Event types match as those of a subscription do."""
    if not types and not origins:
        return None
    wanted_types, wanted_origins = frozenset(types), frozenset(origins)

    def wants(event_type: str, source: str) -> bool:
        if wanted_origins and source not in wanted_origins:
            return False
        return not wanted_types or not wanted_types.isdisjoint(patterns_for(event_type))

    return wants


def parse_seq(text: str) -> int | None:
    """A seq as a reader writes it; None when it cannot be one."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    seq = int(text)
    return seq if seq <= SEQ_MAX else None


def _cursor(seq: int) -> str:
    return START if seq < 0 else str(seq)


def _answer(facts: list[Fact], next_seq: int, head: int | None) -> web.Response:
    return json_response({"events": [event_json(fact) for fact in facts], "next": _cursor(next_seq), "head": head})


def _gone(inbox: InboxReader, tenant: str, horizon: int) -> Problem:
    """410: facts behind the cursor are no longer kept. Says where reading can go on; never skips by itself."""
    oldest = inbox.oldest(tenant)
    detail = "events after this cursor are no longer kept; go on with `next` and treat what lies between as missed"
    extra = {"oldest": oldest, "next": _cursor(horizon)}
    return Problem(410, "cursor-gone", "The cursor is behind what is kept", detail, extra=extra)


def event_json(fact: Fact) -> dict[str, object]:
    """CloudEvents JSON format, and the seq. Attributes come from the canonical headers; the payload's bytes are given
    as they are: as `data` if they are JSON by name and by content, else as `data_base64`."""
    event: dict[str, object] = {"specversion": "1.0", "id": fact.id, "source": fact.source, "type": fact.type}
    for name, value in fact.headers:
        attribute = _attribute(name)
        if attribute is not None:
            event[attribute] = value.decode("utf-8", "replace")
    event["seq"] = fact.seq
    event["receivedat"] = rfc3339(fact.received_at_ms)
    if not fact.value:
        return event
    if isinstance(fact, JsonFact) or (not isinstance(fact, OpaqueFact) and _is_json(fact, event)):
        event["data"] = orjson.Fragment(fact.value)
    else:
        event["data_base64"] = base64.b64encode(fact.value).decode()
    return event


@lru_cache(maxsize=1_024)
def _attribute(name: str) -> str | None:
    """The member that shows a header; None for one that is not shown, or is a member of its own."""
    match = _NAME.fullmatch(name)
    attribute = match[1] if match else name if name in ("traceparent", "tracestate") else None
    return None if attribute in _OWN_MEMBERS else attribute


def _is_json(fact: Fact, event: dict[str, object]) -> bool:
    """Of a fact that nobody has looked at: one that does not come from the inbox's table."""
    if not is_json_type(str(event.get("datacontenttype", "application/json"))):
        return False
    try:
        orjson.loads(fact.value)
    except orjson.JSONDecodeError:
        return False
    return True
