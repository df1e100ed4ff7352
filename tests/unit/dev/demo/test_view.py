"""What a look at a run says, and how it is shown with and without a terminal."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from hub_app.dev.demo.commands import Look, looks, published, run, typed
from hub_app.dev.demo.reckoning import Check
from hub_app.dev.demo.view import View, line, summary, tiers
from hub_app.dev.demo.watch import Sight, added_up, parse_metrics
from hub_app.telemetry.metrics import Metrics
from hub_app.topics import names


def _counters() -> dict[tuple[str, str], float]:
    metrics = Metrics()
    metrics.admitted.only().inc(7)
    metrics.duplicates.only().inc(2)
    metrics.facts.labels("accept", "").inc(9)
    metrics.facts.labels("quarantine", "no_tenant").inc(3)
    metrics.facts.labels("quarantine", "not_utf8").inc(1)
    for tier, count in (("2s", 4), ("500ms", 6), ("1m", 1)):
        metrics.retries.labels(tier).inc(count)
    return parse_metrics(metrics.registry.exposition())


def _sight(**changes: Any) -> Sight:
    stats = {"/good/aurora": {"delivered": 8, "requests": 10, "repeats": 1, "p50_ms": 4, "p99_ms": 9}}
    made: dict[str, Any] = {
        "seconds": 3.0,
        "records": 12,
        "written": 12,
        "counters": added_up([_counters(), _counters()]),
        "stats": stats,
        "expected": {"/good/aurora": 8, "/dead/aurora": 2},
        "dead": {"/dead/aurora": 1},
    }
    return Sight(**made | changes)


def test_metrics_of_workers_are_added_up() -> None:
    sight = _sight()
    assert sight.counted("hub_admitted_total") == 14
    assert sight.counted("hub_facts_total", 'verdict="quarantine"') == 8
    assert sight.by_label("hub_retries_total", "tier") == {"2s": 8, "500ms": 12, "1m": 2}
    assert sight.counted("hub_no_such_total") == 0


def test_tiers_stand_in_order_of_their_wait() -> None:
    assert [tier for tier, _ in tiers(_sight())] == ["500ms", "2s", "1m"]


@pytest.mark.parametrize(
    ("changes", "finished"),
    [
        ({}, False),
        ({"dead": {"/dead/aurora": 2}}, True),
        ({"dead": {"/dead/aurora": 2}, "written": 11}, False),
        ({"dead": {"/dead/aurora": 2}, "stats": {}}, False),
    ],
)
def test_when_it_is_finished(changes: dict[str, Any], finished: bool) -> None:
    assert _sight(**changes).finished is finished


def test_a_line_says_it_all() -> None:
    assert line(_sight()) == (
        "  3.0s produced 12/12 admitted 14 duplicates 4 quarantined 8 delivered 8 "
        "retried 500ms:12 2s:8 1m:2 dead 1 open 1"
    )


def _shown(terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=110, height=50, color_system=None)
    view = View(console)
    with view:
        view.show(_sight())
        view.show(_sight())
    view.last(_sight())
    return out.getvalue()


def test_on_a_terminal_a_table_lives() -> None:
    text = _shown(terminal=True)
    assert "Streaming Hub, 3 s" in text
    assert "/dead/cometa" in text
    assert "12/12" in text


def test_elsewhere_there_are_lines_and_one_table() -> None:
    text = _shown(terminal=False)
    assert text.count("produced 12/12") == 1  # the second look came too soon for a line of its own
    assert text.count("/good/aurora") == 1
    assert "\x1b" not in text


@pytest.mark.parametrize(("ok", "verdict"), [(True, "all 2 checks hold: none lost"), (False, "1 of 2 checks failed")])
def test_the_summary(ok: bool, verdict: str) -> None:
    out = io.StringIO()
    summary(Console(file=out, width=110), [Check("first", True, "fine"), Check("second", ok, "[not] markup")])
    lines = out.getvalue().splitlines()
    assert lines[0] == "ok   first: fine"
    assert lines[1].endswith(" second: [not] markup")
    assert lines[2] == verdict


class FakeKafka:
    """Answers as the console consumer does."""

    def __init__(self, output: str) -> None:
        self.output, self.asked = output, tuple[str, ...]()

    def tool(self, *arguments: str, text: str = "", seconds: float = 60) -> str:
        self.asked = arguments
        return self.output


def test_headers_are_shown_one_a_line() -> None:
    printed = "hub-reason:exhausted,hub-error:a, b and c,ce-id:1\ttenant\x1fhttp://x/\t" + "v" * 200 + "\nplain\n"
    kafka = FakeKafka(printed)
    shown = list(run(kafka, Look("", "consume --topic hub.dlq --formatter-property print.headers=true")))
    assert shown[:4] == ["hub-reason:exhausted", "hub-error:a, b and c", "ce-id:1", "key: tenant U+001F http://x/"]
    assert shown[4].startswith("value: vvv")
    assert len(shown[4]) < 110
    assert shown[5] == "plain"
    assert kafka.asked == ("consume", "--topic", "hub.dlq", "--formatter-property", "print.headers=true")


def test_commands_are_typed_as_a_person_would() -> None:
    [dead, tier, *_] = looks(names("hub."), "1s")
    assert typed(dead, None).startswith('make kafka-tool ARGS="consume --topic hub.dlq --from-beginning')
    assert typed(tier, "h:1").startswith('KAFKA_BROKERS=h:1 make kafka-tool ARGS="consume --topic hub.retry.1s ')
    assert "ce-tenantid:mine" in published(None)
    assert published(None).endswith(
        'make kafka-tool ARGS="produce --topic lerian.streaming.lender --reader-property parse.headers=true"'
    )
