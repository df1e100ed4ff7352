"""What is asked of a queue: query and body of a receive or a settlement, each range named where it is left."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from aiohttp import web

from hub_app.domain.limits import (
    QUEUE_DELAYS_S,
    QUEUE_RECEIVED_MAX,
    QUEUE_TOKENS_MAX,
    QUEUE_WAIT_S,
    QUEUE_WAIT_S_MAX,
    QUEUE_WAIT_S_MIN,
    SECOND_MS,
)
from hub_app.domain.queue import Operation
from hub_app.web.event_grid_errors import Refusal, argument_invalid, bad_request
from hub_app.web.event_grid_path import SETTLING, Place
from hub_app.web.forwarding import DEADLINE, is_carried
from hub_app.web.problems import Problem
from hub_app.web.strict_json import parse_json


class Receiving(NamedTuple):
    most: int
    wait_ms: int


class Settling(NamedTuple):
    operation: Operation
    tokens: list[str]
    delay_ms: int


def query_of(request: web.Request) -> dict[str, str]:
    """Names in lower case: those of Event Grid are compared so."""
    return {name.lower(): value for name, value in request.query.items()}


def _number(query: Mapping[str, str], name: str, default: int, low: int, high: int) -> int | Refusal:
    text = query.get(name.lower())
    if text is None:
        return default
    fits = text.isascii() and text.isdigit() and len(text) <= 6 and low <= int(text) <= high
    return int(text) if fits else argument_invalid(name, f"a whole number from {low} to {high}")


def receiving(query: Mapping[str, str]) -> Receiving | Refusal:
    most = _number(query, "maxEvents", 1, 1, QUEUE_RECEIVED_MAX)
    if isinstance(most, Refusal):
        return most
    wait_s = _number(query, "maxWaitTime", QUEUE_WAIT_S, QUEUE_WAIT_S_MIN, QUEUE_WAIT_S_MAX)
    return wait_s if isinstance(wait_s, Refusal) else Receiving(most, wait_s * SECOND_MS)


def settling(place: Place, query: Mapping[str, str], request: web.Request, body: bytes) -> Settling | Refusal | Problem:
    operation, delay_s = SETTLING[place.operation], 0
    text = query.get("releasedelayinseconds")
    if operation is Operation.RELEASE and text is not None:
        if text not in map(str, QUEUE_DELAYS_S):
            return argument_invalid("releaseDelayInSeconds", f"one of {', '.join(map(str, QUEUE_DELAYS_S))}")
        delay_s = int(text)
    parsed = parse_json(body, request.headers.get("Content-Type"))
    if isinstance(parsed, Problem):
        return parsed
    tokens = parsed.value.get("lockTokens") if isinstance(parsed.value, dict) else None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        return bad_request("lockTokens must be a list of texts.")
    if len(tokens) > QUEUE_TOKENS_MAX:
        return argument_invalid("lockTokens", f"a list of at most {QUEUE_TOKENS_MAX} tokens")
    return Settling(operation, tokens, delay_s * SECOND_MS)


def within_deadline(request: web.Request, wait_ms: int) -> int:
    """A carried request is answered before its sender gives up."""
    deadline = request.headers.get(DEADLINE, "")
    if is_carried(request.headers) and deadline.isascii() and deadline.isdigit() and len(deadline) <= 9:
        return min(wait_ms, int(deadline))
    return wait_ms
