"""A sample event of a request (CloudEvents JSON) as the fact that it would be."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from hub_app.domain.attributes import TYPE_PREFIX
from hub_app.domain.fact import Fact
from hub_app.web.problems import FieldError, pointer

_NAME: Final = re.compile(r"[a-z0-9]{1,20}", re.ASCII)
ATTRIBUTES_MAX: Final = 100


def sample_fact(event: Mapping[str, Any], tenant: str, *, now_ms: int, at: str) -> Fact | tuple[FieldError, ...]:
    """Needed is `type`, with or without the prefix of the application: `studio.lerian.lender.loan.approved` or
    `loan.approved`. Every other attribute as a delivery would carry it."""
    errors = list(_problems(event, at))
    if errors:
        return tuple(errors)
    type = event["type"]
    parts = type.split(".")
    full = type.startswith(TYPE_PREFIX) and len(parts) == 5
    source = str(event.get("source") or (parts[2] if full else "sample"))
    resource = event.get("resourcetype") or (parts[3] if full else parts[0] if len(parts) == 2 else "")
    name = event.get("eventtype") or (parts[4] if full else parts[1] if len(parts) == 2 else "")
    attributes = {
        "specversion": "1.0",
        "id": "sample",
        "source": source,
        "datacontenttype": "application/json",
        **({"resourcetype": resource, "eventtype": name} if resource and name else {}),
        **{key: value for key, value in event.items() if key not in ("data", "data_base64")},
        "tenantid": tenant,
    }
    headers = tuple((f"ce-{key}", _text(value).encode()) for key, value in attributes.items())
    event_type = f"{resource}.{name}" if resource and name else type
    return Fact(0, tenant, source, source, str(attributes["id"]), type, event_type, headers, _payload(event), now_ms)


def _problems(event: Mapping[str, Any], at: str) -> list[FieldError]:
    found = []
    if not isinstance(event.get("type"), str) or not event["type"]:
        found.append(FieldError(f"{at}/type", "is required: loan.approved, or the whole ce-type"))
    if len(event) > ATTRIBUTES_MAX:
        found.append(FieldError(at, f"has more than {ATTRIBUTES_MAX} members"))
    for name, value in event.items():
        if name in ("data", "data_base64"):
            continue
        if not _NAME.fullmatch(name):
            found.append(FieldError(at + pointer(name[:100]), "is no attribute: 1 to 20 lower-case letters or digits"))
        elif not isinstance(value, str | int | bool) or (isinstance(value, str) and not value.isprintable()):
            found.append(FieldError(at + pointer(name), "expected a printable text, a whole number, true or false"))
    if "data_base64" in event:
        if "data" in event:
            found.append(FieldError(f"{at}/data_base64", "give either data or data_base64"))
        elif _decoded(event["data_base64"]) is None:
            found.append(FieldError(f"{at}/data_base64", "expected base64"))
    return found


def _payload(event: Mapping[str, Any]) -> bytes:
    if "data_base64" in event:
        return _decoded(event["data_base64"]) or b""
    return orjson.dumps(event["data"]) if "data" in event else b""


def _decoded(value: object) -> bytes | None:
    try:
        return base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        return None


def _text(value: object) -> str:
    return ("true" if value else "false") if isinstance(value, bool) else str(value)
