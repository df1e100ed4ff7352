"""Requests to create or change a subscription, judged: every problem at once, unknown fields by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeGuard

from hub_app.domain.attributes import no_control
from hub_app.domain.event_types import pattern_problem
from hub_app.domain.filters import FieldProblem, Filter, escaped, is_unicode, parse_filters, to_json
from hub_app.domain.limits import (
    EVENT_TYPES_MAX,
    NAME_CHARS_MAX,
    ORIGIN_BYTES_MAX,
    ORIGINS_MAX,
    SINK_TIMEOUT_MS_MIN,
    STATIC_HEADERS_CHARS_MAX,
    STATIC_HEADERS_MAX,
)
from hub_app.domain.queue_sinks import QUEUE_RULES, QueueRules, judge_queue, queue_destination
from hub_app.domain.signing import static_header_problem
from hub_app.domain.subscription import Draft, QueueSink, SealedText, Sink, Subscription, WebhookSink
from hub_app.domain.subscription_json import MASK, looks_secret, sink_json

UrlCheck = Callable[[str], tuple[str, str]]
"""A URL as written -> (destination text, "") when it may be used, else ("", why not)."""

_FIELDS: Final = ("name", "event_types", "origin", "filters", "sink", "enabled", "verify")
_WEBHOOK_FIELDS: Final = ("type", "url", "headers", "timeout_ms")


class _Asked:
    """One request under judgement. Each method gives the value, or notes the problem and gives something harmless."""

    def __init__(self, check_url: UrlCheck, timeout_ms_max: int, queues: QueueRules) -> None:
        self.problems: list[FieldProblem] = []
        self.check_url, self.timeout_ms_max, self.queues = check_url, timeout_ms_max, queues

    def wrong(self, pointer: str, detail: str) -> None:
        self.problems.append(FieldProblem(pointer, detail))

    def only(self, obj: Mapping[str, object], known: tuple[str, ...], pointer: str = "") -> None:
        for name in obj:
            if name not in known:
                self.wrong(f"{pointer}/{escaped(name)}", f"unknown field; known are {', '.join(known)}")

    def name(self, value: object) -> str:
        if not is_text(value, NAME_CHARS_MAX) or not value.strip():
            self.wrong("/name", f"must be a text of 1 to {NAME_CHARS_MAX} characters, without control characters")
            return ""
        return value

    def flag(self, obj: Mapping[str, object], name: str) -> bool:
        value = obj.get(name, True)
        if not isinstance(value, bool):
            self.wrong(f"/{name}", "must be true or false")
        return value is True

    def event_types(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not 1 <= len(value) <= EVENT_TYPES_MAX:
            self.wrong("/event_types", f"must be a list of 1 to {EVENT_TYPES_MAX} event types")
            return ()
        for i, pattern in enumerate(value):
            problem = pattern_problem(pattern)
            if problem is not None:
                self.wrong(f"/event_types/{i}", problem)
        return _distinct(value)

    def origin(self, value: object) -> tuple[str, ...]:
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > ORIGINS_MAX:
            self.wrong("/origin", f"must be a list of at most {ORIGINS_MAX} sources")
            return ()
        for i, source in enumerate(value):
            if not is_text(source, ORIGIN_BYTES_MAX) or len(source.encode()) > ORIGIN_BYTES_MAX:
                self.wrong(f"/origin/{i}", f"must be a source of 1 to {ORIGIN_BYTES_MAX} bytes")
        return _distinct(value)

    def filters(self, value: object) -> tuple[Filter, ...]:
        parsed = parse_filters(value)
        self.problems += [one for one in parsed if isinstance(one, FieldProblem)]
        return tuple(one for one in parsed if isinstance(one, Filter))

    def sink(self, value: object) -> tuple[Sink, str]:
        if not isinstance(value, Mapping):
            self.wrong("/sink", "must be an object with a type")
            return _NO_SINK
        kind = value.get("type")
        if not isinstance(kind, str) or kind not in SINKS:
            self.wrong("/sink/type", f"must be one of {', '.join(SINKS)}")
            return _NO_SINK
        parse = SINKS[kind]
        if parse is None:
            self.wrong("/sink/type", f"{kind}: not built in this version; use webhook or queue")
            return _NO_SINK
        return parse(self, value)

    def webhook(self, obj: Mapping[str, object]) -> tuple[WebhookSink, str]:
        self.only(obj, _WEBHOOK_FIELDS, "/sink")
        url, destination = obj.get("url"), ""
        if not isinstance(url, str):
            self.wrong("/sink/url", "must be a URL")
        else:
            destination, problem = self.check_url(url)
            if problem:
                self.wrong("/sink/url", problem)
        timeout_ms = obj.get("timeout_ms")
        if timeout_ms is None:
            timeout_ms = self.timeout_ms_max
        if (
            not isinstance(timeout_ms, int)
            or isinstance(timeout_ms, bool)
            or not SINK_TIMEOUT_MS_MIN <= timeout_ms <= self.timeout_ms_max
        ):
            self.wrong(
                "/sink/timeout_ms", f"must be a whole number from {SINK_TIMEOUT_MS_MIN} to {self.timeout_ms_max}"
            )
            timeout_ms = self.timeout_ms_max
        return WebhookSink(
            url=destination, headers=self.headers(obj.get("headers")), timeout_ms=timeout_ms
        ), destination

    def queue(self, obj: Mapping[str, object]) -> tuple[QueueSink, str]:
        sink = judge_queue(obj, self.queues, self.wrong)
        return sink, queue_destination(sink)

    def headers(self, value: object) -> tuple[tuple[str, str], ...]:
        if value is None:
            return ()
        at = "/sink/headers"
        if not isinstance(value, Mapping) or len(value) > STATIC_HEADERS_MAX:
            self.wrong(at, f"must be an object of at most {STATIC_HEADERS_MAX} headers")
            return ()
        pairs: dict[str, tuple[str, str]] = {}
        for name, text in value.items():
            problem = _header_problem(name, text) or ("is given twice" if name.lower() in pairs else None)
            if problem is not None:
                self.wrong(f"{at}/{escaped(name)}", problem)
            else:
                pairs[name.lower()] = (name, text)
        if sum(len(name) + _chars(text) for name, text in pairs.values()) > STATIC_HEADERS_CHARS_MAX:
            self.wrong(at, f"must have at most {STATIC_HEADERS_CHARS_MAX} characters in all")
        return tuple(pairs.values())


_NO_SINK: Final = (WebhookSink(url=""), "")

# Sinks this product knows; None: named, and refused until built. Lifting one is its line here.
SINKS: Final[Mapping[str, Callable[[_Asked, Mapping[str, object]], tuple[Sink, str]] | None]] = {
    "webhook": _Asked.webhook,
    "queue": _Asked.queue,
    "sqs": None,
    "eventbridge": None,
    "rabbitmq": None,
    "kafka": None,
}


def parse_draft(
    obj: object, *, check_url: UrlCheck, timeout_ms_max: int = 10_000, queues: QueueRules = QUEUE_RULES
) -> Draft | tuple[FieldProblem, ...]:
    """A create request. Every problem at once; unknown fields are refused by name. The sink's time-out defaults to
    `timeout_ms_max`."""
    if not isinstance(obj, Mapping):
        return (FieldProblem("", "must be a JSON object"),)
    asked = _Asked(check_url, timeout_ms_max, queues)
    asked.only(obj, _FIELDS)
    sink, destination = asked.sink(obj.get("sink"))
    draft = Draft(
        name=asked.name(obj.get("name")),
        event_types=asked.event_types(obj.get("event_types")),
        origin=asked.origin(obj.get("origin")),
        filters=asked.filters(obj.get("filters")),
        sink=sink,
        destination=destination,
        enabled=asked.flag(obj, "enabled"),
        verify=asked.flag(obj, "verify"),
    )
    return tuple(asked.problems) if asked.problems else draft


def parse_patch(
    obj: object,
    current: Subscription,
    *,
    check_url: UrlCheck,
    timeout_ms_max: int = 10_000,
    queues: QueueRules = QUEUE_RULES,
) -> Draft | tuple[FieldProblem, ...]:
    """A change request over `current`: what the subscription should be afterwards. Fields given replace; inside `sink`
    and its headers too, where a header given as null goes and one given as the mask stays. The type of the sink and a
    queue's address stay. What is kept is judged again: the rules may have become stricter."""
    if not isinstance(obj, Mapping):
        return (FieldProblem("", "must be a JSON object"),)
    if "verify" in obj:
        return (FieldProblem("/verify", "unknown field of a change; use POST …/verify"),)
    kept = current.sink
    before = sink_json(_within(kept, timeout_ms_max, queues))
    merged: dict[str, object] = {
        "name": current.name,
        "event_types": list(current.event_types),
        "origin": list(current.origin),
        "filters": to_json(current.filters),
        "sink": before,
        "enabled": current.enabled,
    }
    merged |= obj
    asked = obj.get("sink")
    fixed: list[FieldProblem] = []
    if isinstance(asked, Mapping):
        sink = before | dict(asked)
        headers = asked.get("headers")
        if isinstance(kept, WebhookSink) and isinstance(headers, Mapping):
            sink["headers"] = _merge_headers(dict(kept.headers), headers)
        merged["sink"] = sink
        stays = ("type",) if isinstance(kept, WebhookSink) else ("type", "topic", "name")
        fixed = [
            FieldProblem(f"/sink/{name}", "cannot be changed; make another subscription")
            for name in stays
            if sink[name] != before[name]
        ]
    if fixed:
        return tuple(fixed)
    return parse_draft(merged, check_url=check_url, timeout_ms_max=timeout_ms_max, queues=queues)


