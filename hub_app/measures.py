"""Levels and counts that the parts keep anyway, shown as metrics: each is read when somebody scrapes."""

from __future__ import annotations

from typing import Any

from hub_app import __version__
from hub_app.lifecycle import Hub
from hub_app.telemetry.metrics import Metrics


def measure(hub: Hub, metrics: Metrics) -> None:
    """Ties the metrics of a worker to its parts."""
    metrics.build.labels(__version__).set(1)
    metrics.producer_replaced.only().watch(lambda: hub.producer.replaced)
    metrics.backlog_jobs.only().watch(hub.dispatch_shards.backlog)
    for plane in (hub.ingest_plane, hub.inbox_plane, hub.dispatch_plane):
        if plane is not None:
            _measure_member(hub, metrics, plane)
    for shard_plane in (hub.inbox_plane, hub.dispatch_plane):
        if shard_plane is not None:
            _measure_shards(metrics, shard_plane)
    if hub.ingest_plane is not None:
        plane = hub.ingest_plane
        metrics.matched_topics.labels(plane.name).watch(lambda: len(plane.topics))


def _measure_member(hub: Hub, metrics: Metrics, plane: Any) -> None:
    below = f"{plane.name}/"
    metrics.lag.labels(plane.name).watch(lambda: sum(plane.lags().values()))
    metrics.rebalances.labels(plane.name).watch(lambda: plane.rebalances)
    metrics.lease_valid.labels(plane.name).watch(lambda: plane.lease.valid(hub.clock.monotonic_ms()))
    metrics.stalled.labels(plane.name).watch(lambda: sum(name.startswith(below) for name in hub.standing.reasons()))


def _measure_shards(metrics: Metrics, plane: Any) -> None:
    metrics.shards.labels(plane.name).watch(lambda: len(plane.open_shards))
