"""Structured logs over the standard library: one line an event, for people on a terminal and as JSON elsewhere.

The data plane's libraries are silenced below WARNING (Faust builds a record per send even when nobody reads it) and
capped above it: in an outage aiokafka alone writes 70 errors a second."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from hub_app.telemetry.events import Event

ROOT: Final = "streaming_hub"
FOREIGN: Final = ("faust", "mode", "aiokafka", "kafka", "aiohttp.access", "asyncio", "aiocache", "aredis")
FIELD_CHARS_MAX: Final = 1024
FOREIGN_LINES_MAX: Final = 5  # per logger and place, in each period
FOREIGN_PERIOD_S: Final = 10.0


class Log:
    """The log of one room. Fields are plain values; a secret is never a field."""

    __slots__ = ("_logger",)

    def __init__(self, room: str) -> None:
        self._logger = logging.getLogger(f"{ROOT}.{room}")

    def debug(self, event: Event, **fields: object) -> None:
        self._write(logging.DEBUG, event, fields)

    def info(self, event: Event, **fields: object) -> None:
        self._write(logging.INFO, event, fields)

    def warning(self, event: Event, **fields: object) -> None:
        self._write(logging.WARNING, event, fields)

    def error(self, event: Event, *, error: BaseException | None = None, **fields: object) -> None:
        """`error` adds its class and text, and the traceback at the end."""
        if error is not None:
            fields = {**fields, "error": f"{type(error).__name__}: {error}"}
        self._write(logging.ERROR, event, fields, error)

    def _write(
        self, level: int, event: Event, fields: Mapping[str, object], error: BaseException | None = None
    ) -> None:
        logger = self._logger
        if not logger.isEnabledFor(level):
            return
        record = logger.makeRecord(logger.name, level, "", 0, event.value, (), None, None, {"hub_fields": fields})
        if error is not None:
            record.exc_info = (type(error), error, error.__traceback__)
        logger.handle(record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, room, event, then the event's fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time_text(record.created),
            "level": record.levelname.lower(),
            "room": record.name.removeprefix(f"{ROOT}."),
            "event": _cut(record.getMessage()),
        }
        for name, value in _fields(record).items():
            line.setdefault(name, value)
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        try:
            return orjson.dumps(line, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
        except TypeError:  # lone surrogates, integers past 64 bits: a log line is never the reason to fail
            return json.dumps(line, default=str)


class ConsoleFormatter(logging.Formatter):
    """`20:15:03.123 info    sender          event key=value …` for a person's eyes."""

    def format(self, record: logging.LogRecord) -> str:
        clock = _time_text(record.created)[11:23]
        room = record.name.removeprefix(f"{ROOT}.")
        fields = "".join(f" {name}={_console_value(value)}" for name, value in _fields(record).items())
        line = f"{clock} {record.levelname.lower():<7} {room:<14} {_cut(record.getMessage())}{fields}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


class RateCap(logging.Filter):
    """Lets `lines_max` records of one logger and place through in each period, and says that it holds back more."""

    def __init__(
        self,
        lines_max: int = FOREIGN_LINES_MAX,
        period_s: float = FOREIGN_PERIOD_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__()
        self._lines_max, self._period_s, self._monotonic = lines_max, period_s, monotonic
        self._seen: dict[tuple[str, str, int], tuple[float, int]] = {}  # bounded: places in source files

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(ROOT):
            return True
        place, now = (record.name, record.pathname, record.lineno), self._monotonic()
        began, count = self._seen.get(place, (now, 0))
        if now - began >= self._period_s:
            began, count = now, 0
        self._seen[place] = (began, count + 1)
        if count == self._lines_max - 1:
            record.msg, record.args = f"{record.getMessage()} (more like this held back)", ()
        return count < self._lines_max


def logging_config(level: str, form: str) -> dict[str, Any]:
    """A `logging.config.dictConfig` value, for Faust's `logging_config` too. `form` is `console` or `json`."""
    formatter = JsonFormatter if form == "json" else ConsoleFormatter
    stderr = {"class": "logging.StreamHandler", "stream": sys.stderr, "formatter": "hub"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"hub": {"()": formatter}},
        "filters": {"cap": {"()": RateCap}},
        # Two, for Faust sets the level of the root's first handler to its own, and would silence ours with it.
        "handlers": {"hub": stderr, "foreign": {**stderr, "filters": ["cap"]}},
        "loggers": {
            ROOT: {"level": level.upper(), "handlers": ["hub"], "propagate": False},
            **{name: {"level": "WARNING"} for name in FOREIGN},
        },
        "root": {"level": "WARNING", "handlers": ["foreign"]},
    }


def configure_logging(level: str, form: str) -> None:
    logging.config.dictConfig(logging_config(level, form))


def _fields(record: logging.LogRecord) -> Mapping[str, object]:
    fields: Mapping[str, object] = getattr(record, "hub_fields", {})
    return {name: _cut(value) if isinstance(value, str) else value for name, value in fields.items()}


def _cut(text: str) -> str:
    return text if len(text) <= FIELD_CHARS_MAX else text[:FIELD_CHARS_MAX] + "…"


def _console_value(value: object) -> str:
    text = str(value).encode(errors="backslashreplace").decode()
    plain = text and all(c.isprintable() and c not in ' "' for c in text)
    return text if plain else orjson.dumps(text).decode()


def _time_text(created: float) -> str:
    ms = int(created * 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms // 1000)) + f".{ms % 1000:03d}Z"
