"""Events in JSON text: their members, and `data` also as it stands there, since payloads are kept byte for byte."""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Final, NamedTuple

from hub_app.domain.limits import PUBLISH_EVENTS_MAX

_BLANKS: Final = re.compile(r"[ \t\n\r]*")


class Malformed(ValueError):
    """The text is no event and no batch of events."""


class Data(NamedTuple):
    """`data` as it stands in the JSON text, and read."""

    raw: str
    value: object


def _refuse(constant: str) -> Any:
    raise Malformed(f"{constant} is no JSON value")


def _whole(digits: str) -> int | float:
    return int(digits) if len(digits) < 20 else float("inf")  # only `data` may hold such, and is not looked at


_scan: Final = json.JSONDecoder(parse_constant=_refuse, parse_int=_whole).scan_once  # type: ignore[attr-defined]


def read_events(text: str) -> list[dict[str, object]]:
    """Every event's members. ValueError or RecursionError for no JSON, no object or array of objects, or too much."""
    at = _skip(text, 0)
    if text[at : at + 1] == "{":
        members, end = _object(text, at)
        events = [members]
    elif text[at : at + 1] == "[":
        events, end = _array(text, at)
    else:
        raise Malformed("expected an event, or an array of events")
    if _skip(text, end) != len(text):
        raise Malformed("something follows the end")
    return events


def _array(text: str, at: int) -> tuple[list[dict[str, object]], int]:
    events: list[dict[str, object]] = []
    at = _skip(text, at + 1)
    if text[at : at + 1] == "]":
        raise Malformed("a batch has at least one event")
    while True:
        if text[at : at + 1] != "{":
            raise Malformed("a batch is an array of objects")
        if len(events) == PUBLISH_EVENTS_MAX:
            raise Malformed(f"a batch has at most {PUBLISH_EVENTS_MAX} events")
        members, end = _object(text, at)
        events.append(members)
        at = _skip(text, end)
        if text[at : at + 1] == "]":
            return events, at + 1
        at = _skip(text, _expect(text, at, ","))


def _object(text: str, at: int) -> tuple[dict[str, object], int]:
    members: dict[str, object] = {}
    at = _skip(text, at + 1)
    if text[at : at + 1] == "}":
        return members, at + 1
    while True:
        name, end = scanstring(text, _expect(text, at, '"'), True)
        begin = _skip(text, _expect(text, _skip(text, end), ":"))
        if name in members:
            raise Malformed(f"{name[:64]!a} stands twice in one event")
        try:
            value, end = _scan(text, begin)
        except StopIteration:
            raise Malformed(f"expected a value at {begin}") from None
        members[name] = Data(text[begin:end], value) if name == "data" else value
        at = _skip(text, end)
        if text[at : at + 1] == "}":
            return members, at + 1
        at = _skip(text, _expect(text, at, ","))


def _skip(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, char: str) -> int:
    if text[at : at + 1] != char:
        raise Malformed(f"expected {char} at {at}")
    return at + 1
