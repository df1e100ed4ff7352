"""Metrics: what is counted, what it costs, and what a scraper reads."""

from __future__ import annotations

import re
import timeit

import pytest

from hub_app.telemetry import Metrics, Registry
from hub_app.telemetry.registry import SERIES_MAX

LINE = re.compile(r'[a-z_]+(\{[a-z_]+="(\\.|[^"\\])*"(,[a-z_]+="(\\.|[^"\\])*")*\})? (\+Inf|-?[0-9.e+-]+)')


def test_exposition() -> None:
    registry = Registry()
    registry.counter("hub_x_total", "Things\nwith \\ lines", "kind").labels('a"b\\c\nd').inc(2)
    registry.gauge("hub_level", "A level").only().set(1.5)
    histogram = registry.histogram("hub_took_seconds", "How long", "plane", bounds_ms=(10.0, 100.0)).labels("inbox")
    for ms in (10, 11, 100, 101):
        histogram.observe_ms(ms)
    assert registry.exposition() == (
        "# HELP hub_x_total Things\\nwith \\\\ lines\n"
        "# TYPE hub_x_total counter\n"
        'hub_x_total{kind="a\\"b\\\\c\\nd"} 2\n'
        "# HELP hub_level A level\n"
        "# TYPE hub_level gauge\n"
        "hub_level 1.5\n"
        "# HELP hub_took_seconds How long\n"
        "# TYPE hub_took_seconds histogram\n"
        'hub_took_seconds_bucket{plane="inbox",le="0.01"} 1\n'
        'hub_took_seconds_bucket{plane="inbox",le="0.1"} 3\n'
        'hub_took_seconds_bucket{plane="inbox",le="+Inf"} 4\n'
        'hub_took_seconds_sum{plane="inbox"} 0.222\n'
        'hub_took_seconds_count{plane="inbox"} 4\n'
    )


def test_the_same_labels_give_the_same_child() -> None:
    family = Registry().counter("hub_x_total", "X", "a", "b")
    family.labels("1", "2").inc()
    assert family.labels("1", "2").value == 1
    with pytest.raises(ValueError, match="takes 2 label values"):
        family.labels("1")


def test_a_name_is_declared_once() -> None:
    registry = Registry()
    registry.gauge("hub_x", "X")
    with pytest.raises(ValueError, match="twice"):
        registry.counter("hub_x", "X")


def test_a_label_that_grows_without_end_lands_in_one_series() -> None:
    family = Registry().counter("hub_x_total", "X", "kind")
    for number in range(SERIES_MAX + 100):
        family.labels(str(number)).inc()
    series = dict(family.items())
    assert len(series) == SERIES_MAX + 1
    assert series["other",].value == 100


def test_a_watched_gauge_is_read_at_each_scrape() -> None:
    registry, level = Registry(), [1.0]
    registry.gauge("hub_level", "A level").only().watch(lambda: level[0])
    level[0] = 7
    assert "hub_level 7\n" in registry.exposition()


def test_quantiles_are_bounds_of_buckets() -> None:
    histogram = Registry().histogram("hub_x_seconds", "X", bounds_ms=(1.0, 2.0, 5.0)).only()
    assert histogram.quantile_ms(0.5) == 0
    for ms in (0.5, 1.5, 1.6, 9):
        histogram.observe_ms(ms)
    assert [histogram.quantile_ms(q) for q in (0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.0, float("inf")]


def test_the_hubs_metrics_are_well_formed() -> None:
    metrics = Metrics()
    for family in metrics.registry.families():
        assert re.fullmatch(r"hub_[a-z_]+", family.name)
        assert (family.kind == "counter") == family.name.endswith("_total")
        assert family.meaning
        if family.label_names:
            family.labels(*("x" for _ in family.label_names))
    for line in metrics.registry.exposition().splitlines():
        assert line.startswith("# ") or LINE.fullmatch(line), line


def test_no_label_grows_with_tenants_or_sinks() -> None:
    labels = {label for family in Metrics().registry.families() for label in family.label_names}
    assert labels.isdisjoint({"tenant", "subscription", "destination", "url", "host", "path", "key", "id", "topic"})


def test_counting_is_cheap() -> None:
    """A bound counter, best of five: 0.3 µs, ten times what it takes on an idle machine."""
    inc = Metrics().facts.labels("accept", "").inc
    assert min(timeit.repeat(inc, number=20_000, repeat=5)) / 20_000 < 0.3e-6
