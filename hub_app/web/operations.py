"""Bulk operations: a replay is begun here; any can be looked at and cancelled. `agents.operations` carries them out."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiohttp import web

from agents.registrations import Idempotent, Refusal, Written
from hub_app.domain.idempotency import Answer
from hub_app.domain.operation import (
    RUNNING_PER_TENANT_MAX,
    Operation,
    OperationKind,
    OperationState,
    begun,
    ended,
    operation_id,
    to_public,
)
from hub_app.telemetry import Event
from hub_app.web.bodies import parse_body
from hub_app.web.deps import WebDeps
from hub_app.web.idempotency import REPLAYED, claim_of, other_request
from hub_app.web.paging import page_of, parse_paging
from hub_app.web.problems import FieldError, Problem, conflict, invalid, json_response, not_found
from hub_app.web.serve import Ask
from hub_app.web.shapes import Flag, Member, Record
from hub_app.web.shown import ROUTE, changed_meanwhile, not_active
from hub_app.web.spans import SPAN_MEMBERS, span_of

REUSES_MAX: Final = 8
CHANGES_MAX: Final = 5
OPERATIONS: Final = "/v1/operations"

REPLAY: Final = Record(
    members={
        **SPAN_MEMBERS,
        "dry_run": Member(shape=Flag(), meaning="count only, deliver nothing; false when not given"),
    }
)


class BulkOperations:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def replay(self, ask: Ask) -> web.Response | Problem:
        """Deliveries of past events, made anew for one subscription. 202 with the operation."""
        subscription = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        if subscription is None:
            return not_found("subscription")
        body = parse_body(ask, REPLAY)
        if isinstance(body, Problem):
            return body
        span = span_of(body)
        if isinstance(span, FieldError):
            return invalid(span)
        dry_run = body.get("dry_run", False)
        if not dry_run and not subscription.receives:
            return not_active(subscription)
        wish = begun(
            id="",
            tenant=ask.tenant,
            kind=OperationKind.REPLAY,
            subscription=subscription.id,
            span=span,
            now_ms=self._deps.clock.now_ms(),
            dry_run=dry_run,
        )
        return await self.begin(ask, f"POST {ROUTE}/{subscription.id}/replay", wish)

    async def begin(self, ask: Ask, route: str, wish: Operation) -> web.Response | Problem:
        """Writes the operation down, under an id of its own; the same request again is answered with the same one."""
        claim = claim_of(ask.request.headers, route, ask.body)
        if isinstance(claim, Problem):
            return claim
        deps, parts = self._deps, [f"key:{claim.key}" if claim else self._deps.entropy.token(16).hex()]
        for _ in range(REUSES_MAX):
            operation = replace(wish, id=operation_id(ask.tenant, *parts))
            result = await deps.operation_store.create(operation, Idempotent(claim, "") if claim else None)
            if isinstance(result, Written):
                deps.operation_begun()
                deps.log.info(Event.OPERATION_BEGUN, operation=operation.id, kind=operation.kind, key=ask.caller.key_id)
                return _accepted(operation)
            if result is Refusal.TOO_MANY:
                return conflict(
                    "limit", f"at most {RUNNING_PER_TENANT_MAX} operations run at once; wait for one to end"
                )
            earlier = deps.operations.get(ask.tenant, operation.id)
            if isinstance(result, Answer) and earlier is not None:
                return _accepted(earlier, replayed=True)
            if result is not Refusal.EXISTS or earlier is None:
                return other_request()
            parts.append(str(earlier.created_at_ms))
        return other_request()

    async def list(self, ask: Ask) -> web.Response | Problem:
        paging = parse_paging(ask.request)
        if isinstance(paging, Problem):
            return paging
        rows = {(row.created_at_ms, row.id): row for row in self._deps.operations.of_tenant(ask.tenant)}
        page, next_cursor = page_of(rows, paging)
        return json_response({"operations": [to_public(row) for row in page], "next": next_cursor})

    async def read(self, ask: Ask) -> web.Response | Problem:
        found = self._deps.operations.get(ask.tenant, ask.part("id"))
        return not_found("operation") if found is None else json_response(to_public(found))

    async def cancel(self, ask: Ask) -> web.Response | Problem:
        """What was made stands; nothing more is made. One that is over stays as it is."""
        for _ in range(CHANGES_MAX):
            found = self._deps.operations.get(ask.tenant, ask.part("id"))
            if found is None:
                return not_found("operation")
            after = ended(found, OperationState.CANCELLED, now_ms=self._deps.clock.now_ms())
            if after is found or isinstance(await self._deps.operation_store.replace(found, after), Written):
                return json_response(to_public(after))
        return changed_meanwhile("operation")


def _accepted(operation: Operation, *, replayed: bool = False) -> web.Response:
    headers = {"Location": f"{OPERATIONS}/{operation.id}"}
    if replayed:
        headers[REPLAYED] = "true"
    return json_response(to_public(operation), status=202, headers=headers)
