"""API keys of tenants: made, listed and deleted by an admin, in the worker that owns the tenant's shard."""

from __future__ import annotations

import base64
from hashlib import blake2b
from typing import Any, Final
from urllib.parse import quote

from aiohttp import web

from agents.registrations import KEYS_PER_TENANT_MAX, Idempotent, Refusal, Written
from hub_app.domain.apikey import ApiKey
from hub_app.domain.idempotency import Answer, Claim, Clash
from hub_app.domain.ids import SEP
from hub_app.domain.instants import rfc3339
from hub_app.telemetry import Event
from hub_app.web.auth import KEY_ID_BYTES, SECRET_BYTES, TENANT_SCOPES, key_text, secret_digest
from hub_app.web.deps import WebDeps
from hub_app.web.idempotency import REPLAYED, claim_of, other_request
from hub_app.web.paging import page_of, parse_paging
from hub_app.web.problems import Problem, conflict, invalid, json_response, not_found
from hub_app.web.serve import Ask
from hub_app.web.shapes import ListOf, Member, Record, Text
from hub_app.web.strict_json import parse_json

REUSES_MAX: Final = 8

NEW_KEY: Final = Record(
    members={
        "name": Member(shape=Text(length_max=200), meaning="what it is for, for people"),
        "scopes": Member(
            shape=ListOf(item=Text(one_of=TENANT_SCOPES), items_min=1, items_max=len(TENANT_SCOPES), unique=True),
            meaning="what it may do",
            required=True,
        ),
    }
)


class Admin:
    def __init__(self, deps: WebDeps) -> None:
        self._deps = deps

    async def create(self, ask: Ask) -> web.Response | Problem:
        """201 with the key: the only answer that shows it. Only its digest is kept, so that a repetition under the same
        idempotency key is answered without it."""
        claim = claim_of(ask.request.headers, f"POST {_location(ask.tenant)}", ask.body)
        if isinstance(claim, Problem):
            return claim
        parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
        if isinstance(parsed, Problem):
            return parsed
        errors = tuple(NEW_KEY.check(parsed.value, ""))
        if errors or not isinstance(parsed.value, dict):
            return invalid(*errors)
        return await self._make(ask, parsed.value, claim)

    async def _make(self, ask: Ask, wish: dict[str, Any], claim: Claim | None) -> web.Response | Problem:
        """An id is not used twice: an idempotency key that comes again after its time makes another one."""
        parts = [f"key:{claim.key}" if claim else self._deps.entropy.token(KEY_ID_BYTES).hex()]
        for _ in range(REUSES_MAX):
            secret = _base32(self._deps.entropy.token(SECRET_BYTES))
            key = ApiKey(
                id=_key_id(ask.tenant, parts),
                tenant=ask.tenant,
                name=wish.get("name", ""),
                scopes=frozenset(wish["scopes"]),
                secret_sha256=secret_digest(secret),
                created_at_ms=self._deps.clock.now_ms(),
            )
            result = await self._deps.key_store.create(key, Idempotent(claim, key.id) if claim else None)
            if isinstance(result, Written):
                self._deps.log.info(Event.KEY_CREATED, key=key.id, by=ask.caller.key_id)
                return _made(key, key_text(key.id, secret))
            if result is Refusal.TOO_MANY:
                return conflict("limit", f"a tenant has at most {KEYS_PER_TENANT_MAX} keys; delete one first")
            earlier = self._deps.keys.row(ask.tenant, key.id)
            if isinstance(result, Answer):
                return _deleted_since() if earlier is None else _made(earlier, None)
            if result is not Refusal.EXISTS or earlier is None:
                return other_request()
            parts.append(str(earlier.created_at_ms))
        return other_request()

    async def list(self, ask: Ask) -> web.Response | Problem:
        paging = parse_paging(ask.request)
        if isinstance(paging, Problem):
            return paging
        rows = {(key.created_at_ms, key.id): key for key in self._deps.keys.of_tenant(ask.tenant)}
        page, next_cursor = page_of(rows, paging)
        return json_response({"keys": [_public(key) for key in page], "next": next_cursor})

    async def delete(self, ask: Ask) -> web.Response | Problem:
        id = ask.part("id")
        claim = claim_of(ask.request.headers, f"DELETE {_location(ask.tenant)}/{id}", ask.body)
        if isinstance(claim, Problem):
            return claim
        result = await self._deps.key_store.delete(
            ask.tenant, id, idempotent=Idempotent(claim, "") if claim is not None else None
        )
        if isinstance(result, Answer):
            return web.Response(status=204, headers={REPLAYED: "true"})
        if isinstance(result, Clash):
            return other_request()
        if result is Refusal.MISSING:
            return not_found("key")
        self._deps.log.info(Event.KEY_DELETED, key=id, by=ask.caller.key_id)
        return web.Response(status=204)


def _location(tenant: str) -> str:
    return f"/admin/tenants/{quote(tenant, safe='')}/keys"


def _made(key: ApiKey, text: str | None) -> web.Response:
    """`text` is None for a repetition."""
    headers = {"Location": f"{_location(key.tenant)}/{key.id}"}
    if text is None:
        headers[REPLAYED] = "true"
    return json_response({**_public(key), "key": text}, status=201, headers=headers)


def _deleted_since() -> Problem:
    return conflict("deleted", "the key made with this Idempotency-Key was deleted; use a new Idempotency-Key")


def _key_id(tenant: str, parts: list[str]) -> str:
    text = SEP.join((tenant, *parts))
    return _base32(blake2b(text.encode(), digest_size=KEY_ID_BYTES).digest())


def _public(key: ApiKey) -> dict[str, object]:
    return {
        "id": key.id,
        "tenant": key.tenant,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "created_at": rfc3339(key.created_at_ms),
    }


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()
