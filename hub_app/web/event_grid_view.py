"""An event as the clients of Event Grid read it. One that their reader does not take costs them the whole answer, so
what is emitted is narrower than what CloudEvents allows (docs/queues.md, "Receive")."""

from __future__ import annotations

import base64
from typing import Final

import orjson

from agents.queue_steps import Delivered, TokenError
from hub_app.domain.fact import Fact
from hub_app.domain.instants import parse_rfc3339, rfc3339
from hub_app.domain.publishing import EXTENSION, is_json_type

_TRACE: Final = frozenset(("traceparent", "tracestate"))
_OWN: Final = frozenset(("data", "database64", "specversion", "id", "source", "type"))
_MESSAGES: Final = {TokenError.BAD: "Token is malformed.", TokenError.LOST: "Token has expired."}
_NULL: Final = b"null"


def received_json(delivered: Delivered) -> dict[str, object]:
    """One entry of a receive's answer."""
    return {
        "brokerProperties": {
            "lockToken": delivered.token,
            "deliveryCount": delivered.row.deliveries,
            "sequenceNumber": delivered.row.seq,
            "lockedUntil": rfc3339(delivered.row.until_ms),
        },
        "event": event_json(delivered.fact),
    }


def settled_json(tokens: list[str], results: list[TokenError | None]) -> dict[str, object]:
    """Both lists, also when one is empty, in the order of the request."""
    done = [token for token, error in zip(tokens, results, strict=True) if error is None]
    failed = [
        {"lockToken": token, "error": {"code": error.value, "message": _MESSAGES[error]}}
        for token, error in zip(tokens, results, strict=True)
        if error is not None
    ]
    return {"succeededLockTokens": done, "failedLockTokens": failed}


def event_json(fact: Fact) -> dict[str, object]:
    """CloudEvents JSON: no null, no two data fields, `time` in UTC with at most six digits, plain extension names."""
    event: dict[str, object] = {"specversion": "1.0", "id": fact.id, "source": fact.source, "type": fact.type}
    content_type = None
    for header, value in fact.headers:
        name = header[3:] if header.startswith("ce-") else header if header in _TRACE else ""
        if not EXTENSION.fullmatch(name) or name in _OWN or name in event:
            continue
        text: str | None = value.decode("utf-8", "replace")
        if name == "time":
            text = utc(str(text))
        elif name == "datacontenttype":
            content_type = text
        if text:
            event[name] = text
    event.update(_data(fact.value, content_type or "application/json"))
    return event


def utc(text: str) -> str | None:
    """An RFC 3339 instant in UTC, fractions cut at six digits; None where Python's calendar has no such year."""
    try:
        whole = rfc3339(parse_rfc3339(text))[:19]
    except ValueError:
        return None
    fraction = ""
    if text[19:20] == ".":
        digits = text[20:29]
        fraction = digits[: len(digits) - len(digits.lstrip("0123456789"))][:6]
    if whole.startswith("0000"):
        return None
    return f"{whole}.{fraction}Z" if fraction else f"{whole}Z"


def _data(value: bytes, content_type: str) -> dict[str, object]:
    """As JSON if that is what it is, as text if it says so, else as bytes; nothing for nothing."""
    if not value:
        return {}
    if is_json_type(content_type):
        if value.strip() != _NULL and _is_json(value):
            return {"data": orjson.Fragment(value)}
    elif content_type.strip().lower().startswith("text/"):
        try:
            return {"data": value.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": base64.b64encode(value).decode()}


def _is_json(value: bytes) -> bool:
    try:
        orjson.loads(value)
    except orjson.JSONDecodeError:
        return False
    return True
