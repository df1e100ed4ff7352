"""Remembered answers in the header `hub-idempotency` of compacted records (a deletion has headers, but no value)."""

from __future__ import annotations

import orjson

from hub_app.domain.idempotency import Answer
from hub_app.wire.record import Headers, HeadersRead

HEADER = "hub-idempotency"


def write(answers: tuple[Answer, ...]) -> Headers:
    """No header when there is nothing to remember."""
    return [(HEADER, orjson.dumps([list(answer) for answer in answers]))] if answers else []


def read(headers: HeadersRead) -> tuple[Answer, ...]:
    """ValueError when the header makes no sense."""
    for name, data in headers:
        if name == HEADER:
            rows = orjson.loads(data or b"[]")
            answers = tuple(Answer(*row) for row in rows if _shaped(row))
            if len(answers) != len(rows):
                raise ValueError("an answer has another shape")
            return answers
    return ()


def _shaped(row: object) -> bool:
    return isinstance(row, list) and [type(part) for part in row] == [str, str, int, str]
