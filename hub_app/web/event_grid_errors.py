"""Refusals in the form of Event Grid: `{"error": {"code", "message", "details": []}}`.

`Retry-After` stands on 429 and 503 alone, since its clients repeat any refusal that carries one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from aiohttp import web

from hub_app.web.problems import Problem, json_response

_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
_CODES: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    408: "RequestTimeout",
    409: "Conflict",
    413: "PayloadTooLarge",
    415: "UnsupportedMediaType",
    421: "MisdirectedRequest",
    422: "BadRequest",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}
_REPEATABLE: Final = (429, 503)


class Refusal(NamedTuple):
    status: int
    code: str
    message: str
    headers: Mapping[str, str] = _NO_HEADERS


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def argument_invalid(name: str, range: str) -> Refusal:
    """A parameter outside of its range, which the message names."""
    return Refusal(400, "ArgumentInvalid", f"{name} must be {range}.")


def not_found(what: str) -> Refusal:
    return Refusal(404, "NotFound", f"The {what} does not exist.")


def too_large(message: str) -> Refusal:
    return Refusal(413, _CODES[413], message)


def refusal_of(problem: Problem) -> Refusal:
    """A refusal of the rest of the API, as this one says it."""
    keep = ("WWW-Authenticate", "Allow", *(("Retry-After",) if problem.status in _REPEATABLE else ()))
    headers = {name: value for name, value in problem.headers.items() if name in keep or name.startswith("RateLimit-")}
    return Refusal(problem.status, _CODES.get(problem.status, "InternalServerError"), problem.detail, headers)


def refused(refusal: Refusal) -> web.Response:
    body = {"error": {"code": refusal.code, "message": refusal.message, "details": []}}
    return json_response(body, status=refusal.status, headers=refusal.headers)
