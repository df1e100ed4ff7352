"""Changes of a subscription that is there: `PATCH`, and a new secret. In the worker that owns the tenant's shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from aiohttp import web

from agents.registrations import Idempotent, Refusal, Written
from agents.sealing import seal_headers, secret_context
from hub_app.domain.idempotency import Answer, Claim, Clash, find
from hub_app.domain.instants import rfc3339
from hub_app.domain.signing import secret_text
from hub_app.domain.subscription import (
    OVERLAP_MS_DEFAULT,
    OVERLAP_MS_MAX,
    QueueSink,
    Subscription,
    patched,
    rotated,
)
from hub_app.ports import SecretUnavailable
from hub_app.telemetry import Event
from hub_app.web.deps import WebDeps
from hub_app.web.idempotency import claim_of, other_request
from hub_app.web.judging import Judge
from hub_app.web.problems import Problem, invalid, not_found
from hub_app.web.serve import Ask
from hub_app.web.shapes import Duration, Member, Record
from hub_app.web.shown import ROUTE, changed_meanwhile, no_secret, not_a_webhook, precondition, shown
from hub_app.web.strict_json import parse_json

SECRET_BYTES: Final = 32
CHANGES_MAX: Final = 5  # others may change the subscription between a look and a write

ROTATION: Final = Record(
    members={
        "overlap": Member(
            shape=Duration(low_ms=0, high_ms=OVERLAP_MS_MAX, meaning="0s to 7d"),
            meaning="how long the secret before stays valid, beside the new one; 24h when not given",
        )
    }
)


class _Change(NamedTuple):
    """`after` is what the subscription should be, `answer` what a repetition needs to be answered."""

    after: Subscription
    answer: str


Make = Callable[[Subscription], _Change | Problem]


class Changes:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps
        self._judge = Judge(deps.settings)

    async def patch(self, ask: Ask) -> web.Response | Problem:
        """As the body says; what it does not name stays. A changed address goes back to `pending`."""
        claim = claim_of(ask.request.headers, f"PATCH {ROUTE}/{ask.part('id')}", ask.body)
        if isinstance(claim, Problem):
            return claim
        parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
        if isinstance(parsed, Problem):
            return parsed
        wish = parsed.value

        def make(current: Subscription) -> _Change | Problem:
            draft = self._judge.change(wish, current)
            if isinstance(draft, Problem):
                return draft
            try:
                sink = seal_headers(self._deps.keyring, current.tenant, current.id, draft.sink, current.sink)
            except SecretUnavailable as error:
                return no_secret(str(error))
            return _Change(patched(current, replace(draft, sink=sink), now_ms=self._deps.clock.now_ms()), "")

        changed = await self._change(ask, claim, make)
        if isinstance(changed, Problem):
            return changed
        after, answer = changed
        if answer is None:
            self._deps.log.info(Event.SUBSCRIPTION_CHANGED, subscription=after.id, key=ask.caller.key_id)
        return shown(after, replayed=answer is not None)

    async def rotate(self, ask: Ask) -> web.Response | Problem:
        """A new secret now, shown this once; the one before stays valid beside it for the overlap."""
        claim = claim_of(ask.request.headers, f"POST {ROUTE}/{ask.part('id')}/secret:rotate", ask.body)
        if isinstance(claim, Problem):
            return claim
        overlap_ms = self._overlap_ms(ask)
        if isinstance(overlap_ms, Problem):
            return overlap_ms
        secret = secret_text(self._deps.entropy.token(SECRET_BYTES))

        def make(current: Subscription) -> _Change | Problem:
            if isinstance(current.sink, QueueSink):
                return not_a_webhook()
            try:
                sealed = self._deps.keyring.seal(secret.encode(), context=secret_context(current))
            except SecretUnavailable as error:
                return no_secret(str(error))
            now_ms = self._deps.clock.now_ms()
            return _Change(rotated(current, secret=sealed, overlap_ms=overlap_ms, now_ms=now_ms), sealed)

        changed = await self._change(ask, claim, make)
        if isinstance(changed, Problem):
            return changed
        after, answer = changed
        if answer is None:
            self._deps.log.info(Event.SECRET_ROTATED, subscription=after.id, key=ask.caller.key_id)
        return self._shown_once(after, answer)

    # -- steps -----------------------------------------------------------------------------------------------------
    def _overlap_ms(self, ask: Ask) -> int | Problem:
        if not ask.body:
            return OVERLAP_MS_DEFAULT
        parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
        if isinstance(parsed, Problem):
            return parsed
        errors = tuple(ROTATION.check(parsed.value, ""))
        if errors or not isinstance(parsed.value, dict):
            return invalid(*errors)
        overlap = parsed.value.get("overlap")
        return OVERLAP_MS_DEFAULT if overlap is None else Duration.ms(overlap)

    async def _change(self, ask: Ask, claim: Claim | None, make: Make) -> tuple[Subscription, str | None] | Problem:
        """(the subscription as it is now, None), or with the remembered answer when this request was done before."""
        deps, id = self._deps, ask.part("id")
        for _ in range(CHANGES_MAX):
            current = deps.subscriptions.get(ask.tenant, id)
            if current is None:
                return not_found("subscription")
            known = self._known(current, claim)
            if known is not None:
                return other_request() if isinstance(known, Clash) else (current, known.text)
            stale = precondition(ask.request.headers.get("If-Match"), current)
            if stale is not None:
                return stale
            change = make(current)
            if isinstance(change, Problem):
                return change
            if change.after is current and claim is None:
                return current, None
            idempotent = Idempotent(claim, change.answer) if claim else None
            result = await deps.subscription_store.replace(current, change.after, idempotent)
            if isinstance(result, Written):
                return change.after, None
            if isinstance(result, Clash):
                return other_request()
            if isinstance(result, Answer):
                return deps.subscriptions.get(ask.tenant, id) or current, result.text
            if result is Refusal.MISSING:
                return not_found("subscription")
        return changed_meanwhile()

    def _known(self, current: Subscription, claim: Claim | None) -> Answer | Clash | None:
        if claim is None:
            return None
        answers = self._deps.subscriptions.answers(current.tenant, current.id)
        now_ms, ttl_ms = self._deps.clock.now_ms(), self._deps.settings.idempotency_ttl_ms
        return find(answers, current.tenant, claim, now_ms=now_ms, ttl_ms=ttl_ms)

    def _shown_once(self, after: Subscription, answer: str | None) -> web.Response | Problem:
        """With the secret of this very rotation, also when another one came after it."""
        until_ms = after.previous_secret_until_ms
        try:
            secret = self._deps.keyring.open(answer or after.secret, context=secret_context(after)).decode()
        except SecretUnavailable as error:
            return no_secret(str(error))
        more = {"secret": secret, "previous_secret_until": None if until_ms is None else rfc3339(until_ms)}
        return shown(after, more, replayed=answer is not None)
