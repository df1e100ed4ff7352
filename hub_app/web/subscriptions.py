"""Subscriptions: create, read, list, delete, verify (`web.changes` has the rest). Runs in the worker that owns the
tenant's shard."""

from __future__ import annotations

from typing import Final, NamedTuple

from aiohttp import web

from agents.registrations import SUBSCRIPTIONS_PER_TENANT_MAX, Idempotent, Refusal, Result, Written
from agents.sealing import sealed, secret_context
from hub_app.domain.idempotency import Answer, Claim, Clash, find
from hub_app.domain.ids import subscription_id
from hub_app.domain.signing import secret_text
from hub_app.domain.subscription import Draft, QueueSink, Subscription, created, verified
from hub_app.domain.subscription_json import to_public
from hub_app.ports import SecretUnavailable
from hub_app.telemetry import Event
from hub_app.web.deps import WebDeps
from hub_app.web.idempotency import REPLAYED, claim_of, other_request
from hub_app.web.judging import Judge
from hub_app.web.paging import page_of, parse_paging
from hub_app.web.probe import Busy, Probed, Prober
from hub_app.web.problems import FieldError, Problem, conflict, json_response, not_found
from hub_app.web.serve import Ask
from hub_app.web.shown import ROUTE, busy, changed_meanwhile, etag, no_secret, precondition, shown
from hub_app.web.strict_json import parse_json

SECRET_BYTES: Final = 32
REUSES_MAX: Final = 8  # a key used again after its time makes a new id; this often within a subscription's life
CHANGES_MAX: Final = 5  # others may change the subscription between a look and a write


class Creation(NamedTuple):
    """A checked request to create. `seed` makes the id."""

    draft: Draft
    seed: str
    claim: Claim | None


