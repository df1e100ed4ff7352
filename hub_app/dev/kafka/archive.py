"""A class-data archive of the broker's classes: made once per Java and jars, it halves the start of every JVM."""

from __future__ import annotations

import signal
import tempfile
import time
from pathlib import Path

from hub_app.dev.kafka.errors import BrokerFailed
from hub_app.dev.kafka.guard import Guard
from hub_app.dev.kafka.jars import Runtime, exclusive, runtime
from hub_app.dev.kafka.node import Node, format_all, settings
from hub_app.dev.kafka.ports import free_ports

SECONDS_MAX = 120.0
CLUSTER_ID = "archivearchivearchiveA"  # 16 bytes in base64, as any


def fast_runtime(cache: Path | None = None) -> Runtime:
    """`jars.runtime` with its archive made. Raises KafkaUnavailable."""
    found = runtime(cache)
    if not found.archive.exists():
        with exclusive(found.archive.with_suffix(".lock")):
            if not found.archive.exists():
                _make(found)
    return found


def _make(plain: Runtime) -> None:
    """Run a broker once and keep the classes it loaded. A Java that cannot do this leaves an empty archive: the broker
    then starts slower, and nobody tries again."""
    with tempfile.TemporaryDirectory(dir=plain.archive.parent, prefix="archive-") as scratch:
        made = Path(scratch) / "classes.jsa"
        node = Node(plain, Path(scratch) / "node", 1, free_ports(1)[0])
        node.write(settings(node.folder, (node.port,), 1, {}))
        guard = Guard()
        try:
            format_all([node], CLUSTER_ID)
            node.spawn(group=guard.group, options=(f"-XX:ArchiveClassesAtExit={made}",))
            node.await_ready(time.monotonic() + SECONDS_MAX)
            node.signal(signal.SIGTERM)
            node.await_end()
        except BrokerFailed:
            made.unlink(missing_ok=True)
        finally:
            guard.close()
        made.touch()
        made.rename(plain.archive)
