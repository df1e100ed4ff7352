"""What the hub says of itself: metrics and log events, both closed lists."""

from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log, configure_logging, logging_config
from hub_app.telemetry.metrics import Metrics
from hub_app.telemetry.registry import Counter, Family, Gauge, Histogram, Registry

__all__ = [
    "Counter",
    "Event",
    "Family",
    "Gauge",
    "Histogram",
    "Log",
    "Metrics",
    "Registry",
    "configure_logging",
    "logging_config",
]
