"""`hub.attempts`: what became of deliveries. Key: tenant and destination, as the job's. Value: the start of the answer.

    hub-outcome hub-status hub-error hub-reason hub-at hub-duration-ms, then the job's headers (`wire.jobs`), then the
    event's, as far as they are given

`hub-attempt` and `hub-moves` are the version the outcome speaks of; `hub-not-before` of `deferred` is the new due time.

One format apart: `claimed` lists the claims of one tick, one line each in the value, so that a crash can be told from a
sink's fault by whoever opens the shard next:

    <delivery id> <attempt> <moves> <reclaims> <deadline, RFC 3339>
"""

from __future__ import annotations

from binascii import hexlify, unhexlify
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from hub_app.domain.delivery import Job, OutcomeKind
from hub_app.domain.ids import DELIVERY_ID_BYTES
from hub_app.domain.instants import rfc3339_bytes
from hub_app.domain.limits import ANSWER_START_BYTES_MAX, CLAIMS_PER_RECORD_MAX
from hub_app.wire import jobs
from hub_app.wire.record import (
    SCHEMA,
    SCHEMA_HEADER,
    Header,
    Headers,
    HeadersRead,
    Record,
    Unreadable,
    error_text,
    instant,
    number,
    number_or_zero,
    own_headers,
    text,
)

_HEAD = ["hub-outcome", "hub-status", "hub-error", "hub-reason", "hub-at", "hub-duration-ms"]
_KINDS = {kind.value.encode(): kind for kind in OutcomeKind}
_CLAIMED = OutcomeKind.CLAIMED.value.encode()
CLAIMED_KEY = b"claimed"


class Outcome(NamedTuple):
    """What became of one version of a job. `at_ms`: when the attempt began, or the decision was made. `status` is None
    without an answer; `reason` tells why, where `kind` is dead; `error` is masked and cut when written."""

    kind: OutcomeKind
    job: Job
    at_ms: int
    duration_ms: int = 0
    status: int | None = None
    error: str = ""
    reason: str = ""
    answer: bytes = b""


class Claim(NamedTuple):
    """A job in somebody's hands until its outcome, or past `deadline_ms`: then it was interrupted."""

    delivery_id: bytes
    attempt: int
    moves: int
    reclaims: int
    deadline_ms: int


class Claimed(NamedTuple):
    """The claims of one tick."""

    claims: tuple[Claim, ...]


def write(outcome: Outcome, headers: Iterable[Header] = ()) -> Headers:
    """Headers of an outcome's record; its value is `outcome.answer[:ANSWER_START_BYTES_MAX]` (`value`)."""
    kind, job, at_ms, duration_ms, status, error, reason, _ = outcome
    return [
        ("hub-outcome", kind.value.encode()),
        ("hub-status", b"" if status is None else b"%d" % status),
        ("hub-error", error_text(error)),
        ("hub-reason", reason.encode()),
        ("hub-at", rfc3339_bytes(at_ms)),
        ("hub-duration-ms", b"%d" % duration_ms),
        *jobs.write(job, headers),
    ]


def value(outcome: Outcome) -> bytes:
    """The record's value: the start of the answer."""
    return outcome.answer[:ANSWER_START_BYTES_MAX]


def write_claimed(claims: Iterable[Claim], at_ms: int) -> Iterator[Record]:
    """The record that lists the claims of a tick (several when there are very many; none for none)."""
    rest = iter(claims)
    while lines := [
        b"%b %d %d %d %b\n" % (hexlify(id), attempt, moves, reclaims, rfc3339_bytes(deadline_ms))
        for id, attempt, moves, reclaims, deadline_ms in islice(rest, CLAIMS_PER_RECORD_MAX)
    ]:
        headers = [("hub-outcome", _CLAIMED), ("hub-at", rfc3339_bytes(at_ms)), SCHEMA_HEADER]
        yield Record(CLAIMED_KEY, b"".join(lines), headers)


def read(headers: HeadersRead, value: bytes | None) -> Outcome | Claimed | Unreadable:
    """The outcome, or the list of claims, of a record. Total."""
    try:
        head = headers[: len(_HEAD)]
        if [name for name, _ in head] == _HEAD:
            values: Sequence[bytes] = [data or b"" for _, data in head]
        else:
            own = own_headers(headers)
            if own["hub-outcome"] == _CLAIMED:
                return _read_claimed(own, value or b"")
            values = [own[name] for name in _HEAD]
        return _outcome(values, jobs.read_block(headers, len(_HEAD)), value or b"")
    except KeyError as missing:
        return Unreadable(f"attempt: no {missing.args[0]!r}")
    except ValueError as error:
        return Unreadable(f"attempt: {error}")


def _outcome(values: Sequence[bytes], job: Job | Unreadable, value: bytes) -> Outcome | Unreadable:
    if isinstance(job, Unreadable):
        return job
    kind, status, error, reason, at, duration = values
    if kind == _CLAIMED:
        return Unreadable("attempt: a claim in the form of an outcome")
    return Outcome(
        _KINDS[kind],
        job,
        instant(at),
        number_or_zero(duration),
        number(status) if status else None,
        error.decode(),
        text(reason),
        value,
    )


def _read_claimed(own: dict[str, bytes], value: bytes) -> Claimed | Unreadable:
    if own["hub-schema"] != SCHEMA:
        return Unreadable(f"attempt: schema {own['hub-schema']!r}")
    return Claimed(tuple([_claim(line.split(b" ")) for line in value.splitlines()]))


def _claim(parts: list[bytes]) -> Claim:
    if len(parts) != 5 or len(parts[0]) != 2 * DELIVERY_ID_BYTES:
        raise ValueError("a claim is a delivery id, three counts and an instant")
    id, attempt, moves, reclaims, deadline = parts
    return Claim(unhexlify(id), number(attempt), number(moves), number(reclaims), instant(deadline))
