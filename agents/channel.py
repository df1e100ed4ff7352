"""The channel between a source and its agent.

`app.channel()` loses queued items and cancels waiting puts when Faust suspends its flow control (design rule of the
house, tried on Faust 0.15.3). This one owns a flow control that is never suspended.
"""

from __future__ import annotations

from typing import Any

from faust.channels import Channel
from mode.utils.queues import FlowControlEvent, ThrowableQueue

DEPTH = 64
"""Batches a channel may hold. A plane has at most one batch of a partition in flight, so this only bounds the burst."""


class BatchChannel(Channel):  # type: ignore[misc]  # Faust has no types
    """Carries batches, not events: what is put is what the agent's stream yields."""

    _queue: ThrowableQueue | None

    def __init__(self, app: Any, **kwargs: Any) -> None:
        kwargs.setdefault("maxsize", DEPTH)
        super().__init__(app, **kwargs)

    @property
    def queue(self) -> ThrowableQueue:
        if self._queue is None:
            self._queue = ThrowableQueue(
                maxsize=self.maxsize or DEPTH,
                flow_control=FlowControlEvent(initially_suspended=False),
                clear_on_resume=False,
            )
        return self._queue
