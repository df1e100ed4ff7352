"""API keys of tenants: made, listed and deleted by an admin, in the worker that owns the tenant's shard."""

from __future__ import annotations

import base64
from typing import Final
from urllib.parse import quote

from aiohttp import web

from agents.registrations import KEYS_PER_TENANT_MAX, Refusal
from hub_app.domain.apikey import ApiKey
from hub_app.domain.instants import rfc3339
from hub_app.telemetry import Event
from hub_app.web.auth import KEY_ID_BYTES, SECRET_BYTES, TENANT_SCOPES, key_text, secret_digest
from hub_app.web.deps import WebDeps
from hub_app.web.paging import page_of, parse_paging
from hub_app.web.problems import Problem, conflict, invalid, json_response, not_found
from hub_app.web.serve import Ask
from hub_app.web.shapes import ListOf, Member, Record, Text
from hub_app.web.strict_json import parse_json

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
        """201 with the key: the only answer that shows it."""
        parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
        if isinstance(parsed, Problem):
            return parsed
        errors = tuple(NEW_KEY.check(parsed.value, ""))
        if errors or not isinstance(parsed.value, dict):
            return invalid(*errors)
        secret = _base32(self._deps.entropy.token(SECRET_BYTES))
        key = ApiKey(
            id=_base32(self._deps.entropy.token(KEY_ID_BYTES)),
            tenant=ask.tenant,
            name=parsed.value.get("name", ""),
            scopes=frozenset(parsed.value["scopes"]),
            secret_sha256=secret_digest(secret),
            created_at_ms=self._deps.clock.now_ms(),
        )
        if await self._deps.key_store.create(key) is Refusal.TOO_MANY:
            return conflict("limit", f"a tenant has at most {KEYS_PER_TENANT_MAX} keys; delete one first")
        self._deps.log.info(Event.KEY_CREATED, key=key.id, by=ask.caller.key_id)
        location = f"/admin/tenants/{quote(ask.tenant, safe='')}/keys/{key.id}"
        return json_response(
            {**_public(key), "key": key_text(key.id, secret)}, status=201, headers={"Location": location}
        )

    async def list(self, ask: Ask) -> web.Response | Problem:
        paging = parse_paging(ask.request)
        if isinstance(paging, Problem):
            return paging
        rows = {(key.created_at_ms, key.id): key for key in self._deps.keys.of_tenant(ask.tenant)}
        page, next_cursor = page_of(rows, paging)
        return json_response({"keys": [_public(key) for key in page], "next": next_cursor})

    async def delete(self, ask: Ask) -> web.Response | Problem:
        if await self._deps.key_store.delete(ask.tenant, ask.part("id")) is Refusal.MISSING:
            return not_found("key")
        self._deps.log.info(Event.KEY_DELETED, key=ask.part("id"), by=ask.caller.key_id)
        return web.Response(status=204)


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
