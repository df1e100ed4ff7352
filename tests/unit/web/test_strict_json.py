"""Bodies with one meaning, within bounds; the rest is refused quickly."""

from __future__ import annotations

import asyncio
import time

import pytest

from hub_app.web.problems import Problem
from hub_app.web.strict_json import BODY_BYTES_MAX, DEPTH_MAX, Parsed, is_json_type, parse_json
from tests.fakes.workers import ADMIN_KEY, Deployment, Worker

JSON = "application/json"


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (b"{}", {}),
        (b' {"a": [1, 2.5, null, true, "\\u00e9"]}\n', {"a": [1, 2.5, None, True, "é"]}),
        (b'{"a":{"k":1},"b":{"k":2}}', {"a": {"k": 1}, "b": {"k": 2}}),
        (b"null", None),
        (b"[" * DEPTH_MAX + b"]" * DEPTH_MAX, None),
    ],
)
def test_read(body: bytes, value: object) -> None:
    parsed = parse_json(body, JSON)
    assert isinstance(parsed, Parsed)
    assert value is None or parsed.value == value


@pytest.mark.parametrize(
    ("body", "word"),
    [
        (b"", "empty"),
        (b"{", "not JSON"),
        (b'{"a":NaN}', "not JSON"),
        (b'{"a":Infinity}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"a":"\xff"}', "not JSON"),
        (b"{'a':1}", "not JSON"),
        (b'{"a":1,}', "not JSON"),
        (b'{"a":1}{"b":2}', "not JSON"),
        (b'{"name":1,"name":1}', "'name' stands twice"),
        (b'[{"x":{"k":1,"k":2}}]', "'k' stands twice"),
        (b'{"a":1,"\\u0061":2}', "'a' stands twice"),
        (b"[" * 17 + b"]" * 17, "deeper than 16"),
        (b"[" * 10_000 + b"]" * 10_000, ""),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, ""),
    ],
)
def test_refused(body: bytes, word: str) -> None:
    began = time.perf_counter()
    problem = parse_json(body, JSON)
    assert isinstance(problem, Problem)
    assert problem.status == 400
    assert word in problem.detail
    assert time.perf_counter() - began < 0.5


@pytest.mark.parametrize(
    ("content_type", "good"),
    [
        ("application/json", True),
        ("Application/JSON; charset=utf-8", True),
        ("application/cloudevents+json", True),
        ("text/json", True),
        ("application/x-www-form-urlencoded", False),
        ("text/plain", False),
        ("application/jsonp", False),
        ("json", False),
        ("", False),
    ],
)
def test_media_types(content_type: str, good: bool) -> None:
    assert is_json_type(content_type) is good
    assert isinstance(parse_json(b"{}", content_type), Parsed) is good


def test_a_body_without_a_type_is_taken_for_json() -> None:
    assert isinstance(parse_json(b"{}", None), Parsed)


PATH = "/admin/tenants/t/keys"


async def test_a_body_has_a_size(hub: Deployment, worker: Worker) -> None:
    padded = b'{"scopes":["manage"]' + b" " * (BODY_BYTES_MAX - 21) + b"}"
    assert len(padded) == BODY_BYTES_MAX
    headers = {"Content-Type": JSON}
    assert (await hub.ask(worker, "POST", PATH, key=ADMIN_KEY, data=padded, headers=headers)).status == 201
    assert (await hub.ask(worker, "POST", PATH, key=ADMIN_KEY, data=padded + b" ", headers=headers)).status == 413


async def raw(worker: Worker, *chunks: bytes) -> bytes:
    """Writes chunks to the worker and reads until it closes or has answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", worker.settings.http_port)
    try:
        async with asyncio.timeout(5):
            for chunk in chunks:
                writer.write(chunk)
                await writer.drain()
            return await reader.readuntil(b"\r\n")
    finally:
        writer.close()


HEAD = f"POST {PATH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN_KEY}\r\nContent-Type: {JSON}\r\n".encode()


async def test_seventy_megabytes_are_refused_by_their_announcement(worker: Worker) -> None:
    assert b" 413 " in await raw(worker, HEAD + b"Content-Length: 73400320\r\n\r\n")


async def test_chunks_without_end_are_refused_at_the_bound(worker: Worker) -> None:
    chunk = b"4000\r\n" + b" " * 0x4000 + b"\r\n"
    assert b" 413 " in await raw(worker, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[chunk] * 5)


async def test_the_wrong_type_says_which(hub: Deployment, worker: Worker) -> None:
    headers = {"Content-Type": "text/plain"}
    reply = await hub.ask(worker, "POST", PATH, key=ADMIN_KEY, data=b"{}", headers=headers)
    assert reply.status == 415
    assert b"application/json" in reply.body
