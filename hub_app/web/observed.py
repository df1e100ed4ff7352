"""For administrators: producers' dead letters as they were observed; quarantined records, and their way back in. Read
from their topics, in whichever worker is asked. Error texts and payloads may hold personal data."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final, NamedTuple

from aiohttp import web

from agents.archive import Place
from hub_app.domain.cloudevents import Accept, Drop, judge
from hub_app.domain.instants import rfc3339
from hub_app.telemetry import Event
from hub_app.topics import names
from hub_app.web.archived import AFTER_PLACE, Archived, bounded_look, place_of
from hub_app.web.bodies import parse_body
from hub_app.web.deps import WebDeps
from hub_app.web.describe import Query
from hub_app.web.paging import LIMIT
from hub_app.web.problems import FieldError, Problem, conflict, invalid, json_response, not_found
from hub_app.web.queries import parse_queries
from hub_app.web.serve import Ask
from hub_app.web.shapes import Instant, Member, Open, Record, Text
from hub_app.wire import observations, quarantine
from hub_app.wire.record import Unreadable

_COMMON: Final = (
    AFTER_PLACE,
    LIMIT,
    Query("source", Text(length_min=1, length_max=256), "the producer's name"),
    Query("tenant", Text(length_min=1, length_max=256), "of this tenant only"),
    Query("since", Instant(), "written at this instant or later"),
    Query("until", Instant(), "written before this instant"),
)
OBSERVED: Final = (*_COMMON, Query("class", Text(length_min=1, length_max=128), "the error's class"))
QUARANTINED: Final = (*_COMMON, Query("class", Text(length_min=1, length_max=128), "the reason"))

REPAIR: Final = Record(
    members={
        "headers": Member(shape=Open(), meaning="headers to be set (text), or to go (null); others stay"),
        "value_base64": Member(shape=Text(length_max=90_000), meaning="another payload"),
    }
)


class Judged(NamedTuple):
    """A quarantined record at its place."""

    place: Place
    at_ms: int
    original: quarantine.Original


class Observation:
    def __init__(self, deps: WebDeps) -> None:
        self._deps, self._names = deps, names(deps.settings.topic_prefix)
        self._archived = Archived(deps)

    async def observed(self, ask: Ask) -> web.Response | Problem:
        """Records about one origin that stand in a page are shown once."""
        query = parse_queries(ask.request, OBSERVED)
        if isinstance(query, Problem):
            return query
        seen: set[str] = set()

        def pick(record: Any) -> dict[str, Any] | None:
            row = observations.read_value(record.value)
            if isinstance(row, Unreadable) or row["id"] in seen or not _wanted(row, query):
                return None
            seen.add(row["id"])
            return row

        return await self._archived.page(self._names.observations, query, "dead_letters", pick)

    async def quarantined(self, ask: Ask) -> web.Response | Problem:
        query = parse_queries(ask.request, QUARANTINED)
        if isinstance(query, Problem):
            return query

        def pick(record: Any) -> dict[str, Any] | None:
            found = _judged(record)
            if found is None:
                return None
            row = _shown(found)
            return row if _wanted(row, query) else None

        return await self._archived.page(self._names.quarantine, query, "records", pick)

    async def ingest(self, ask: Ask) -> web.Response | Problem:
        """A quarantined record, repaired, judged as ingest would; accepted it is a fact like any other. The same again
        is one fact, for its identity is the same."""
        place = place_of(ask.part("id"))
        record = None
        if place is not None:
            async with bounded_look():
                record = await self._deps.archive.one(self._names.quarantine, place)
        found = None if record is None else _judged(record)
        if found is None:
            return not_found("record")
        body = parse_body(ask, REPAIR, needed=False)
        if isinstance(body, Problem):
            return body
        repaired = _repaired(found.original, body)
        if isinstance(repaired, Problem):
            return repaired
        headers, value = repaired
        settings = self._deps.settings
        tenant = None if settings.multi_tenant_enabled else settings.tenant_id
        verdict = judge(found.original.topic, headers, value, default_tenant=tenant)
        if isinstance(verdict, Drop):
            return invalid(FieldError("/headers/ce-systemevent", f"would be dropped: {verdict.reason}"))
        if not isinstance(verdict, Accept):
            return invalid(FieldError("/headers", f"{verdict.reason}: {verdict.detail}"))
        origin = (found.original.partition, found.original.offset)
        await self._deps.readmit(verdict, value or b"", origin)
        self._deps.log.info(Event.READMITTED, place=ask.part("id"), key=ask.caller.key_id)
        ce = dict(verdict.headers)
        shown = {"tenant": verdict.tenant, "source": verdict.topic, "event_id": ce["ce-id"].decode()}
        return json_response(shown, status=202)


def _judged(record: Any) -> Judged | None:
    original = quarantine.read(record.headers, record.key, record.value)
    if isinstance(original, Unreadable):
        return None
    return Judged(Place(record.partition, record.offset), record.timestamp, original)


def _wanted(row: dict[str, Any], query: dict[str, Any]) -> bool:
    source = query.get("source")
    if source is not None and row["topic"] not in (f"lerian.streaming.{source}", f"lerian.streaming.{source}.dlq"):
        return False
    kind = row.get("error_class", row.get("reason"))
    return bool(query.get("tenant", row["tenant"]) == row["tenant"] and query.get("class", kind) == kind)


def _shown(found: Judged) -> dict[str, Any]:
    original = found.original
    last = {name.lower(): (value or b"").decode("utf-8", "replace") for name, value in original.headers}
    value = original.value or b""
    return {
        "id": f"{found.place.partition}.{found.place.offset}",
        "at": rfc3339(found.at_ms),
        "reason": original.reason,
        "detail": original.detail,
        "topic": original.topic,
        "partition": original.partition,
        "offset": original.offset,
        "tenant": last.get("ce-tenantid", last.get("ce_tenantid", "")),
        "headers": [
            [name, None if v is None else v.decode("utf-8", "backslashreplace")] for name, v in original.headers
        ],
        "payload_bytes": original.payload_bytes or len(value),
        "payload_base64": base64.b64encode(value[: observations.PAYLOAD_BYTES_KEPT]).decode(),
        "payload_cut": len(value) > observations.PAYLOAD_BYTES_KEPT,
    }


def _repaired(
    original: quarantine.Original, body: dict[str, Any]
) -> tuple[list[tuple[str, bytes | None]], bytes | None] | Problem:
    changes = {name.lower(): value for name, value in body.get("headers", {}).items()}
    errors = [
        FieldError(f"/headers/{name[:100]}", "expected a text, or null")
        for name, value in changes.items()
        if value is not None and not isinstance(value, str)
    ]
    value = original.value
    if "value_base64" in body:
        try:
            value = base64.b64decode(body["value_base64"], validate=True)
        except (binascii.Error, ValueError):
            errors.append(FieldError("/value_base64", "expected base64"))
    if errors:
        return invalid(*errors)
    if original.payload_bytes and "value_base64" not in body:
        return conflict("event-gone", "the payload was too large to be kept in quarantine: give value_base64")
    kept = [(name, data) for name, data in original.headers if name.lower() not in changes]
    added = [(name, text.encode()) for name, text in changes.items() if text is not None]
    return [*kept, *added], value
