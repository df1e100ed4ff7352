"""Log lines: for people, for machines, and held back when a library shouts."""

from __future__ import annotations

import json
import logging
import logging.config
from collections.abc import Iterator

import pytest

from hub_app.telemetry import Event, Log, configure_logging, logging_config
from hub_app.telemetry.log import FOREIGN, ROOT, ConsoleFormatter, JsonFormatter, RateCap


def record(
    message: str = "ready", level: int = logging.INFO, name: str = f"{ROOT}.sender", **fields: object
) -> logging.LogRecord:
    made = logging.LogRecord(name, level, "file.py", 7, message, (), None)
    made.created = 1_767_323_045.678
    made.hub_fields = fields
    return made


@pytest.fixture
def quiet_logging() -> Iterator[None]:
    """Leaves the process's logging as it was."""
    names = ("", ROOT, *FOREIGN)
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    propagated = logging.getLogger(ROOT).propagate
    yield
    for name, (level, handlers) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers[:] = handlers
    logging.getLogger(ROOT).propagate = propagated


def test_json_is_one_object_a_line() -> None:
    line = JsonFormatter().format(record(shard=3, detail="two\nlines", level_of="x"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-01-02T03:04:05.678Z",
        "level": "info",
        "room": "sender",
        "event": "ready",
        "shard": 3,
        "detail": "two\nlines",
        "level_of": "x",
    }


@pytest.mark.parametrize("value", [2**70, "\udcff", float("nan"), object(), {1: 2}, b"\xff"])
def test_no_field_breaks_a_line(value: object) -> None:
    assert json.loads(JsonFormatter().format(record(value=value)))["event"] == "ready"
    assert "\n" not in ConsoleFormatter().format(record(value=value))


def test_a_field_cannot_take_the_place_of_the_frame() -> None:
    assert json.loads(JsonFormatter().format(record(event="other", room="x")))["event"] == "ready"


def test_console_is_for_eyes() -> None:
    line = ConsoleFormatter().format(record(shard=3, detail="two words", lines="a\nb", empty=""))
    assert line == '03:04:05.678 info    sender         ready shard=3 detail="two words" lines="a\\nb" empty=""'


def test_long_fields_are_cut() -> None:
    assert len(JsonFormatter().format(record(detail="x" * 5_000))) < 1_200


def test_a_log_writes_what_its_level_lets_through(quiet_logging: None, capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log = Log("kafka")
    log.debug(Event.READY)
    log.info(Event.READY, shard=1)
    log.warning(Event.NOT_READY, reason="x")
    log.error(Event.BATCH_FAILED, error=ValueError("no"), topic="hub.facts")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "ready"),
        ("warning", "not_ready"),
        ("error", "batch_failed"),
    ]
    assert lines[2]["error"] == "ValueError: no"
    assert "ValueError: no" in lines[2]["traceback"]


@pytest.mark.parametrize("name", ["aiokafka", "aiokafka.consumer.fetcher", "faust", "faust.app.base", "mode.services"])
def test_the_libraries_are_silent_below_warning(quiet_logging: None, name: str) -> None:
    configure_logging("debug", "console")
    assert not logging.getLogger(name).isEnabledFor(logging.INFO)
    assert logging.getLogger(name).isEnabledFor(logging.WARNING)
    assert logging.getLogger(f"{ROOT}.x").isEnabledFor(logging.DEBUG)


def test_the_config_is_plain_data_for_faust(quiet_logging: None) -> None:
    logging.config.dictConfig(logging_config("warning", "json"))
    assert logging.getLogger(ROOT).level == logging.WARNING


def test_faust_may_set_the_level_of_the_roots_handler(quiet_logging: None, capsys: pytest.CaptureFixture[str]) -> None:
    """It does, to its own `--loglevel`, which is WARN by default."""
    configure_logging("info", "json")
    logging.root.handlers[0].setLevel(logging.WARNING)
    Log("worker").info(Event.READY)
    assert "ready" in capsys.readouterr().err


def test_a_shouting_library_is_held_back() -> None:
    now = [0.0]
    cap = RateCap(lines_max=3, period_s=10, monotonic=lambda: now[0])
    seen = [record(f"error {n}", name="aiokafka") for n in range(5)]
    assert [cap.filter(line) for line in seen] == [True, True, True, False, False]
    assert seen[1].getMessage() == "error 1"
    assert seen[2].getMessage() == "error 2 (more like this held back)"
    now[0] = 10.0
    assert cap.filter(record("again", name="aiokafka"))


def test_our_own_lines_and_other_places_are_not_held_back() -> None:
    cap = RateCap(lines_max=1, period_s=10, monotonic=lambda: 0.0)
    assert all(cap.filter(record(name=f"{ROOT}.sender")) for _ in range(5))
    assert cap.filter(record(name="aiokafka"))
    elsewhere = record(name="aiokafka")
    elsewhere.lineno = 8
    assert cap.filter(elsewhere)


def test_event_names_are_plain_words() -> None:
    assert all(event.value == event.name.lower() and event.value.replace("_", "").isalpha() for event in Event)
