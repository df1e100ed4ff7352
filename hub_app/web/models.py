"""Schemas (JSON Schema 2020-12): what they are written with, and those of subscriptions as requests write them, made
from the bounds that judge them. `web.schemas` has all of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from hub_app.domain import limits
from hub_app.domain.filters import OPERATORS

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
SEQ: Final[Schema] = {"type": "integer", "minimum": 0}
ID: Final[Schema] = {"type": "string", "pattern": "^[A-Za-z0-9_]+$"}


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def maybe(schema: Schema) -> Schema:
    """The schema, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def obj(properties: Mapping[str, Schema], *, optional: tuple[str, ...] = (), more: bool = False) -> Schema:
    """An object with these members, all there but the optional ones."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        **({} if more else {"additionalProperties": False}),
    }


def items(schema: Schema) -> Schema:
    return {"type": "array", "items": schema}


def page(name: str, schema: Schema) -> Schema:
    return obj({name: items(schema), "next": {**maybe(TEXT), "description": "the next cursor; null at the end"}})


# -- what is taken -----------------------------------------------------------------------------------------------------
def filter_schema() -> Schema:
    key = {"type": "string", "minLength": 1, "maxLength": limits.FILTER_KEY_BYTES_MAX}
    number: Schema = {"type": "number"}
    values: dict[str, Schema] = {
        "number": number,
        "range": {"type": "array", "items": number, "minItems": 2, "maxItems": 2},
        "bool": FLAG,
        "string": {"type": "string", "maxLength": limits.FILTER_VALUE_CHARS_MAX},
    }
    variants: list[Schema] = []
    for (kind, field), group in groupby(OPERATORS.items(), key=lambda item: (item[1].type, item[1].field)):
        members: dict[str, Schema] = {
            "operatorType": {"type": "string", "enum": [name for name, _ in group]},
            "key": key,
        }
        if field == "value":
            members["value"] = values[kind]
        elif field == "values":
            bounds = {"minItems": 1, "maxItems": limits.FILTER_VALUES_MAX}
            members["values"] = {"type": "array", "items": values[kind], **bounds}
        variants.append(obj(members))
    return {"anyOf": variants}


def webhook(*, needed: bool) -> Schema:
    headers = {
        "type": "object",
        "maxProperties": limits.STATIC_HEADERS_MAX,
        "additionalProperties": TEXT if needed else maybe(TEXT),
    }
    url = {"type": "string", "minLength": 1, "maxLength": limits.URL_CHARS_MAX, "format": "uri"}
    members: dict[str, Schema] = {
        "type": {"type": "string", "enum": ["webhook"]},
        "url": url,
        "headers": maybe(headers),
        "timeout_ms": maybe({"type": "integer", "minimum": limits.SINK_TIMEOUT_MS_MIN}),
    }
    return obj(members, optional=("headers", "timeout_ms") if needed else tuple(members))


def queue(*, needed: bool) -> Schema:
    name = {"type": "string", "minLength": 1, "maxLength": limits.QUEUE_NAME_BYTES_MAX}
    lock_s = {"type": "integer", "minimum": 1, "maximum": limits.QUEUE_LOCK_MS_MAX // limits.SECOND_MS}
    members: dict[str, Schema] = {
        "type": {"type": "string", "enum": ["queue"]},
        "topic": name,
        "name": name,
        "receiveLockDurationInSeconds": maybe(lock_s),
        "maxDeliveryCount": maybe({"type": "integer", "minimum": 1, "maximum": limits.QUEUE_DELIVERIES_MAX}),
        "eventTimeToLive": maybe({"type": "string", "description": "ISO 8601, such as P1DT12H"}),
    }
    return obj(members, optional=tuple(name for name in members if not needed or name not in ("type", "topic", "name")))


def wish(*, needed: bool, draft: bool = False) -> Schema:
    """`needed`: to create; else to change, or (`draft`) to try out."""
    event_types = {
        "type": "array",
        "minItems": 1,
        "maxItems": limits.EVENT_TYPES_MAX,
        "items": {"type": "string", "minLength": 1, "maxLength": limits.EVENT_TYPE_CHARS_MAX},
    }
    origin = {
        "type": "array",
        "maxItems": limits.ORIGINS_MAX,
        "items": {"type": "string", "minLength": 1, "maxLength": limits.ORIGIN_BYTES_MAX},
    }
    filters = {"type": "array", "maxItems": limits.FILTERS_MAX, "items": ref("Filter")}
    members: dict[str, Schema] = {
        "name": {"type": "string", "minLength": 1, "maxLength": limits.NAME_CHARS_MAX},
        "event_types": event_types,
        "origin": maybe(origin),
        "filters": maybe(filters),
        "sink": ref("SinkWish" if needed or draft else "SinkChange"),
        "enabled": FLAG,
        **({"verify": FLAG} if needed or draft else {}),
    }
    example = {
        "name": "loans to crm",
        "event_types": ["loan_application.*"],
        "filters": [{"operatorType": "NumberGreaterThan", "key": "data.amount", "value": 1000}],
        "sink": {"type": "webhook", "url": "https://crm.example.com/in"},
    }
    optional = tuple(name for name in members if not needed or name not in ("name", "event_types", "sink"))
    return {**obj(members, optional=optional), "examples": [example if needed else {"name": "loans to the new crm"}]}
