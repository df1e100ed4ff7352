"""A test event: sent once, signed, answered with what came of it. No delivery, no attempt in the log, no retry."""

from __future__ import annotations

from typing import Final

import orjson
from aiohttp import web

from hub_app.domain.classify import answered, unanswered
from hub_app.domain.delivery import ResultKind
from hub_app.domain.egress import UrlProblem
from hub_app.domain.limits import ANSWER_START_BYTES_MAX
from hub_app.domain.subscription import QueueSink, Verification
from hub_app.ports import Answer, SecretUnavailable
from hub_app.web.bodies import parse_body
from hub_app.web.deps import WebDeps
from hub_app.web.probe import Busy, Prober, Sample, Sent
from hub_app.web.problems import Problem, json_response, not_found
from hub_app.web.serve import Ask
from hub_app.web.shapes import Anything, Member, Record
from hub_app.web.shown import busy, no_secret, not_a_webhook, not_active
from hub_app.wire.record import mask

MESSAGE: Final = "A test event."
TRIAL: Final = Record(members={"data": Member(shape=Anything(), meaning="the payload; a short message if not given")})


class Trial:
    def __init__(self, deps: WebDeps, prober: Prober) -> None:
        self._deps, self._prober = deps, prober

    async def send(self, ask: Ask) -> web.Response | Problem:
        """Also for a disabled subscription; not to an address that was never verified."""
        found = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        if found is None:
            return not_found("subscription")
        body = parse_body(ask, TRIAL, needed=False)
        if isinstance(body, Problem):
            return body
        if isinstance(found.sink, QueueSink):
            return not_a_webhook()
        if found.verification_state is not Verification.ACTIVE:
            return not_active(found)
        data = body.get("data", {"subscription": found.id, "message": MESSAGE})
        try:
            sent = await self._prober.send(found, Sample("test", orjson.dumps(data)))
        except SecretUnavailable as error:
            return no_secret(str(error))
        return busy() if isinstance(sent, Busy) else json_response(_outcome(sent))


def _outcome(sent: Sent) -> dict[str, object]:
    answer, start = sent.answer, b""
    if isinstance(answer, UrlProblem):
        result = unanswered("blocked_address", answer.detail)
    elif isinstance(answer, Answer):
        result, start = answered(answer.status, answer.retry_after), answer.body[:ANSWER_START_BYTES_MAX]
    else:
        result = unanswered(answer.kind, answer.detail)
    return {
        "delivered": result.kind is ResultKind.DELIVERED,
        "status": result.status,
        "error": result.error or None,
        "detail": mask(result.detail) or None,
        "duration_ms": sent.took_ms,
        "answer": start.decode("utf-8", "replace"),
        "event_id": sent.event_id,
        "delivery_id": sent.delivery_id.hex(),
    }
