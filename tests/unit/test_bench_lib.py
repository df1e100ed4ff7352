"""The benchmarks' own arithmetic, and the sink that counts for them."""

from __future__ import annotations

import http.client
import json
import random

import pytest

from tests.bench import _lib, backlog, handover, isolation
from tests.bench._load import Sent, poisson


@pytest.mark.parametrize(
    ("percent", "value"), [(0, 1), (1, 1), (25, 1), (26, 2), (50, 2), (51, 3), (75, 3), (76, 4), (99, 4), (100, 4)]
)
def test_percentiles_are_values_that_were_measured(percent: float, value: float) -> None:
    assert _lib.percentile([4, 2, 1, 3], percent) == value


def test_no_values_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        _lib.percentile([], 50)


def test_the_quietest_run_is_reported() -> None:
    runs = iter([3.0, 1.0, 2.0])
    assert _lib.quiet_minimum(lambda: next(runs), key=float) == 1.0


def test_the_report_is_one_json_line(capsys: pytest.CaptureFixture[str]) -> None:
    _lib.progress("round 1")
    _lib.report(ratio=6.12345, lost=0)
    out, err = capsys.readouterr()
    assert json.loads(out) == {"ratio": 6.123, "lost": 0}
    assert out.count("\n") == 1 and err == "round 1\n"


def _post(port: int, path: str, name: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("POST", path, body=b"{}", headers={"Webhook-Id": name})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def test_the_sink_counts_losses_and_duplicates() -> None:
    with _lib.sink(record="webhook-id") as sink:
        assert [_post(sink.port, "/", name) for name in ("evt_1", "evt_2", "evt_2")] == [200, 200, 200]
        assert [_post(sink.port, path, "evt_3") for path in ("/!status/503", "/!slow/10")] == [503, 200]
        assert sink.counts() == (5, 3)
        arrivals = sink.arrivals()
        assert {name: seen.times for name, seen in arrivals.items()} == {"evt_1": 1, "evt_2": 2, "evt_3": 2}
        assert arrivals["evt_1"].first_ns == arrivals["evt_1"].last_ns < arrivals["evt_2"].last_ns
        assert sink.late_max() == 1
        sink.behave()
        assert _post(sink.port, "/!status/503", "evt_4") == 200
        sink.behave(False)
        assert _post(sink.port, "/!status/503/d0", "evt_4") == 503
        sink.forget()
        assert sink.counts() == (0, 0)


def test_facts_come_by_time_and_at_their_rate() -> None:
    due = poisson(["a", "b"], 20, 50, random.Random(1))
    assert due == sorted(due) and due[-1].at_s < 50
    assert all(abs(sum(1 for one in due if one.tenant == name) - 1_000) < 150 for name in "ab")


@pytest.mark.parametrize(
    ("values", "places"),
    [([], 0), ([1, 2, 3], 0), ([2, 1, 3], 1), ([3, 1, 2], 2), ([1, 1, 1, 0], 3), ([5, 5, 5], 0), ([1, 2, 2, 1], 2)],
)
def test_how_far_out_of_order(values: list[int], places: int) -> None:
    assert backlog.displacement(values) == places


def test_a_pause_is_counted_where_it_ends_and_per_destination() -> None:
    second = 1_000_000_000
    span = handover.Span("restart", 10 * second, 20 * second)
    arrived = {"a": [0, 9 * second, 12 * second, 13 * second], "b": [11 * second, 16 * second, 40 * second], "c": []}
    assert handover.pause_s(span, arrived) == 5.0


def test_repeats_are_those_that_end_inside_the_span() -> None:
    span = handover.Span("kill", 10, 20)
    sent = {"x": handover.Sent("a", 1), "y": handover.Sent("a", 1), "z": handover.Sent("a", 1)}
    arrived = {
        "x": _lib.Arrival(3, 1, 12),
        "y": _lib.Arrival(2, 1, 30),
        "z": _lib.Arrival(1, 11, 11),
        "a stranger": _lib.Arrival(9, 11, 12),
    }
    assert handover.repeats(span, sent, arrived) == 2


def test_a_fact_that_never_came_has_no_latency() -> None:
    sent = {"x": Sent("a", 1_000_000), "y": Sent("a", 2_000_000)}
    seen = {"x": _lib.Arrival(1, 3_000_000, 3_000_000)}
    with pytest.raises(RuntimeError, match="1 of 2 did not come"):
        isolation.millis(sent, seen)
    seen["y"] = _lib.Arrival(2, 2_500_000, 9_000_000)
    assert isolation.millis(sent, seen) == [2.0, 0.5]
