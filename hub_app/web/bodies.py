"""A body judged by its shape: what most routes do first."""

from __future__ import annotations

from typing import Any

from hub_app.web.problems import Problem, invalid
from hub_app.web.serve import Ask
from hub_app.web.shapes import Record
from hub_app.web.strict_json import parse_json


def parse_body(ask: Ask, shape: Record, *, needed: bool = True) -> dict[str, Any] | Problem:
    """The object that was sent, every error of it otherwise. Without `needed` no body is an empty object."""
    if not needed and not ask.body:
        return {}
    parsed = parse_json(ask.body, ask.request.headers.get("Content-Type"))
    if isinstance(parsed, Problem):
        return parsed
    errors = tuple(shape.check(parsed.value, ""))
    if errors or not isinstance(parsed.value, dict):
        return invalid(*errors)
    return parsed.value
