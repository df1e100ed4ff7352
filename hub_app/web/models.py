"""Schemas of what the API takes and gives (JSON Schema 2020-12), by name. What is taken is made from the shapes and
bounds that judge it; tests hold the rest against what is really answered (`tests/contract/test_openapi.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from hub_app.domain import limits
from hub_app.domain.drafts import SINKS
from hub_app.domain.filters import OPERATORS
from hub_app.domain.subscription import Verification
from hub_app.web.admin import NEW_KEY
from hub_app.web.changes import ROTATION
from hub_app.web.problems import TYPE_PREFIX

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
WHOLE: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
SEQ: Final[Schema] = {"type": "integer", "minimum": 0}
BUILT: Final = tuple(name for name, parse in SINKS.items() if parse is not None)
_ID_PATTERN: Final = "^[A-Za-z0-9_]+$"


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
def _filter() -> Schema:
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


def _sink(*, needed: bool) -> Schema:
    headers = {
        "type": "object",
        "maxProperties": limits.STATIC_HEADERS_MAX,
        "additionalProperties": TEXT if needed else maybe(TEXT),
    }
    url = {"type": "string", "minLength": 1, "maxLength": limits.URL_CHARS_MAX, "format": "uri"}
    members: dict[str, Schema] = {
        "type": {"type": "string", "enum": list(BUILT)},
        "url": url,
        "headers": maybe(headers),
        "timeout_ms": maybe({"type": "integer", "minimum": limits.SINK_TIMEOUT_MS_MIN}),
    }
    return obj(members, optional=("headers", "timeout_ms") if needed else tuple(members))


def _wish(*, needed: bool) -> Schema:
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
        "sink": ref("SinkWish" if needed else "SinkChange"),
        "enabled": FLAG,
        **({"verify": FLAG} if needed else {}),
    }
    example = {
        "name": "loans to crm",
        "event_types": ["loan_application.*"],
        "filters": [{"operatorType": "NumberGreaterThan", "key": "data.amount", "value": 1000}],
        "sink": {"type": "webhook", "url": "https://crm.example.com/in"},
    }
    optional = tuple(name for name in members if not needed or name not in ("name", "event_types", "sink"))
    return {**obj(members, optional=optional), "examples": [example if needed else {"name": "loans to the new crm"}]}


# -- what is given -----------------------------------------------------------------------------------------------------
_SUBSCRIPTION: Final[dict[str, Schema]] = {
    "id": {"type": "string", "pattern": _ID_PATTERN},
    "tenant": TEXT,
    "name": TEXT,
    "event_types": items(TEXT),
    "origin": items(TEXT),
    "filters": items(ref("Filter")),
    "sink": obj({"type": TEXT, "url": TEXT, "headers": {"type": "object"}, "timeout_ms": WHOLE}),
    "enabled": FLAG,
    "verification_state": {"type": "string", "enum": [state.value for state in Verification]},
    "disabled_reason": maybe(TEXT),
    "disabled_at": maybe(INSTANT),
    "created_at": INSTANT,
    "updated_at": INSTANT,
    "revision": {"type": "integer", "minimum": 1},
    "destination": TEXT,
}
_VERIFICATION: Final = obj({"verified": FLAG, "status": maybe(WHOLE), "detail": maybe(TEXT)})
_KEY: Final[dict[str, Schema]] = {
    "id": {"type": "string", "pattern": _ID_PATTERN},
    "tenant": TEXT,
    "name": TEXT,
    "scopes": items(TEXT),
    "created_at": INSTANT,
}
_EVENT: Final = obj(
    {
        "specversion": TEXT,
        "id": TEXT,
        "source": TEXT,
        "type": TEXT,
        "seq": SEQ,
        "receivedat": INSTANT,
        "data": {"description": "the payload, where it is JSON"},
        "data_base64": {"type": "string", "contentEncoding": "base64"},
    },
    optional=("data", "data_base64"),
    more=True,
)
_ERROR: Final = obj({"pointer": {**TEXT, "description": "into the body, or ?name of the query"}, "detail": TEXT})
_PROBLEM: Final = obj(
    {
        "type": {"type": "string", "pattern": f"^{TYPE_PREFIX}[a-z-]+$"},
        "title": TEXT,
        "status": WHOLE,
        "detail": TEXT,
        "instance": TEXT,
        "errors": items(ref("FieldError")),
    },
    optional=("errors",),
    more=True,
)

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Problem": _PROBLEM,
    "FieldError": _ERROR,
    "Filter": _filter(),
    "SinkWish": _sink(needed=True),
    "SinkChange": _sink(needed=False),
    "SubscriptionWish": _wish(needed=True),
    "SubscriptionChange": _wish(needed=False),
    "Subscription": obj(_SUBSCRIPTION),
    "SubscriptionMade": obj(
        {**_SUBSCRIPTION, "secret": {"type": "string", "pattern": "^whsec_"}, "verification": _VERIFICATION},
        optional=("verification",),
    ),
    "SubscriptionVerified": obj({**_SUBSCRIPTION, "verification": _VERIFICATION}, optional=("verification",)),
    "SubscriptionPage": page("subscriptions", ref("Subscription")),
    "Rotation": ROTATION.schema(),
    "Rotated": obj({**_SUBSCRIPTION, "secret": TEXT, "previous_secret_until": maybe(INSTANT)}),
    "Event": _EVENT,
    "EventPage": obj({"events": items(ref("Event")), "next": TEXT, "head": maybe(SEQ)}),
    "KeyWish": {**NEW_KEY.schema(), "examples": [{"name": "crm", "scopes": ["manage", "receive"]}]},
    "Key": obj(_KEY),
    "KeyMade": obj({**_KEY, "key": {**maybe(TEXT), "description": "shown this once"}}),
    "KeyPage": page("keys", ref("Key")),
}
