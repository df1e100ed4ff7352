"""Request bodies: read within bounds, and read as JSON that has one meaning only."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Final, NamedTuple

import orjson
from aiohttp import web

from hub_app.web.problems import FieldError, Problem

BODY_BYTES_MAX: Final = 64 * 1024
BODY_MS_MAX: Final = 10_000
DEPTH_MAX: Final = 16


class Parsed(NamedTuple):
    """A JSON value that passed (a class of its own: `None` is a value too)."""

    value: object


class _Twice(ValueError):
    pass


async def read_body(request: web.Request, *, bytes_max: int = BODY_BYTES_MAX) -> bytes | Problem:
    """The whole body, or 413 as soon as it is too large (announced or not), or 408 when it trickles."""
    too_large = Problem(413, "too-large", "The body is too large", f"a body has at most {bytes_max} bytes")
    if (request.content_length or 0) > bytes_max:
        return too_large
    chunks, size = [], 0
    try:
        async with asyncio.timeout(BODY_MS_MAX / 1000):
            async for chunk in request.content.iter_any():
                size += len(chunk)
                if size > bytes_max:
                    return too_large
                chunks.append(chunk)
    except TimeoutError:
        detail = f"the body did not arrive within {BODY_MS_MAX // 1000} s"
        return Problem(408, "timeout", "The body came too slowly", detail)
    return b"".join(chunks)


def parse_json(body: bytes, content_type: str | None) -> Parsed | Problem:
    """`content_type` is the header as sent, None when absent. Refuses duplicate keys, NaN, a byte-order mark, anything
    that is not UTF-8, and nesting past `DEPTH_MAX`."""
    if content_type is not None and not is_json_type(content_type):
        detail = "send Content-Type: application/json"
        return Problem(415, "media-type", "Not a JSON body", detail, headers={"Accept": "application/json"})
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return _malformed(f"not JSON: {error}" if body else "the body is empty; expected a JSON object")
    if _depth_exceeds(value, DEPTH_MAX):
        return _malformed(f"nested deeper than {DEPTH_MAX} levels")
    try:
        json.loads(body, object_pairs_hook=_unique)
    except _Twice as twice:
        return _malformed(f"the key {twice} stands twice in one object")
    return Parsed(value)


def is_json_type(content_type: str) -> bool:
    """`application/json`, or any type whose suffix is `+json` (RFC 6839); parameters are ignored."""
    media = content_type.partition(";")[0].strip().lower()
    return media in ("application/json", "text/json") or ("/" in media and media.endswith("+json"))


def _malformed(detail: str) -> Problem:
    return Problem(400, "malformed", "The body cannot be read", detail, (FieldError("", detail),))


def _unique(pairs: list[tuple[str, object]]) -> None:
    seen = set()
    for key, _ in pairs:
        if key in seen:
            raise _Twice(ascii(key[:80]))
        seen.add(key)


def _depth_exceeds(value: object, depth_max: int) -> bool:
    """Counts objects and lists inside each other."""
    level = [value]
    for _ in range(depth_max):
        level = [child for parent in level for child in _children(parent) if isinstance(child, (dict, list))]
        if not level:
            return False
    return True


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
