"""The benchmarks' own arithmetic, and the sink that counts for them."""

from __future__ import annotations

import http.client
import json

import pytest

from tests.bench import _lib


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
        sink.forget()
        assert sink.counts() == (0, 0)
