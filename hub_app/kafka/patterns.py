"""A member of a pattern-subscribed group: every existing topic of a form, new ones as they appear."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import mode

from hub_app.kafka.client import KafkaConfig
from hub_app.kafka.lease import Lease
from hub_app.kafka.plane import Deliver
from hub_app.kafka.standing import Standing
from hub_app.ports import Clock, Entropy


class PatternPlane(mode.Service):  # type: ignore[misc]
    """`read_committed`, from the earliest record, offsets committed after each batch. `Batch.shard` is -1."""

    lease: Lease

    def __init__(
        self,
        config: KafkaConfig,
        *,
        name: str,
        group: str,
        pattern: str,
        accepts: Callable[[str], bool],
        deliver: Deliver,
        standing: Standing,
        clock: Clock,
        entropy: Entropy,
        instance_id: str | None = None,
        batch_records_max: int = 1_000,
        batch_bytes_max: int = 1 << 20,
        buffer_bytes_max: int = 24 << 20,
    ) -> None:
        """`pattern` is an anchored regular expression; `accepts(topic)` is asked about what it matches as well."""
        raise NotImplementedError

    @property
    def topics(self) -> Sequence[str]:
        """What the pattern matches now, sorted; empty shows in readiness."""
        raise NotImplementedError
