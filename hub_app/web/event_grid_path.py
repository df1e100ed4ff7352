"""Where a request of the Event Grid data plane goes: `/t/<tenant>/topics/<topic>:publish`, and
`/t/<tenant>/topics/<topic>/eventsubscriptions/<name>:<operation>`.

Segments are percent-encoded and may hold anything, slashes and colons included, so the raw path is read, and split at
its last literal colon."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import unquote

from hub_app.domain.limits import QUEUE_NAME_BYTES_MAX, TENANT_BYTES_MAX
from hub_app.domain.queue import Operation

PUBLISH: Final = "publish"
RECEIVE: Final = Operation.RECEIVE.value
SETTLING: Final = {op.value: op for op in (Operation.ACKNOWLEDGE, Operation.RELEASE, Operation.REJECT, Operation.RENEW)}
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Place(NamedTuple):
    """`queue` is empty for a publish; `operation` as it stands in the path."""

    tenant: str
    topic: str
    queue: str
    operation: str


class Nowhere(NamedTuple):
    """Which part of the path there is not."""

    what: str


def parse_path(raw: str) -> Place | Nowhere:
    head, colon, operation = raw.rpartition(":")
    parts = head.split("/")
    if not colon or len(parts) not in (5, 7) or parts[:2] != ["", "t"] or parts[3] != "topics":
        return Nowhere("route")
    if len(parts) == 7 and parts[5] != "eventsubscriptions":
        return Nowhere("route")
    if operation not in ((PUBLISH,) if len(parts) == 5 else (RECEIVE, *SETTLING)):
        return Nowhere("operation")
    tenant, topic = _segment(parts[2], TENANT_BYTES_MAX), _segment(parts[4], QUEUE_NAME_BYTES_MAX)
    queue = _segment(parts[6], QUEUE_NAME_BYTES_MAX) if len(parts) == 7 else ""
    if tenant is None:
        return Nowhere("tenant")
    if topic is None:
        return Nowhere("topic")
    if queue is None:
        return Nowhere("event subscription")
    return Place(tenant, topic, queue, operation)


def _segment(raw: str, bytes_max: int) -> str | None:
    """Decoded; None for what no name can be."""
    if _BAD_PERCENT.search(raw):
        return None
    try:
        text = unquote(raw, errors="strict")
        size = len(text.encode())
    except UnicodeError:
        return None
    plain = all(ord(c) >= 0x20 and ord(c) != 0x7F for c in text)
    return text if plain and 1 <= size <= bytes_max else None
