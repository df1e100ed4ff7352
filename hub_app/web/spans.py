"""Which past events a request is about: by seq (both ends included) or by the time of arrival (the end excluded)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hub_app.domain.operation import SEQ_MAX, Span
from hub_app.web.problems import FieldError
from hub_app.web.shapes import Instant, Member, Whole

_SEQ: Final = Whole(low=0, high=SEQ_MAX)
SPAN_MEMBERS: Final[Mapping[str, Member]] = {
    "from_seq": Member(shape=_SEQ, meaning="the first event's seq"),
    "to_seq": Member(shape=_SEQ, meaning="the last event's seq; all there are when not given"),
    "from": Member(shape=Instant(), meaning="events that arrived at this instant or later"),
    "to": Member(shape=Instant(), meaning="events that arrived before this instant"),
}


def span_of(body: Mapping[str, Any], at: str = "") -> Span | FieldError:
    """The span of a body whose members passed their shapes. It has to begin somewhere."""
    if "from_seq" not in body and "from" not in body:
        return FieldError(at, "say where to begin: from_seq, or from (an instant)")
    span = Span(
        from_seq=body.get("from_seq", 0),
        to_seq=body.get("to_seq", SEQ_MAX),
        from_ms=Instant.ms(body["from"]) if "from" in body else 0,
        to_ms=Instant.ms(body["to"]) if "to" in body else SEQ_MAX,
    )
    if span.from_seq > span.to_seq:
        return FieldError(f"{at}/to_seq", "is before from_seq")
    if span.from_ms >= span.to_ms:
        return FieldError(f"{at}/to", "is not after from")
    return span
