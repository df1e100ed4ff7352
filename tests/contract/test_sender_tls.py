"""TLS to a pinned address: the certificate must be the name's, whatever address the name has."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Callable
from time import monotonic

import pytest
import trustme

from hub_app.adapters.sender_common import client_tls
from hub_app.ports import Answer, Failure
from tests.contract.conftest import MakeSender
from tests.contract.hostile import Peer, Script, hostile, saying, serving
from tests.contract.sending import kind, post, send, status
from tests.fakes.resolver import FakeResolver


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def trusting(ca: trustme.CA) -> ssl.SSLContext:
    """What the hub makes, but for the root."""
    context = client_tls()
    ca.configure_trust(context)
    return context


def serving_as(cert: trustme.LeafCert) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert.configure_cert(context)
    return context


async def test_name_is_asked_for_and_certificate_checked(
    make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    async with hostile(serving, tls=serving_as(ca.issue_cert("sink.example"))) as server:
        sender = make_sender(tls=trusting)
        for i in range(3):
            request = post(server, b"%d" % i, scheme="https", host="sink.example")
            assert await send(sender, request) == Answer(200, None, b"%d" % i, False)
        assert (server.connections, server.names) == (1, ["sink.example"])


async def test_certificate_of_an_address(make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    async with hostile(serving, tls=serving_as(ca.issue_cert("127.0.0.1"))) as server:
        assert status(await send(make_sender(tls=trusting), post(server, scheme="https"))) == 200
        assert server.names == [None]


REFUSED: dict[str, Callable[[trustme.CA], trustme.LeafCert]] = {
    "another name": lambda ca: ca.issue_cert("other.example"),
    "the address instead of the name": lambda ca: ca.issue_cert("127.0.0.1"),
    "expired": lambda ca: ca.issue_cert(
        "sink.example",
        not_before=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        not_after=datetime.datetime(2020, 2, 1, tzinfo=datetime.UTC),
    ),
    "another authority": lambda _: trustme.CA().issue_cert("sink.example"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_certificates_refused(
    make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext, name: str
) -> None:
    """And nothing of the request is sent."""
    requests = []

    async def script(peer: Peer) -> None:
        requests.append(await peer.request())

    async with hostile(script, tls=serving_as(REFUSED[name](ca))) as server:
        outcome = await send(make_sender(tls=trusting), post(server, scheme="https", host="sink.example"))
        assert kind(outcome) == ("tls", False)
        assert isinstance(outcome, Failure) and outcome.detail.startswith("certificate refused")
        assert requests == []


async def test_the_system_trusts_no_stranger(make_sender: MakeSender, ca: trustme.CA) -> None:
    async with hostile(serving, tls=serving_as(ca.issue_cert("sink.example"))) as server:
        assert kind(await send(make_sender(), post(server, scheme="https", host="sink.example"))) == ("tls", False)


async def _shut_at_once(peer: Peer) -> None:
    """Hang up."""


async def _hang_up_later(peer: Peer) -> None:
    await peer.reader.read(64)


async def _reset(peer: Peer) -> None:
    await peer.reader.read(64)
    peer.reset()


async def _talk_plainly(peer: Peer) -> None:
    await peer.reader.read(64)
    await peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")


NO_HANDSHAKE: dict[str, Script] = {
    "plain HTTP": _talk_plainly,
    "closed at once": _shut_at_once,
    "closed in the handshake": _hang_up_later,
    "reset in the handshake": _reset,
}


@pytest.mark.parametrize("name", NO_HANDSHAKE)
async def test_no_handshake(make_sender: MakeSender, name: str) -> None:
    async with hostile(NO_HANDSHAKE[name]) as server:
        before = monotonic()
        outcome = await send(make_sender(), post(server, scheme="https"), timeout_ms=3000, connect_timeout_ms=3000)
        assert kind(outcome) == ("tls", False)
        assert monotonic() - before < 1.5


async def test_a_handshake_that_hangs(make_sender: MakeSender) -> None:
    async def script(peer: Peer) -> None:
        await peer.until_gone()

    async with hostile(script) as server:
        outcome = await send(make_sender(), post(server, scheme="https"), connect_timeout_ms=200)
        assert kind(outcome) == ("timeout", False)
        await server.until_gone(1)


async def test_caps_and_endings_hold_under_tls(
    make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    cert = ca.issue_cert("sink.example")

    async def flood(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n")
        await peer.flood(b"x" * 16384)

    async def outcome(script: Script, timeout_ms: int = 3000) -> Answer | Failure:
        async with hostile(script, tls=serving_as(cert)) as server:
            request = post(server, scheme="https", host="sink.example")
            answer = await send(make_sender(tls=trusting), request, timeout_ms=timeout_ms)
            await server.until_gone(1)
            return answer

    assert await outcome(flood) == Answer(200, None, b"x" * 65536, True)
    assert await outcome(saying(b"HTTP/1.0 200 OK\r\n\r\nok")) == Answer(200, None, b"ok", False)
    assert kind(await outcome(saying(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"))) == ("reset", True)
    assert kind(await outcome(saying(b"", then="reset"))) == ("reset", True)
    assert kind(await outcome(saying(b"HTTP/1.1 nonsense\r\n\r\n", then="stay"))) == ("malformed", True)
    assert kind(await outcome(saying(b"", then="stay"), timeout_ms=300)) == ("timeout", True)


async def test_a_stale_connection_under_tls(make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer((await peer.request()).body)
        if peer.number == 1:
            await peer.request()
        else:
            await serving(peer)

    async with hostile(script, tls=serving_as(ca.issue_cert("sink.example"))) as server:
        sender = make_sender(tls=trusting)
        for body in (b"one", b"two"):
            request = post(server, body, scheme="https", host="sink.example")
            assert await send(sender, request) == Answer(200, None, body, False)
        assert server.connections == 2


async def test_a_large_body_under_tls(make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext) -> None:
    received = []

    async def script(peer: Peer) -> None:
        received.append((await peer.request()).body)
        await peer.answer()

    async with hostile(script, tls=serving_as(ca.issue_cert("sink.example"))) as server:
        body = b"\x00x" * (1 << 19)
        request = post(server, body, scheme="https", host="sink.example")
        assert status(await send(make_sender(tls=trusting), request, timeout_ms=3000)) == 200
        assert received == [body]


async def test_a_name_that_moves_keeps_its_certificate_rule(
    make_sender: MakeSender, ca: trustme.CA, trusting: ssl.SSLContext
) -> None:
    """Two names at one address: each must show its own certificate, and they share no connection."""
    async with hostile(serving, tls=serving_as(ca.issue_cert("sink.example"))) as server:
        resolver = FakeResolver({"sink.example": ("127.0.0.1",), "victim.example": ("127.0.0.1",)})
        sender = make_sender(tls=trusting, resolver=resolver)
        assert status(await send(sender, post(server, scheme="https", host="sink.example"))) == 200
        assert kind(await send(sender, post(server, scheme="https", host="victim.example"))) == ("tls", False)


async def test_cancelled_in_the_handshake(make_sender: MakeSender) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.reader.read(16)
        asked.set()
        await peer.until_gone()

    async with hostile(script) as server:
        task = asyncio.create_task(send(make_sender(), post(server, scheme="https"), connect_timeout_ms=3000))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_gone(1)
