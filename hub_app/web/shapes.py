"""What a JSON body must look like. One description of a resource both validates (every error, with its pointer) and
gives its JSON schema, so that the API's documents cannot differ from what it accepts."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from hub_app.domain.instants import is_rfc3339, parse_rfc3339
from hub_app.settings.readers import duration_ms
from hub_app.web.problems import FieldError, pointer


class Shape(Protocol):
    def check(self, value: object, at: str) -> Iterator[FieldError]:
        """Every error of `value`, found at the JSON pointer `at`."""

    def schema(self) -> dict[str, object]:
        """JSON Schema 2020-12."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string; lengths in characters. `pattern` must match the whole; `meaning` says what it demands, for people."""

    length_min: int = 0
    length_max: int = 1024
    pattern: str | None = None
    meaning: str = ""
    one_of: tuple[str, ...] = ()

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, str):
            yield FieldError(at, "expected a string")
        elif self.one_of and value not in self.one_of:
            yield FieldError(at, "expected one of " + ", ".join(self.one_of))
        elif not self.length_min <= len(value) <= self.length_max:
            yield FieldError(at, f"expected {self.length_min} to {self.length_max} characters")
        elif self.pattern is not None and not re.fullmatch(self.pattern, value, re.ASCII):
            yield FieldError(at, f"expected {self.meaning or self.pattern}")
        elif any(ord(c) < 0x20 or ord(c) == 0x7F for c in value):
            yield FieldError(at, "expected text without control characters")

    def schema(self) -> dict[str, object]:
        if self.one_of:
            return {"type": "string", "enum": list(self.one_of)}
        found: dict[str, object] = {"type": "string", "minLength": self.length_min, "maxLength": self.length_max}
        return found | ({"pattern": f"^(?:{self.pattern})$"} if self.pattern else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    low: int
    high: int

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, int) or isinstance(value, bool) or not self.low <= value <= self.high:
            yield FieldError(at, f"expected a whole number from {self.low} to {self.high}")

    def schema(self) -> dict[str, object]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A text such as `250ms 10s 5m 2h 7d`. `meaning` names the bounds, for people."""

    low_ms: int
    high_ms: int
    meaning: str

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        ms = duration_ms(value) if isinstance(value, str) else None
        if ms is None or not self.low_ms <= ms <= self.high_ms:
            yield FieldError(at, f"expected a duration from {self.meaning}, such as 10s, 5m, 2h or 7d")

    def schema(self) -> dict[str, object]:
        return {"type": "string", "pattern": "^[0-9]{1,12}(ms|s|m|h|d)$", "description": self.meaning}

    @staticmethod
    def ms(text: str) -> int:
        """Milliseconds of a text that passed."""
        found = duration_ms(text)
        assert found is not None
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, bool):
            yield FieldError(at, "expected true or false")

    def schema(self) -> dict[str, object]:
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    item: Shape
    items_min: int = 0
    items_max: int
    unique: bool = False

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, list):
            yield FieldError(at, "expected a list")
            return
        if not self.items_min <= len(value) <= self.items_max:
            yield FieldError(at, f"expected {self.items_min} to {self.items_max} entries")
            return
        for place, item in enumerate(value):
            yield from self.item.check(item, at + pointer(place))
            if self.unique and item in value[:place]:
                yield FieldError(at + pointer(place), "stands in the list twice")

    def schema(self) -> dict[str, object]:
        found = {"type": "array", "items": self.item.schema(), "minItems": self.items_min, "maxItems": self.items_max}
        return found | ({"uniqueItems": True} if self.unique else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    shape: Shape
    meaning: str
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """An object with known names; an unknown one is refused by name."""

    members: Mapping[str, Member]

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, dict):
            yield FieldError(at, "expected an object")
            return
        for name in value:
            if name not in self.members:
                near = difflib.get_close_matches(name, self.members, n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(self.members)}"
                yield FieldError(at + pointer(name[:100]), "not a known field" + hint)
        for name, member in self.members.items():
            if name in value:
                yield from member.shape.check(value[name], at + pointer(name))
            elif member.required:
                yield FieldError(at + pointer(name), "is required")

    def schema(self) -> dict[str, object]:
        return {
            "type": "object",
            "properties": {name: m.shape.schema() | {"description": m.meaning} for name, m in self.members.items()},
            "required": [name for name, member in self.members.items() if member.required],
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Instant:
    """An RFC 3339 text."""

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, str) or not is_rfc3339(value):
            yield FieldError(at, "expected an RFC 3339 instant, such as 2026-01-02T03:04:05Z")

    def schema(self) -> dict[str, object]:
        return {"type": "string", "format": "date-time"}

    @staticmethod
    def ms(text: str) -> int:
        """Milliseconds of a text that passed."""
        return parse_rfc3339(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Open:
    """An object that others judge; `ref` names its schema, if it has one."""

    ref: str = ""

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        if not isinstance(value, dict):
            yield FieldError(at, "expected an object")

    def schema(self) -> dict[str, object]:
        return {"$ref": f"#/components/schemas/{self.ref}"} if self.ref else {"type": "object"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Anything:
    """Any JSON value."""

    def check(self, value: object, at: str) -> Iterator[FieldError]:
        return iter(())

    def schema(self) -> dict[str, object]:
        return {}
