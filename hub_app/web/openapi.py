"""The API's document (OpenAPI 3.1), made from the routes' table and the schemas; and the page that shows it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Any, Final

import orjson
from aiohttp import web

from hub_app.web.auth import ADMIN
from hub_app.web.describe import Query
from hub_app.web.idempotency import HEADER as IDEMPOTENCY_KEY
from hub_app.web.idempotency import KEY_CHARS_MAX
from hub_app.web.models import Schema, ref
from hub_app.web.problems import Problem, not_found
from hub_app.web.schemas import SCHEMAS
from hub_app.web.serve import Route

EVERY: Final = (400, 401, 403, 408, 413, 421, 429, 500, 503)
"""What any route may answer (docs/http-api.md, "Errors")."""
MEANINGS: Final = {
    400: "not readable: JSON, a query parameter, a header",
    401: "no key, or one that is not known",
    403: "the key lacks the scope",
    404: "there is no such resource of this tenant",
    408: "the body came too slowly",
    409: "not in the present state",
    410: "the cursor is behind what is kept",
    412: "If-Match names another state",
    413: "the body is too large",
    415: "not a JSON body",
    421: "between workers only",
    422: "fields of the body are not acceptable, each named",
    429: "too many requests; see Retry-After",
    500: "the hub failed",
    503: "not decided or not done; see Retry-After",
}
_PART: Final = re.compile(r"\{(\w+)\}")
_PARTS: Final[dict[str, Schema]] = {
    "seq": {"type": "integer", "minimum": 0},
    "tenant": {"type": "string", "minLength": 1, "maxLength": 256},
}


def document(routes: Iterable[Route], version: str) -> dict[str, Any]:
    """The OpenAPI document as plain JSON values."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Streaming Hub", "version": version},
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "security": [{"key": []}],
        "paths": paths,
        "components": {
            "schemas": dict(SCHEMAS),
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "an API key: shk_<keyid>_<secret>"}
            },
        },
    }


def _operation(route: Route) -> dict[str, Any]:
    doc = route.doc
    operation: dict[str, Any] = {
        "operationId": _id(route),
        "summary": route.meaning,
        "description": f"Scope: `{route.scope}`.",
        "tags": ["admin" if route.scope == ADMIN else route.path.split("/")[2].partition(":")[0]],
        "parameters": [*_path_parameters(route), *(_query_parameter(query) for query in doc.query), *_headers(route)],
        "responses": _responses(route),
    }
    if doc.body is not None:
        content = {"application/json": {"schema": ref(doc.body)}}
        operation["requestBody"] = {"required": doc.body_needed, "content": content}
    return operation


def _id(route: Route) -> str:
    words = re.findall(r"[a-z]+", _PART.sub("one", route.path.removeprefix("/v1")))
    return "_".join([route.method.lower(), *words])


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    unknown: Schema = {"type": "string", "minLength": 1, "maxLength": 128}
    return [
        {"name": name, "in": "path", "required": True, "schema": _PARTS.get(name, unknown)}
        for name in _PART.findall(route.path)
    ]


def _query_parameter(query: Query) -> dict[str, Any]:
    schema = query.shape.schema()
    return {
        "name": query.name,
        "in": "query",
        "description": query.meaning,
        "schema": {"type": "array", "items": schema, "maxItems": 50} if query.repeated else schema,
    }


def _headers(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.doc.idempotent:
        text = {"type": "string", "pattern": f"^[!-~]{{1,{KEY_CHARS_MAX}}}$"}
        found.append({"name": IDEMPOTENCY_KEY, "in": "header", "schema": text, "description": "done once under it"})
    if route.doc.if_match:
        meaning = "change this state only"
        found.append({"name": "If-Match", "in": "header", "schema": {"type": "string"}, "description": meaning})
    return found


def _responses(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for status, name in route.doc.answers.items():
        found[str(status)] = {"description": route.meaning}
        if name is not None:
            found[str(status)]["content"] = {"application/json": {"schema": ref(name)}}
    problem = {"application/problem+json": {"schema": ref("Problem")}}
    for status in sorted({*EVERY, *_follows(route), *route.doc.refuses}):
        found[str(status)] = {"description": MEANINGS[status], "content": problem}
    return found


def _follows(route: Route) -> Sequence[int]:
    doc = route.doc
    return [
        *([404] if _PART.search(route.path) else []),
        *([415, 422] if doc.body is not None else []),
        *([409, 422] if doc.idempotent else []),
        *([412] if doc.if_match else []),
    ]


class Documents:
    """`/openapi.json`, and `/docs` where the deployment shows it."""

    def __init__(self, routes: Iterable[Route], version: str, *, explorer: bool) -> None:
        self._json = orjson.dumps(document(routes, version))
        self._explorer = explorer

    async def openapi(self, _request: web.Request) -> web.Response:
        return web.Response(body=self._json, content_type="application/json")

    async def docs(self, _request: web.Request) -> web.Response | Problem:
        """One page without anything from elsewhere: it reads `/openapi.json`."""
        if not self._explorer:
            return not_found("route")
        page = files("hub_app.web").joinpath("explorer.html").read_bytes()
        headers = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        }
        return web.Response(body=page, headers=headers)
