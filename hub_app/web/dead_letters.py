"""The hub's own dead letters: seen, sent once more, discarded. In the worker that owns the tenant's shard."""

from __future__ import annotations

import re
from typing import Any, Final

from aiohttp import web

from agents.dead_letters import NoEvent, Redriven, body_of
from hub_app.domain.errors import Fenced
from hub_app.domain.fact import Fact
from hub_app.domain.instants import rfc3339
from hub_app.domain.operation import SEQ_MAX, OperationKind, Span, begun, operation_id
from hub_app.telemetry import Event
from hub_app.web.bodies import parse_body
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Query
from hub_app.web.idempotency import REPLAYED, claim_of
from hub_app.web.operations import BulkOperations
from hub_app.web.paging import LIMIT, LIMIT_DEFAULT
from hub_app.web.problems import FieldError, Problem, conflict, invalid, json_response, not_found
from hub_app.web.pull import event_json
from hub_app.web.queries import parse_queries
from hub_app.web.serve import Ask
from hub_app.web.shapes import Flag, Instant, Member, Record, Text, Whole
from hub_app.web.shown import not_active
from hub_app.wire.dead_letters import MarkKind
from tables.dead_letters import DEAD, DeadLettersTable, Letter

ROOT: Final = "/v1/dead-letters"
STATES: Final = (DEAD, *(kind.value for kind in MarkKind))
_ID: Final = re.compile(r"[0-9a-f]{32}", re.ASCII)

LISTING: Final = (
    Query("cursor", Whole(low=0, high=SEQ_MAX), "the `next` of the answer before"),
    LIMIT,
    Query("subscription", Text(length_min=1, length_max=128), "of this subscription only"),
    Query("reason", Text(length_min=1, length_max=64), "that died for this reason only"),
    Query("type", Text(length_min=1, length_max=512), "of this event type only, as in loan.approved"),
    Query("state", Text(one_of=STATES), f"{DEAD} when not given"),
    Query("since", Instant(), "that died at this instant or later"),
    Query("until", Instant(), "that died before this instant"),
)
BULK: Final = Record(
    members={
        "subscription": Member(shape=Text(length_min=1, length_max=128), meaning="of this subscription only"),
        "reason": Member(shape=Text(length_min=1, length_max=64), meaning="that died for this reason only"),
        "type": Member(shape=Text(length_min=1, length_max=512), meaning="of this event type only"),
        "since": Member(shape=Instant(), meaning="that died at this instant or later"),
        "until": Member(shape=Instant(), meaning="that died before this instant"),
        "dry_run": Member(shape=Flag(), meaning="count only, deliver nothing; false when not given"),
    }
)