def _within(sink: Sink, timeout_ms_max: int, queues: QueueRules) -> Sink:
    """A bound that was lowered since must not make every change fail."""
    if isinstance(sink, WebhookSink):
        return replace(sink, timeout_ms=min(sink.timeout_ms, timeout_ms_max))
    return replace(sink, lock_ms=max(sink.lock_ms, queues.lock_ms_min), ttl_ms=min(sink.ttl_ms, queues.ttl_ms_max))


def _merge_headers(kept: dict[str, str], asked: Mapping[str, object]) -> dict[str, object]:
    """Names compare without case, as HTTP's do."""
    spelling = {name.lower(): name for name in kept}
    merged: dict[str, object] = dict(kept)
    for name, value in asked.items():
        before = spelling.get(name.lower())
        if before is not None and value == MASK and looks_secret(before):
            continue
        if before is not None:
            merged.pop(before, None)
        if value is not None:
            merged[name] = value
    return merged


def _chars(value: str) -> int:
    return value.chars if isinstance(value, SealedText) else len(value)


def _header_problem(name: object, value: object) -> str | None:
    if not isinstance(name, str) or not isinstance(value, str):
        return "must be a text"
    if isinstance(value, SealedText):  # was judged before it was sealed, and stays
        return None
    if value == MASK and looks_secret(name):
        return f"{MASK} is what answers show instead of the value"
    return static_header_problem(name, value)


def is_text(value: object, chars_max: int) -> TypeGuard[str]:
    """A text of 1 to `chars_max` characters that can be encoded, without control characters."""
    return isinstance(value, str) and 1 <= len(value) <= chars_max and no_control(value) and is_unicode(value)


def _distinct(values: list[object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(value for value in values if isinstance(value, str)))
