"""What a draft would receive, and why a subscription did or did not receive an event. Nothing is kept or sent."""

from __future__ import annotations

from asyncio import gather
from typing import Any, Final

from aiohttp import web

from agents.operations import wanted_by
from hub_app.domain.errors import Fenced
from hub_app.domain.fact import Fact
from hub_app.domain.matching import Mismatch, explain, mismatch
from hub_app.domain.operation import Span
from hub_app.domain.subscription import QueueSink, Subscription, created
from hub_app.web.bodies import parse_body
from hub_app.web.deps import InboxReader, WebDeps
from hub_app.web.describe import Query
from hub_app.web.judging import Judge
from hub_app.web.paging import CURSOR, page_of, parse_paging
from hub_app.web.problems import FieldError, Problem, invalid, json_response, not_found
from hub_app.web.pull import parse_seq
from hub_app.web.samples import sample_fact
from hub_app.web.serve import Ask
from hub_app.web.shapes import Member, Open, Record, Whole
from hub_app.web.sinks import Sinks
from hub_app.web.spans import SPAN_MEMBERS, span_of

FIRST_MAX: Final = 10
EVENTS_MAX: Final = 1_000
BYTES_MAX: Final = 4 * 1024 * 1024
PLACEHOLDER: Final = {"type": "webhook", "url": "https://preview.example.com/"}
WHY_MAX: Final = 20
WHY: Final[tuple[Query, ...]] = (
    CURSOR,
    Query("limit", Whole(low=1, high=WHY_MAX), f"rows of a page; {WHY_MAX} when not given"),
)

PREVIEW: Final = Record(
    members={
        "subscription": Member(
            shape=Open(ref="Draft"), meaning="a draft; name and sink may be left out", required=True
        ),
        "event": Member(shape=Open(), meaning="a sample: CloudEvents JSON, of which only type is needed"),
        "range": Member(shape=Record(members=SPAN_MEMBERS), meaning="past events instead of a sample"),
    }
)


class Preview:
    def __init__(self, deps: WebDeps, sinks: Sinks) -> None:
        self._deps, self._sinks = deps, sinks
        self._judge = Judge(deps.settings)

    async def preview(self, ask: Ask) -> web.Response | Problem:
        body = parse_body(ask, PREVIEW)
        if isinstance(body, Problem):
            return body
        draft = self._draft(body["subscription"], ask.tenant)
        if isinstance(draft, Problem):
            return draft
        if ("event" in body) == ("range" in body):
            return invalid(FieldError("", "give either event (a sample) or range (past events)"))
        if "event" in body:
            return self._of_sample(draft, body["event"])
        span = span_of(body["range"], "/range")
        return invalid(span) if isinstance(span, FieldError) else self._of_past(ask, draft, span)

    async def why(self, ask: Ask) -> web.Response | Problem:
        """Of each subscription, as it stands now: would it receive this event, what keeps it from it, and what came of
        its delivery."""
        seq = parse_seq(ask.part("seq"))
        fact = None if seq is None else self._inbox(ask).fact(ask.tenant, seq)
        if fact is None:
            return not_found("event")
        paging = parse_paging(ask.request, limit_max=WHY_MAX)
        if isinstance(paging, Problem):
            return paging
        rows = {(row.created_at_ms, row.id): row for row in self._deps.subscriptions.of_tenant(ask.tenant)}
        page, next_cursor = page_of(rows, paging)
        return json_response(
            {
                "seq": fact.seq,
                "event_type": fact.event_type,
                "source": fact.source,
                "subscriptions": await gather(*(self._verdict(ask, row, fact) for row in page)),
                "next": next_cursor,
            }
        )

    # -- steps -----------------------------------------------------------------------------------------------------
    def _draft(self, wish: dict[str, Any], tenant: str) -> Subscription | Problem:
        """The draft as a subscription that receives."""
        filled = {"name": "preview", "sink": PLACEHOLDER, **wish}
        draft = self._judge.create(filled, at="/subscription")
        if isinstance(draft, Problem):
            return draft
        return created(draft, id="preview", tenant=tenant, secret="", now_ms=self._deps.clock.now_ms())

    def _of_sample(self, draft: Subscription, event: dict[str, Any]) -> web.Response | Problem:
        fact = sample_fact(event, draft.tenant, now_ms=self._deps.clock.now_ms(), at="/event")
        if not isinstance(fact, Fact):
            return invalid(*fact)
        found = mismatch(draft, fact)
        return json_response({"matched": found is None, "why_not": _reason(found)})

    def _of_past(self, ask: Ask, draft: Subscription, span: Span) -> web.Response:
        """One bounded look; `next_seq` says where the next one begins, null when all was seen."""
        page = self._inbox(ask).events_after(
            ask.tenant, span.from_seq - 1, limit=EVENTS_MAX, bytes_max=BYTES_MAX, until=span.to_seq
        )
        covered = [fact for fact in page.facts if span.covers(fact.seq, fact.received_at_ms)]
        wants = wanted_by(draft)
        judged = [(fact, mismatch(draft, fact)) for fact in covered]
        matched = [fact for fact, found in judged if found is None]
        close = [(fact, found) for fact, found in judged if found and wants(fact.event_type, fact.source)]
        far = [(fact, found) for fact, found in judged if found and not wants(fact.event_type, fact.source)]
        return json_response(
            {
                "looked_at": len(covered),
                "matched": len(matched),
                "first": [_named(fact) for fact in matched[:FIRST_MAX]],
                "why_not": [{**_named(fact), **(_reason(found) or {})} for fact, found in (close + far)[:FIRST_MAX]],
                "next_seq": page.next_seq + 1 if page.more else None,
            }
        )

    async def _verdict(self, ask: Ask, subscription: Subscription, fact: Fact) -> dict[str, object]:
        """A queue's events are no deliveries. What no worker can tell now is null, as is what never was."""
        found, delivery = explain(subscription, fact), None
        if not isinstance(subscription.sink, QueueSink):
            try:
                delivery = await self._sinks.look(ask, subscription, "delivery", {"seq": fact.seq})
            except Fenced:
                delivery = None
        return {
            "subscription": subscription.id,
            "name": subscription.name,
            "matched": found is None,
            "why_not": _reason(found),
            "delivery": delivery,
        }

    def _inbox(self, ask: Ask) -> InboxReader:
        inbox = self._deps.owners.inbox(ask.shard) if self._deps.owners.is_here(ask.shard) else None
        if inbox is None:
            raise Fenced("the shard is not open here")
        return inbox


def _named(fact: Fact) -> dict[str, object]:
    return {"seq": fact.seq, "id": fact.id, "event_type": fact.event_type, "source": fact.source}


def _reason(found: Mismatch | None) -> dict[str, object] | None:
    return None if found is None else {"condition": found.condition, "detail": found.detail}