class Subscriptions:
    def __init__(self, deps: WebDeps, prober: Prober) -> None:
        self._deps, self._prober = deps, prober
        self._judge = Judge(deps.settings)

    # -- routes ----------------------------------------------------------------------------------------------------
    async def create(self, ask: Ask) -> web.Response | Problem:
        creation = self._parse(ask)
        if isinstance(creation, Problem):
            return creation
        made = await self._make(ask.tenant, creation)
        if not isinstance(made, Subscription):
            return made
        self._deps.log.info(Event.SUBSCRIPTION_CREATED, subscription=made.id, key=ask.caller.key_id)
        probed: Probed | Busy | None = None
        if creation.draft.verify and not isinstance(made.sink, QueueSink):
            probed = await self._prober.probe(made)
            if isinstance(probed, Probed) and probed.verified:
                made = await self._activate(made, enable=False) or made
        return self._shown_once(made, probed)

    async def read(self, ask: Ask) -> web.Response | Problem:
        found = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        return not_found("subscription") if found is None else shown(found)

    async def list(self, ask: Ask) -> web.Response | Problem:
        paging = parse_paging(ask.request)
        if isinstance(paging, Problem):
            return paging
        rows = {(s.created_at_ms, s.id): s for s in self._deps.subscriptions.of_tenant(ask.tenant)}
        page, next_cursor = page_of(rows, paging)
        return json_response({"subscriptions": [to_public(row) for row in page], "next": next_cursor})

    async def delete(self, ask: Ask) -> web.Response | Problem:
        id = ask.part("id")
        claim = claim_of(ask.request.headers, f"DELETE {ROUTE}/{id}", ask.body)
        if isinstance(claim, Problem):
            return claim
        idempotent = Idempotent(claim, "") if claim else None
        for _ in range(CHANGES_MAX):
            found = self._deps.subscriptions.get(ask.tenant, id)
            stale = precondition(ask.request.headers.get("If-Match"), found) if found else None
            if stale is not None:
                return stale
            result = await self._deps.subscription_store.delete(ask.tenant, id, before=found, idempotent=idempotent)
            if isinstance(result, Answer):
                return web.Response(status=204, headers={REPLAYED: "true"})
            if isinstance(result, Clash):
                return other_request()
            if isinstance(result, Written):
                self._deps.log.info(Event.SUBSCRIPTION_DELETED, subscription=id, key=ask.caller.key_id)
                return web.Response(status=204)
            if result is Refusal.MISSING:
                return not_found("subscription")
        return changed_meanwhile()

    async def verify(self, ask: Ask) -> web.Response | Problem:
        """Success enables and activates; failure says why and changes nothing."""
        found = self._deps.subscriptions.get(ask.tenant, ask.part("id"))
        if found is None:
            return not_found("subscription")
        claim = claim_of(ask.request.headers, f"POST {ROUTE}/{found.id}/verify", ask.body)
        if isinstance(claim, Problem):
            return claim
        known = self._known(found, claim)
        if known is not None:
            return other_request() if isinstance(known, Clash) else shown(found, replayed=True)
        idempotent = Idempotent(claim, "") if claim else None
        if isinstance(found.sink, QueueSink):  # our own: there is nobody to ask
            enabled = await self._activate(found, enable=True, idempotent=idempotent)
            return changed_meanwhile() if enabled is None else shown(enabled)
        try:
            probed = await self._prober.probe(found)
        except SecretUnavailable as error:
            return no_secret(str(error))
        if isinstance(probed, Busy):
            return busy()
        if not probed.verified:
            self._deps.log.info(Event.SUBSCRIPTION_NOT_VERIFIED, subscription=found.id, detail=probed.detail)
            return _not_verified(probed)
        active = await self._activate(found, enable=True, idempotent=idempotent)
        if active is None:
            return conflict("changed", "the subscription was deleted or its address changed meanwhile; verify it again")
        return shown(active, {"verification": _verification(probed)})

    # -- steps -----------------------------------------------------------------------------------------------------
    def _parse(self, ask: Ask) -> Creation | Problem:
        claim = claim_of(ask.request.headers, f"POST {ROUTE}", ask.body)
        if isinstance(claim, Problem):
            return claim
        parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
        if isinstance(parsed, Problem):
            return parsed
        draft = self._judge.create(parsed.value)
        if isinstance(draft, Problem):
            return draft
        return Creation(draft, f"key:{claim.key}" if claim else self._deps.entropy.token(16).hex(), claim)

    async def _make(self, tenant: str, creation: Creation) -> Subscription | web.Response | Problem:
        """An answer that was given before is given again. An id is not used twice, so that no waiting job finds a
        stranger under it: a key that comes again after its time makes another id."""
        parts = [creation.seed]
        for _ in range(REUSES_MAX):
            id = subscription_id(tenant, *parts)
            used_at_ms = self._used_before(tenant, id, creation.claim)
            if used_at_ms is None:
                made = self._sealed(creation.draft, tenant, id)
                if isinstance(made, Problem):
                    return made
                idempotent = Idempotent(creation.claim, id) if creation.claim else None
                result = await self._deps.subscription_store.create(made, idempotent)
                if isinstance(result, Written):
                    return made
                if result is not Refusal.EXISTS:
                    return self._not_made(tenant, id, result)
                used_at_ms = made.created_at_ms
            parts.append(str(used_at_ms))
        return other_request()

    def _used_before(self, tenant: str, id: str, claim: Claim | None) -> int | None:
        """When the id was used by something that this request does not repeat; None when it is free to try."""
        earlier, answers = self._deps.subscriptions.get(tenant, id), self._deps.subscriptions.answers(tenant, id)
        if earlier is None and not answers:
            return None
        now_ms, ttl_ms = self._deps.clock.now_ms(), self._deps.settings.idempotency_ttl_ms
        if claim is not None and find(answers, tenant, claim, now_ms=now_ms, ttl_ms=ttl_ms) is not None:
            return None
        return earlier.created_at_ms if earlier is not None else answers[0].at_ms

    def _sealed(self, draft: Draft, tenant: str, id: str) -> Subscription | Problem:
        bare = created(draft, id=id, tenant=tenant, secret="", now_ms=self._deps.clock.now_ms())
        try:
            return sealed(self._deps.keyring, bare, secret_text(self._deps.entropy.token(SECRET_BYTES)))
        except SecretUnavailable as error:
            return no_secret(str(error))

    def _not_made(self, tenant: str, id: str, result: Result) -> web.Response | Problem:
        if result is Refusal.TOO_MANY:
            return conflict(
                "limit", f"a tenant has at most {SUBSCRIPTIONS_PER_TENANT_MAX} subscriptions; delete one first"
            )
        if result is Refusal.TAKEN:
            return conflict("queue-exists", "there is a queue of this topic and name already")
        if not isinstance(result, Answer):
            return other_request()
        earlier = self._deps.subscriptions.get(tenant, id)
        return _deleted_since() if earlier is None else self._shown_once(earlier, None, replayed=True)

    def _known(self, found: Subscription, claim: Claim | None) -> Answer | Clash | None:
        if claim is None:
            return None
        answers = self._deps.subscriptions.answers(found.tenant, found.id)
        now_ms, ttl_ms = self._deps.clock.now_ms(), self._deps.settings.idempotency_ttl_ms
        return find(answers, found.tenant, claim, now_ms=now_ms, ttl_ms=ttl_ms)

    async def _activate(
        self, probed: Subscription, *, enable: bool, idempotent: Idempotent | None = None
    ) -> Subscription | None:
        """Records that the probe passed, unless the subscription is gone or points elsewhere by now."""
        for _ in range(CHANGES_MAX):
            current = self._deps.subscriptions.get(probed.tenant, probed.id)
            if current is None or current.sink != probed.sink:
                return None
            active = verified(current, now_ms=self._deps.clock.now_ms(), enable=enable)
            if active == current or await self._replaced(current, active, idempotent):
                self._deps.log.info(Event.SUBSCRIPTION_VERIFIED, subscription=probed.id)
                return active
        return None

    async def _replaced(self, current: Subscription, active: Subscription, idempotent: Idempotent | None) -> bool:
        """Also when the same request, sent twice at once, did it."""
        result = await self._deps.subscription_store.replace(current, active, idempotent)
        return isinstance(result, Written | Answer)

    def _shown_once(
        self, made: Subscription, probed: Probed | Busy | None, *, replayed: bool = False
    ) -> web.Response | Problem:
        """201 with the secret: the only answer that shows it (and its repetition under the same idempotency key)."""
        body = to_public(made)
        if not isinstance(made.sink, QueueSink):
            try:
                body["secret"] = self._deps.keyring.open(made.secret, context=secret_context(made)).decode()
            except SecretUnavailable as error:
                return no_secret(str(error))
        if probed is not None:
            body["verification"] = _verification(probed)
        headers = {"Location": f"{ROUTE}/{made.id}", "ETag": etag(made)}
        if replayed:
            headers[REPLAYED] = "true"
        return json_response(body, status=201, headers=headers)


def _verification(probed: Probed | Busy) -> dict[str, object]:
    if isinstance(probed, Busy):
        return {"verified": False, "status": None, "detail": busy().detail}
    return {"verified": probed.verified, "status": probed.status, "detail": probed.detail or None}


def _not_verified(probed: Probed) -> Problem:
    error = FieldError("/sink/url", probed.detail)
    extra = {"verification": _verification(probed)}
    return Problem(422, "not-verified", "The sink did not accept the probe", probed.detail, (error,), extra=extra)


def _deleted_since() -> Problem:
    return conflict("deleted", "the subscription made with this Idempotency-Key was deleted; use a new key")
