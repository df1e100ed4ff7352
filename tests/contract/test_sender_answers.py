"""What both senders write, and every shape of answer they take or refuse."""

from __future__ import annotations

import asyncio
import random
from typing import NamedTuple

import pytest

from hub_app.ports import Answer, Failure
from tests.contract.conftest import MakeSender
from tests.contract.hostile import Peer, hostile, saying, serving
from tests.contract.sending import HEAD, kind, post, send, status

KIB = 1024
BODY_MAX = 64 * KIB


async def test_the_request_is_joined_and_nothing_is_added(make_sender: MakeSender) -> None:
    received = []

    async def script(peer: Peer) -> None:
        received.append(await peer.request())
        await peer.answer()

    async with hostile(script) as server:
        path = b"/a//b/../c;d=1/%2F%e4?x=%2f&y=1+2&z&&u=http://h/"
        assert status(await send(make_sender(), post(server, b'{ "a" : 1.0 }\n', path=path))) == 200
        (line, headers, body) = received[0]
        assert line == b"POST " + path + b" HTTP/1.1"
        own = [b"Host: 127.0.0.1:%d" % server.port, b"Content-Length: 14"]
        assert sorted(headers) == sorted([*HEAD.splitlines(), *own])
        assert body == b'{ "a" : 1.0 }\n'


@pytest.mark.parametrize("body", [b"", b"\x00\xff\r\n\r\n", b"x" * (1 << 20)], ids=["empty", "binary", "1 MiB"])
async def test_the_body_arrives_unchanged(make_sender: MakeSender, body: bytes) -> None:
    received = []

    async def script(peer: Peer) -> None:
        received.append((await peer.request()).body)
        await peer.answer()

    async with hostile(script) as server:
        assert status(await send(make_sender(), post(server, body))) == 200
        assert received == [body]


