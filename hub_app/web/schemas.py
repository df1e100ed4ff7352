"""Every schema of the API's document, by name. What is taken is made from the shapes that judge it; what is given is
held against what is really answered (`tests/contract/test_openapi.py`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hub_app.domain.delivery import OutcomeKind
from hub_app.domain.operation import OperationKind, OperationState
from hub_app.domain.operator import OperatorKind
from hub_app.domain.subscription import Verification
from hub_app.web.admin import NEW_KEY
from hub_app.web.changes import ROTATION
from hub_app.web.dead_letters import BULK, STATES
from hub_app.web.models import (
    FLAG,
    ID,
    INSTANT,
    SEQ,
    TEXT,
    WHOLE,
    Schema,
    filter_schema,
    items,
    maybe,
    obj,
    page,
    queue,
    ref,
    webhook,
    wish,
)
from hub_app.web.observed import REPAIR
from hub_app.web.operations import REPLAY
from hub_app.web.preview import PREVIEW
from hub_app.web.problems import TYPE_PREFIX
from hub_app.web.trial import TRIAL

_SUBSCRIPTION: Final[dict[str, Schema]] = {
    "id": ID,
    "tenant": TEXT,
    "name": TEXT,
    "event_types": items(TEXT),
    "origin": items(TEXT),
    "filters": items(ref("Filter")),
    "sink": {
        "anyOf": [
            obj({"type": TEXT, "url": TEXT, "headers": {"type": "object"}, "timeout_ms": WHOLE}),
            queue(needed=True),
        ]
    },
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
    "id": ID,
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

_OPERATION: Final = obj(
    {
        "id": ID,
        "kind": {"type": "string", "enum": [kind.value for kind in OperationKind]},
        "state": {"type": "string", "enum": [state.value for state in OperationState]},
        "subscription": maybe(TEXT),
        "dry_run": FLAG,
        "looked_at": {**WHOLE, "description": "events or dead letters seen so far"},
        "made": {**WHOLE, "description": "deliveries made, or that would be"},
        "detail": maybe(TEXT),
        "created_at": INSTANT,
        "updated_at": INSTANT,
    }
)
_REASON: Final[dict[str, Schema]] = {"condition": TEXT, "detail": TEXT}
_NAMED: Final[dict[str, Schema]] = {"seq": SEQ, "id": TEXT, "event_type": TEXT, "source": TEXT}
_PREVIEWED: Final[Schema] = {
    "anyOf": [
        obj({"matched": FLAG, "why_not": maybe(obj(_REASON))}),
        obj(
            {
                "looked_at": WHOLE,
                "matched": WHOLE,
                "first": items(obj(_NAMED)),
                "why_not": items(obj({**_NAMED, **_REASON})),
                "next_seq": maybe(SEQ),
            }
        ),
    ]
}
_ATTEMPT: Final = obj(
    {
        "delivery_id": ID,
        "seq": SEQ,
        "series": maybe(TEXT),
        "attempt": {"type": "integer", "minimum": 1},
        "outcome": {"type": "string", "enum": [kind.value for kind in OutcomeKind]},
        "at": INSTANT,
        "duration_ms": WHOLE,
        "status": maybe(WHOLE),
        "error": maybe(TEXT),
        "reason": maybe(TEXT),
        "next_at": maybe(INSTANT),
        "answer": {**TEXT, "description": "how the sink's answer begins"},
    }
)
_DELIVERY: Final = obj({"state": TEXT, "next_at": maybe(INSTANT), "attempts": items(ref("Attempt"))})
_BREAKER: Final[dict[str, Schema]] = {
    "state": TEXT,
    "failures": WHOLE,
    "opened_at": maybe(INSTANT),
    "until": maybe(INSTANT),
}
_STREAK: Final[dict[str, Schema]] = {
    "first_failure": INSTANT,
    "last_failure": INSTANT,
    "window_percent": {**maybe(WHOLE), "description": "of the time after which it is disabled; null where nobody is"},
    "warned_percent": WHOLE,
    "disables_at": {**maybe(INSTANT), "description": "unless a delivery succeeds; null: not before another failure"},
    "disable_wanted": FLAG,
}
_HEALTH: Final = obj(
    {
        "destination": TEXT,
        "breaker": maybe(obj(_BREAKER)),
        "streak": maybe(obj(_STREAK)),
        "counts": obj({"delivered": WHOLE, "failed": WHOLE, "dead": WHOLE}),
        "counted_since": maybe(INSTANT),
        "last": items(ref("Attempt")),
        "backlog": WHOLE,
        "backlog_is_more": FLAG,
        "attempting": WHOLE,
        "oldest_due": maybe(INSTANT),
    }
)
_VERDICT: Final = obj(
    {
        "subscription": TEXT,
        "name": TEXT,
        "matched": FLAG,
        "why_not": maybe(obj(_REASON)),
        "delivery": maybe(_DELIVERY),
    }
)
_WHY: Final = obj(
    {"seq": SEQ, "event_type": TEXT, "source": TEXT, "subscriptions": items(_VERDICT), "next": maybe(TEXT)}
)
_TRIED: Final = obj(
    {
        "delivered": FLAG,
        "status": maybe(WHOLE),
        "error": maybe(TEXT),
        "detail": maybe(TEXT),
        "duration_ms": WHOLE,
        "answer": {**TEXT, "description": "how the sink's answer begins"},
        "event_id": TEXT,
        "delivery_id": TEXT,
    }
)
_LETTER: Final[dict[str, Schema]] = {
    "id": ID,
    "state": {"type": "string", "enum": list(STATES)},
    "subscription": TEXT,
    "destination": TEXT,
    "seq": SEQ,
    "source": TEXT,
    "event_id": TEXT,
    "event_type": TEXT,
    "reason": TEXT,
    "status": maybe(WHOLE),
    "error": maybe(TEXT),
    "attempts": WHOLE,
    "received_at": INSTANT,
    "died_at": INSTANT,
    "payload_bytes": WHOLE,
    "series": maybe(TEXT),
    "state_at": maybe(INSTANT),
}
_DRAFT: Final = {"event_types": ["loan.*"], "filters": [{"operatorType": "IsNotNull", "key": "data.id"}]}

_TOLD: Final[dict[str, Schema]] = {
    "id": ID,
    "kind": {"type": "string", "enum": [kind.value for kind in OperatorKind]},
    "at": INSTANT,
    "destination": maybe(TEXT),
    "subscription": maybe(TEXT),
    "detail": TEXT,
}
_SEEN: Final[dict[str, Schema]] = {
    "topic": TEXT,
    "partition": WHOLE,
    "offset": WHOLE,
    "at": INSTANT,
    "tenant": TEXT,
    "payload_bytes": maybe(WHOLE),
    "payload_base64": {**TEXT, "description": "its first 16 KiB"},
    "payload_cut": FLAG,
}
_OBSERVED: Final = obj(
    {
        **_SEEN,
        "id": ID,
        "source_topic": TEXT,
        "error_class": TEXT,
        "error_message": TEXT,
        "retries": maybe(WHOLE),
        "first_failure_at": maybe(INSTANT),
        "producer": TEXT,
        "origin": maybe(obj({"topic": TEXT, "partition": WHOLE, "offset": WHOLE})),
        "cause_kind": TEXT,
        "event_id": TEXT,
        "event_type": TEXT,
        "payload_omitted": FLAG,
    }
)
_QUARANTINED: Final = obj({**_SEEN, "id": TEXT, "reason": TEXT, "detail": TEXT, "headers": items(items(maybe(TEXT)))})

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Problem": _PROBLEM,
    "FieldError": _ERROR,
    "Filter": filter_schema(),
    "SinkWish": {"anyOf": [webhook(needed=True), queue(needed=True)]},
    "SinkChange": {"anyOf": [webhook(needed=False), queue(needed=False)]},
    "SubscriptionWish": wish(needed=True),
    "SubscriptionChange": wish(needed=False),
    "Draft": wish(needed=False, draft=True),
    "Subscription": obj(_SUBSCRIPTION),
    "SubscriptionMade": obj(
        {**_SUBSCRIPTION, "secret": {"type": "string", "pattern": "^whsec_"}, "verification": _VERIFICATION},
        optional=("secret", "verification"),
    ),
    "SubscriptionVerified": obj({**_SUBSCRIPTION, "verification": _VERIFICATION}, optional=("verification",)),
    "SubscriptionPage": page("subscriptions", ref("Subscription")),
    "Rotation": ROTATION.schema(),
    "Rotated": obj({**_SUBSCRIPTION, "secret": TEXT, "previous_secret_until": maybe(INSTANT)}),
    "Preview": {
        **PREVIEW.schema(),
        "examples": [
            {"subscription": _DRAFT, "event": {"type": "loan.approved", "data": {"id": 7}}},
            {"subscription": _DRAFT, "range": {"from_seq": 0}},
        ],
    },
    "Previewed": _PREVIEWED,
    "Why": _WHY,
    "Trial": TRIAL.schema(),
    "Tried": _TRIED,
    "Replay": {**REPLAY.schema(), "examples": [{"from_seq": 0, "dry_run": True}]},
    "Operation": _OPERATION,
    "OperationPage": page("operations", ref("Operation")),
    "DeadLetter": obj(_LETTER),
    "DeadLetterRead": obj({**_LETTER, "event": maybe(ref("Event"))}),
    "DeadLetterPage": page("dead_letters", ref("DeadLetter")),
    "Redrive": {**BULK.schema(), "examples": [{"reason": "exhausted", "dry_run": True}]},
    "Redriven": obj({"id": ID, "series": ID}),
    "OperatorEvent": obj(_TOLD),
    "OperatorEventPage": obj({"operator_events": items(ref("OperatorEvent")), "next": TEXT}),
    "ToldPage": page("operator_events", obj({"tenant": TEXT, **_TOLD})),
    "Attempt": _ATTEMPT,
    "AttemptPage": page("attempts", ref("Attempt")),
    "Health": _HEALTH,
    "Observed": _OBSERVED,
    "ObservedPage": page("dead_letters", ref("Observed")),
    "Quarantined": _QUARANTINED,
    "QuarantinePage": page("records", ref("Quarantined")),
    "Repair": {**REPAIR.schema(), "examples": [{"headers": {"ce-tenantid": "acme"}}]},
    "Readmitted": obj({"tenant": TEXT, "source": TEXT, "event_id": TEXT}),
    "Event": _EVENT,
    "EventPage": obj({"events": items(ref("Event")), "next": TEXT, "head": maybe(SEQ)}),
    "KeyWish": {**NEW_KEY.schema(), "examples": [{"name": "crm", "scopes": ["manage", "receive"]}]},
    "Key": obj(_KEY),
    "KeyMade": obj({**_KEY, "key": {**maybe(TEXT), "description": "shown this once"}}),
    "KeyPage": page("keys", ref("Key")),
}
