"""The queue as a sink, judged: `{"type": "queue", "topic", "name", "receiveLockDurationInSeconds", "maxDeliveryCount",
"eventTimeToLive"}`, as Event Grid names them. Times to live are ISO 8601 durations of days and below."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from hub_app.domain.attributes import no_control
from hub_app.domain.filters import escaped, is_unicode
from hub_app.domain.limits import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    QUEUE_DELIVERIES_MAX,
    QUEUE_LOCK_MS_MAX,
    QUEUE_LOCK_MS_MIN,
    QUEUE_NAME_BYTES_MAX,
    SECOND_MS,
)
from hub_app.domain.subscription import QueueSink

TTL_MS_DEFAULT: Final = 7 * DAY_MS
_FIELDS: Final = (
    "type",
    "topic",
    "name",
    "receiveLockDurationInSeconds",
    "maxDeliveryCount",
    "eventTimeToLive",
)
_UNITS: Final = (DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS)
_DURATION: Final = re.compile(
    r"P(?=[0-9T])(?:([0-9]{1,5})D)?(?:T(?=[0-9])(?:([0-9]{1,6})H)?(?:([0-9]{1,7})M)?(?:([0-9]{1,8})S)?)?", re.ASCII
)

Wrong = Callable[[str, str], None]
"""(pointer, detail): notes a problem."""


class QueueRules(NamedTuple):
    """What a deployment allows. `ttl_ms_max`: how long facts are kept, less a day; below the shortest lock there can be
    no queue."""

    lock_ms_min: int = QUEUE_LOCK_MS_MIN
    ttl_ms_max: int = 6 * DAY_MS


QUEUE_RULES: Final = QueueRules()


def duration_text(ms: int) -> str:
    """`P1DT2H3M4S`, whole seconds; the units that are 0 are left out."""
    days, rest = divmod(ms // SECOND_MS, 86_400)
    hours, minutes, seconds = rest // 3_600, rest // 60 % 60, rest % 60
    time = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (seconds, "S")) if n)
    return "P" + (f"{days}D" if days else "") + (f"T{time}" if time else "") if days or time else "PT0S"


def duration_ms(text: object) -> int | None:
    """Milliseconds of an ISO 8601 duration without years, months, weeks or fractions; None for anything else."""
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    return sum(int(number) * unit for number, unit in zip(found.groups(), _UNITS, strict=True) if number)


def queue_destination(sink: QueueSink) -> str:
    """How the queue is named where others have their address."""
    return f"queue:{quote(sink.topic, safe='')}/{quote(sink.name, safe='')}"


def name_problem(text: object) -> str | None:
    """Why this is no name of a topic or a queue, or None."""
    fits = isinstance(text, str) and 1 <= len(text) <= QUEUE_NAME_BYTES_MAX and is_unicode(text) and no_control(text)
    if not fits or len(str(text).encode()) > QUEUE_NAME_BYTES_MAX:
        return f"must be a text of 1 to {QUEUE_NAME_BYTES_MAX} bytes, without control characters"
    return None


def judge_queue(obj: Mapping[str, object], rules: QueueRules, wrong: Wrong) -> QueueSink:
    """The sink, or something harmless when a problem was noted."""
    for name in obj:
        if name not in _FIELDS:
            wrong(f"/sink/{escaped(name)}", f"unknown field; known are {', '.join(_FIELDS)}")
    names = {}
    for field in ("topic", "name"):
        problem = name_problem(obj.get(field))
        if problem is not None:
            wrong(f"/sink/{field}", problem)
        names[field] = "" if problem else str(obj[field])
    lock_s = _whole(obj, "receiveLockDurationInSeconds", rules.lock_ms_min // SECOND_MS, _LOCK_S_MAX, _LOCK_S, wrong)
    return QueueSink(
        **names,
        lock_ms=lock_s * SECOND_MS,
        deliveries_max=_whole(obj, "maxDeliveryCount", 1, QUEUE_DELIVERIES_MAX, QUEUE_DELIVERIES_MAX, wrong),
        ttl_ms=_ttl(obj.get("eventTimeToLive"), lock_s * SECOND_MS, rules.ttl_ms_max, wrong),
    )


_LOCK_S_MAX: Final = QUEUE_LOCK_MS_MAX // SECOND_MS
_LOCK_S: Final = QUEUE_LOCK_MS_MIN // SECOND_MS


def _whole(obj: Mapping[str, Any], field: str, low: int, high: int, default: int, wrong: Wrong) -> int:
    value = obj.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        wrong(f"/sink/{field}", f"must be a whole number from {low} to {high}")
        return default
    return value


def _ttl(value: object, lock_ms: int, ttl_ms_max: int, wrong: Wrong) -> int:
    at = "/sink/eventTimeToLive"
    if ttl_ms_max < lock_ms:
        wrong(at, "events are not kept long enough for queues: EVENTS_RETENTION must be a day and more")
        return lock_ms
    if value is None:
        return min(TTL_MS_DEFAULT, ttl_ms_max)
    ttl_ms = duration_ms(value)
    if ttl_ms is None or not lock_ms <= ttl_ms <= ttl_ms_max:
        most = duration_text(ttl_ms_max)
        wrong(at, f"must be an ISO 8601 duration such as P1DT12H, from {duration_text(lock_ms)} (the lock's) to {most}")
        return ttl_ms_max
    return ttl_ms