class DeadLetterRoutes:
    def __init__(self, deps: WebDeps, bulk: BulkOperations) -> None:
        self._deps, self._bulk = deps, bulk

    async def list(self, ask: Ask) -> web.Response | Problem:
        """Oldest first. A page may be short, or empty, with `next` moved on; null at the end."""
        query = parse_queries(ask.request, LISTING)
        if isinstance(query, Problem):
            return query
        page = self._table(ask).after(
            ask.tenant,
            query.get("cursor", -1),
            limit=query.get("limit", LIMIT_DEFAULT),
            wants=lambda letter: _wanted(letter, query),
        )
        return json_response(
            {
                "dead_letters": [_shown(letter) for letter in page.letters],
                "next": str(page.after) if page.more else None,
            }
        )

    async def read(self, ask: Ask) -> web.Response | Problem:
        """With the event, payload included; `event` is null where it was too large to be kept and is gone by now."""
        letter = self._letter(ask)
        if letter is None:
            return not_found("dead letter")
        body = body_of(self._deps.owners.inbox(ask.shard), self._table(ask), ask.tenant, letter)
        event = None
        if body is not None:
            ce = dict(body.headers)
            type = ce.get("ce-type", b"").decode("utf-8", "replace")
            fact = Fact(
                letter.seq,
                ask.tenant,
                letter.topic,
                letter.source,
                letter.event_id,
                type,
                letter.event_type,
                body.headers,
                body.value,
                letter.received_at_ms,
            )
            event = event_json(fact)
        return json_response({**_shown(letter), "event": event})

    async def redrive(self, ask: Ask) -> web.Response | Problem:
        """A new delivery of the event, with attempts of its own. 202."""
        claim = claim_of(ask.request.headers, f"POST {ROOT}/{ask.part('id')}/redrive", ask.body)
        if isinstance(claim, Problem):
            return claim
        letter = self._letter(ask)
        if letter is None:
            return not_found("dead letter")
        seed = f"key:{claim.key}" if claim else self._deps.entropy.token(16).hex()
        series = operation_id(ask.tenant, letter.delivery_id.hex(), seed)
        if letter.series == series:
            return _redriven(letter, series, replayed=True)
        subscription = self._deps.subscriptions.get(ask.tenant, letter.subscription)
        if subscription is None:
            return conflict("deleted", "the subscription of this dead letter was deleted; discard it")
        if not subscription.receives:
            return not_active(subscription)
        made = await self._deps.dead_letters.redrive(ask.shard, subscription, letter, series=series)
        if isinstance(made, NoEvent):
            return conflict("event-gone", "its payload is not kept any more, neither with it nor among the events")
        if not isinstance(made, Redriven):
            raise Fenced("the shard is not open here")
        self._deps.log.info(Event.REDRIVEN, delivery=letter.delivery_id.hex(), key=ask.caller.key_id)
        return _redriven(letter, series)

    async def redrive_many(self, ask: Ask) -> web.Response | Problem:
        """All that are dead now and match the filter, as an operation. 202."""
        body = parse_body(ask, BULK)
        if isinstance(body, Problem):
            return body
        instants = {name: Instant.ms(body[name]) for name in ("since", "until") if name in body}
        span = Span(from_ms=instants.get("since", 0), to_ms=instants.get("until", SEQ_MAX))
        if span.from_ms >= span.to_ms:
            return invalid(FieldError("/until", "is not after since"))
        wish = begun(
            id="",
            tenant=ask.tenant,
            kind=OperationKind.REDRIVE,
            subscription=body.get("subscription", ""),
            span=span,
            now_ms=self._deps.clock.now_ms(),
            dry_run=body.get("dry_run", False),
            where={name: body[name] for name in ("reason", "type") if name in body},
        )
        return await self._bulk.begin(ask, f"POST {ROOT}/redrive", wish)

    async def discard(self, ask: Ask) -> web.Response | Problem:
        """It leaves the list; 204, also when it was discarded before."""
        letter = self._letter(ask)
        if letter is None:
            return not_found("dead letter")
        if letter.state != MarkKind.DISCARDED.value:
            await self._deps.dead_letters.discard(ask.shard, ask.tenant, letter)
            self._deps.log.info(Event.DISCARDED, delivery=letter.delivery_id.hex(), key=ask.caller.key_id)
        return web.Response(status=204)

    def _letter(self, ask: Ask) -> Letter | None:
        id = ask.part("id")
        return self._table(ask).get(ask.tenant, bytes.fromhex(id)) if _ID.fullmatch(id) else None

    def _table(self, ask: Ask) -> DeadLettersTable:
        table = self._deps.dead_letters.table(ask.shard) if self._deps.owners.is_here(ask.shard) else None
        if table is None:
            raise Fenced("the shard is not open here")
        return table


def _wanted(letter: Letter, query: dict[str, Any]) -> bool:
    found: bool = (
        letter.state == query.get("state", DEAD)
        and query.get("subscription", letter.subscription) == letter.subscription
        and query.get("reason", letter.reason) == letter.reason
        and query.get("type", letter.event_type) == letter.event_type
        and query.get("since", 0) <= letter.died_at_ms < query.get("until", SEQ_MAX)
    )
    return found


def _shown(letter: Letter) -> dict[str, object]:
    return {
        "id": letter.delivery_id.hex(),
        "state": letter.state,
        "subscription": letter.subscription,
        "destination": letter.destination,
        "seq": letter.seq,
        "source": letter.source,
        "event_id": letter.event_id,
        "event_type": letter.event_type,
        "reason": letter.reason,
        "status": letter.status,
        "error": letter.error or None,
        "attempts": letter.attempts,
        "received_at": rfc3339(letter.received_at_ms),
        "died_at": rfc3339(letter.died_at_ms),
        "payload_bytes": letter.payload_bytes,
        "series": letter.series or None,
        "state_at": rfc3339(letter.state_at_ms) if letter.state_at_ms else None,
    }


def _redriven(letter: Letter, series: str, *, replayed: bool = False) -> web.Response:
    headers = {REPLAYED: "true"} if replayed else {}
    return json_response({"id": letter.delivery_id.hex(), "series": series}, status=202, headers=headers)
