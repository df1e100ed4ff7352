"""Refusals as values, and as RFC 9457 `application/problem+json`. Each names what is wrong and what would repair it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson
from aiohttp import web

TYPE_PREFIX: Final = "urn:streaming-hub:problem:"
ERRORS_MAX: Final = 50
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


class FieldError(NamedTuple):
    """`pointer` is a JSON pointer into the body (RFC 6901), or `?name` for a query parameter."""

    pointer: str
    detail: str


class Problem(NamedTuple):
    """`slug` ends the problem's type and never changes; `detail` is for people; `extra` are
    members of its own (RFC 9457, 3.2)."""

    status: int
    slug: str
    title: str
    detail: str
    errors: tuple[FieldError, ...] = ()
    headers: Mapping[str, str] = _NO_HEADERS
    extra: Mapping[str, object] = MappingProxyType({})


def pointer(*parts: str | int) -> str:
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def invalid(*errors: FieldError) -> Problem:
    """422: the body's fields. Every error found, up to a bound."""
    count = "1 field is" if len(errors) == 1 else f"{len(errors)} fields are"
    return Problem(422, "validation", "The request is not valid", f"{count} not acceptable", errors[:ERRORS_MAX])


def invalid_query(name: str, detail: str) -> Problem:
    error = FieldError(f"?{name}", detail)
    return Problem(400, "query", "A query parameter is not valid", f"{name}: {detail}", (error,))


def unauthenticated(detail: str) -> Problem:
    headers = {"WWW-Authenticate": 'Bearer realm="streaming-hub"'}
    return Problem(401, "unauthenticated", "No valid API key", detail, headers=headers)


def forbidden(scope: str) -> Problem:
    return Problem(403, "scope", "The key lacks a scope", f"this route needs the scope {scope}")


def not_found(what: str) -> Problem:
    return Problem(404, "not-found", "Not found", f"there is no such {what}")


def conflict(slug: str, detail: str) -> Problem:
    return Problem(409, slug, "Conflict with the present state", detail)


def unavailable(detail: str, *, retry_after_s: int = 1) -> Problem:
    """503: nothing was decided and nothing was done, come again."""
    return Problem(503, "unavailable", "Not available now", detail, headers={"Retry-After": str(retry_after_s)})


def failed() -> Problem:
    return Problem(500, "internal", "The hub failed", "an unexpected fault, written to the log of the worker")


def problem_response(problem: Problem, instance: str) -> web.Response:
    body: dict[str, object] = {
        "type": TYPE_PREFIX + problem.slug,
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
        "instance": instance,
        **problem.extra,
    }
    if problem.errors:
        body["errors"] = [error._asdict() for error in problem.errors]
    return web.Response(
        status=problem.status,
        body=orjson.dumps(body),
        content_type="application/problem+json",
        headers=dict(problem.headers),
    )


def json_response(value: object, *, status: int = 200, headers: Mapping[str, str] = _NO_HEADERS) -> web.Response:
    """A JSON answer that no cache keeps: every resource here is a tenant's."""
    return web.Response(
        status=status,
        body=orjson.dumps(value),
        content_type="application/json",
        headers={"Cache-Control": "no-store", **headers},
    )