async def test_a_connection_is_kept_and_used_again(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        sender = make_sender()
        for i in range(5):
            assert await send(sender, post(server, b"%d" % i)) == Answer(200, None, b"%d" % i, False)
        assert server.connections == 1


async def test_many_at_once_get_each_its_own_answer(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        sender = make_sender()

        async def worker(number: int) -> None:
            for i in range(10):
                body = b"%d/%d" % (number, i)
                assert await send(sender, post(server, body), timeout_ms=5000) == Answer(200, None, body, False)

        await asyncio.gather(*(worker(n) for n in range(40)))
        assert server.connections <= 40


class Shape(NamedTuple):
    """An answer on the wire; how it reads; and whether its connection is used again."""

    wire: bytes
    read: Answer
    kept: bool


OK = Answer(200, None, b"ok", False)
SHAPES = {
    "content-length": Shape(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "lower case": Shape(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", OK, True),
    "no reason": Shape(b"HTTP/1.1 200\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "empty body": Shape(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", Answer(202, None, b"", False), True),
    "204": Shape(b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, None, b"", False), True),
    "304 with a length": Shape(b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", Answer(304, None, b"", False), True),
    "chunked": Shape(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;ext=1\r\nk\r\n0\r\n\r\n", OK, True
    ),
    "trailers": Shape(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\nX-Sum: 2\r\n\r\n", OK, True
    ),
    "connection: close": Shape(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", OK, False),
    "until the end": Shape(b"HTTP/1.1 200 OK\r\n\r\nok", OK, False),
    "1.0": Shape(b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", OK, False),
    "1.0 until the end": Shape(b"HTTP/1.0 200 OK\r\n\r\nok", OK, False),
    "1.0 empty until the end": Shape(b"HTTP/1.0 200 OK\r\n\r\n", Answer(200, None, b"", False), False),
    "1.0 kept": Shape(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "100 first": Shape(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "several 1xx": Shape(
        b"HTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 E\r\nLink: </a>\r\nContent-Length: 7\r\n\r\n" * 3
        + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        OK,
        True,
    ),
    "an offer to upgrade": Shape(
        b"HTTP/1.1 200 OK\r\nUpgrade: h2c\r\nConnection: Upgrade, Keep-Alive\r\nContent-Length: 2\r\n\r\nok", OK, True
    ),
    "compressed stays so": Shape(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "cookies": Shape(b"HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "header bytes": Shape(b"HTTP/1.1 200 OK\r\nX-B: \xff\xfe\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "4xx": Shape(b"HTTP/1.1 404 No\r\nContent-Length: 2\r\n\r\nno", Answer(404, None, b"no", False), True),
    "5xx": Shape(b"HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno", Answer(500, None, b"no", False), True),
    "999": Shape(b"HTTP/1.1 999 No\r\nContent-Length: 2\r\n\r\nno", Answer(999, None, b"no", False), True),
    "retry-after": Shape(
        b"HTTP/1.1 503 No\r\nRETRY-after: 120\r\nContent-Length: 0\r\n\r\n", Answer(503, "120", b"", False), True
    ),
    "retry-after, odd": Shape(
        b"HTTP/1.1 429 No\r\nRetry-After: -5, abc\r\nContent-Length: 0\r\n\r\n",
        Answer(429, "-5, abc", b"", False),
        True,
    ),
    "retry-after, long": Shape(
        b"HTTP/1.1 429 No\r\nRetry-After: " + b"9" * 4000 + b"\r\nContent-Length: 0\r\n\r\n",
        Answer(429, "9" * 128, b"", False),
        True,
    ),
    "retry-after of a success": Shape(b"HTTP/1.1 200 OK\r\nRetry-After: 9\r\nContent-Length: 2\r\n\r\nok", OK, True),
    "64 KiB": Shape(
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % BODY_MAX + b"x" * BODY_MAX,
        Answer(200, None, b"x" * BODY_MAX, False),
        True,
    ),
    "64 KiB in chunks of one byte": Shape(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * BODY_MAX + b"0\r\n\r\n",
        Answer(200, None, b"x" * BODY_MAX, False),
        True,
    ),
    "a long head": Shape(
        b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 31 * KIB + b"\r\nContent-Length: 2\r\n\r\nok", OK, True
    ),
}


@pytest.mark.parametrize("name", SHAPES)
async def test_shapes_of_an_answer(make_sender: MakeSender, name: str) -> None:
    """In one piece; the next request shows whether the connection was kept."""
    wire, read, kept = SHAPES[name]
    until_the_end = name.endswith("until the end")

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(wire)
            if until_the_end:
                return

    async with hostile(script) as server:
        sender = make_sender()
        assert await send(sender, post(server)) == read
        assert await send(sender, post(server)) == read
        assert server.connections == (1 if kept else 2)


@pytest.mark.parametrize("name", [n for n in SHAPES if len(SHAPES[n].wire) < 500])
async def test_shapes_of_an_answer_byte_by_byte(make_sender: MakeSender, name: str) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.drip(SHAPES[name].wire, 0)

    async with hostile(script) as server:
        assert await send(make_sender(), post(server), timeout_ms=3000) == SHAPES[name].read


MALFORMED = {
    "garbage": b"garbage\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.6\r\n",
    "a TLS alert": b"\x15\x03\x01\x00\x02\x02\x46",
    "no status": b"HTTP/1.1 \r\n\r\n",
    "a word for a status": b"HTTP/1.1 abc OK\r\n\r\n",
    "no such version": b"HTTP/9.9 200 OK\r\nContent-Length: 0\r\n\r\n",
    "switching protocols": b"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n",
    "a status below 100": b"HTTP/1.1 099 Odd\r\nContent-Length: 0\r\n\r\n",
    "four digits": b"HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "a length too large": b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n\r\n",
    "a header name with a space": b"HTTP/1.1 200 OK\r\nX Y: 1\r\nContent-Length: 0\r\n\r\n",
    "a chunk size of no number": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nok\r\n",
    "a chunk longer than it says": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nok\r\n0\r\n\r\n",
    "a line of 40 KiB": b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 40 * KIB + b"\r\nContent-Length: 0\r\n\r\n",
    "a reason of 40 KiB": b"HTTP/1.1 200 " + b"x" * 40 * KIB + b"\r\nContent-Length: 0\r\n\r\n",
    "10,000 headers": b"HTTP/1.1 200 OK\r\n" + b"X-Many: 1\r\n" * 10_000 + b"Content-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_row_16_malformed_answers(make_sender: MakeSender, name: str) -> None:
    """Told as such at once, with the connection closed, though the sink keeps it open."""
    # aiohttp has let go of a connection by the time it shows a whole answer; here the sink ends it.
    then = "close" if name == "a status below 100" else "stay"
    async with hostile(saying(MALFORMED[name], then=then)) as server:
        assert kind(await send(make_sender(), post(server), timeout_ms=3000)) == ("malformed", True)
        await server.until_gone(1)


REDIRECTS = [301, 302, 303, 307, 308]


@pytest.mark.parametrize("code", REDIRECTS)
async def test_row_17_redirects_are_not_followed(make_sender: MakeSender, code: int) -> None:
    """Faults, row 17."""
    async with hostile(serving) as inside:
        there = b"Location: http://127.0.0.1:%d/latest/meta-data/\r\n" % inside.port

        async def script(peer: Peer) -> None:
            await peer.request()
            await peer.answer(b"", b"%d Moved" % code, there)

        async with hostile(script) as server:
            assert await send(make_sender(), post(server)) == Answer(code, None, b"", False)
            assert (server.connections, inside.connections) == (1, 0)


FLOODS = {
    "10 GB": (b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", b"x" * 16 * KIB),
    "chunks without end": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"400\r\n" + b"x" * KIB + b"\r\n"),
    "small chunks without end": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 1000),
    "without end": (b"HTTP/1.0 200 OK\r\n\r\n", b"x" * 16 * KIB),
}


@pytest.mark.parametrize("name", FLOODS)
async def test_row_16_long_bodies_are_cut_and_their_connection_closed(make_sender: MakeSender, name: str) -> None:
    """Faults, row 16."""
    start, more = FLOODS[name]

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(start)
        await peer.flood(more)

    async with hostile(script) as server:
        assert await send(make_sender(), post(server), timeout_ms=3000) == Answer(200, None, b"x" * BODY_MAX, True)
        await server.until_gone(1)
        # What was written and not wanted is what fits between two sockets.
        assert server.peers[0].written < 32 << 20


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: 1\r\n" * 100),
        (b"HTTP/1.1 200 OK\r\nX-More: ", b"x" * KIB),
        (b"HTTP/1.1 200 ", b"x" * KIB),
    ],
    ids=["headers", "a header", "a reason"],
)
async def test_heads_without_end(make_sender: MakeSender, start: bytes, more: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(start)
        await peer.flood(more)

    async with hostile(script) as server:
        assert kind(await send(make_sender(), post(server), timeout_ms=3000)) == ("malformed", True)
        await server.until_gone(1)
        assert server.peers[0].written < 32 << 20


SURPLUS = {
    "another answer": b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged",
    "half an answer": b"HTTP/1.1 200 OK\r\nContent-Length: 600\r\n\r\nforged",
    "half a head": b"HTTP/1.1 200 OK\r\nX-Forged",
    "garbage": b"\x00\x01garbage",
}


@pytest.mark.parametrize("name", SURPLUS)
@pytest.mark.parametrize("late", [False, True], ids=["at once", "later"])
async def test_what_nobody_asked_for_is_no_answer(
    make_sender: MakeSender, sender_kind: str, name: str, late: bool
) -> None:
    """A sink that says more than it was asked must not answer somebody else's request with it."""
    forge, forged = asyncio.Event(), asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            body = (await peer.request()).body
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            if body == b"two":
                await peer.send(answer)
            elif late:
                await peer.send(answer)
                await forge.wait()
                await peer.send(SURPLUS[name])
            else:
                await peer.send(answer + SURPLUS[name])
            forged.set()

    async with hostile(script) as server, hostile(serving) as other:
        sender = make_sender()
        one = await send(sender, post(server, b"one"))
        if (sender_kind, name, late) == ("aiohttp", "garbage", False):
            assert kind(one) == ("malformed", True)  # See the table of differences in the adapter.
        else:
            assert one == Answer(200, None, b"one", False)
        forge.set()
        await forged.wait()
        # A round trip elsewhere: by then the event loop has been given all that was sent before.
        assert status(await send(sender, post(other))) == 200
        assert await send(sender, post(server, b"two")) == Answer(200, None, b"two", False)


async def test_early_answer_of_a_sink_that_does_not_read_the_body(make_sender: MakeSender) -> None:
    answered = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.answer(b"enough", b"413 Too Large")
        await answered.wait()
        await peer.until_gone()

    async with hostile(script, receive_buffer=4096) as server:
        sender = make_sender()
        body = b"x" * (8 << 20)  # More than the buffers between take.
        assert await send(sender, post(server, body)) == Answer(413, None, b"enough", False)
        answered.set()
        # What is left of the body must not meet the next request.
        await server.until_gone(1)


async def test_early_answer_with_half_a_close(make_sender: MakeSender) -> None:
    async def script(peer: Peer) -> None:
        await peer.head()
        await peer.answer(b"enough", b"413 Too Large")
        peer.half_close()
        await peer.until_gone()

    async with hostile(script, receive_buffer=4096) as server:
        assert await send(make_sender(), post(server, b"x" * (8 << 20))) == Answer(413, None, b"enough", False)
        await server.until_gone(1)


async def test_random_answers_never_raise(make_sender: MakeSender) -> None:
    dice = random.Random(20260102)
    good = b"HTTP/1.1 503 No\r\nRetry-After: 5\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"

    async def script(peer: Peer) -> None:
        await peer.request()
        wire = bytearray(good)
        for _ in range(dice.randint(1, 4)):
            wire[dice.randrange(len(wire))] = dice.choice(b"\x00\r\n :0HT9zf\xff")
        await peer.send(bytes(wire))

    async with hostile(script) as server:
        sender = make_sender()
        outcomes = [await send(sender, post(server)) for _ in range(200)]
        assert {o.kind for o in outcomes if isinstance(o, Failure)} <= {"malformed", "reset", "timeout"}
