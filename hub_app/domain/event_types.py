"""Patterns of event types: `<resource>.<event>`, with `*` for either part or for the whole.

A fact that was published without a resource type has its whole `ce-type` as event type, with any number of dots. A
pattern without `*` and with another number of dots than one names such a type whole; `*` for a part stands for a text
without dots.
"""

from __future__ import annotations

from hub_app.domain.attributes import TYPE_PREFIX, no_control
from hub_app.domain.filters import is_unicode
from hub_app.domain.limits import EVENT_TYPE_CHARS_MAX

ANY = "*"


def pattern_problem(text: object) -> str | None:
    """Why this is no pattern, or None."""
    if not isinstance(text, str) or not text or len(text) > EVENT_TYPE_CHARS_MAX:
        return f"must be a text of 1 to {EVENT_TYPE_CHARS_MAX} characters, as in loan_application.approved"
    if not no_control(text) or not is_unicode(text) or text != text.strip():
        return "must be printable text without a space at either end"
    if text == ANY:
        return None
    parts = text.split(".")
    if not all(parts):
        return "has an empty part"
    if len(parts) == 2:
        inside = any("*" in part and part != ANY for part in parts)
        return "takes * for a whole part only, as in loan_application.* or *.approved" if inside else None
    if "*" in text:
        return "takes * as the whole pattern, or for a part of <resource>.<event>"
    if text.startswith(TYPE_PREFIX) and len(parts) == 5:
        # Legal as text, and would match nothing: the three strings that look alike (docs/wire.md).
        return f"is a ce-type: write {parts[3]}.{parts[4]}, and pin the origin {parts[2]}"
    return None


def patterns_for(event_type: str) -> tuple[str, ...]:
    """Every pattern that matches `event_type`, the narrowest first."""
    resource, dot, event = event_type.partition(".")
    if not dot or not resource or not event or "." in event:
        return (event_type, ANY)
    return (event_type, f"{resource}.*", f"*.{event}", "*.*", ANY)
