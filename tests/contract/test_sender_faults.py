"""What both senders make of sinks and networks that hang, lie, vanish, or point elsewhere (faults, rows 15-18, 31)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from time import monotonic

import pytest

from hub_app.domain.egress import EgressPolicy, parse_cidrs
from hub_app.ports import Answer, Failure, Request, Target
from tests.contract.conftest import MakeSender
from tests.contract.hostile import Peer, Script, hostile, saying, serving
from tests.contract.sending import HEAD, kind, post, send, status
from tests.fakes.resolver import FakeResolver

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
EARLY_S = 0.005  # Timers of an event loop count whole milliseconds, and may round down.
HERE_ONLY = EgressPolicy(allow_cidrs=parse_cidrs(["127.0.0.1/32"]))


# -- the deadline ------------------------------------------------------------------------------------------------------


async def _silent(peer: Peer) -> None:
    await peer.request()
    await peer.until_gone()


async def _deaf(peer: Peer) -> None:
    await asyncio.sleep(5)


async def _dripping_head(peer: Peer) -> None:
    await peer.request()
    await peer.drip(b"HTTP/1.1 200 OK\r\nX-Slow: " + b"x" * 1000, 0.02)


async def _dripping_body(peer: Peer) -> None:
    await peer.request()
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    await peer.drip(b"x" * 1000, 0.02)


HANGING: dict[str, Script] = {
    "never answers": _silent,
    "never reads": _deaf,
    "a byte at a time, head": _dripping_head,
    "a byte at a time, body": _dripping_body,
    "100 and nothing": saying(b"HTTP/1.1 100 Continue\r\n\r\n", then="stay"),
    "half a head": saying(b"HTTP/1.1 200 OK\r\nX-Half: ", then="stay"),
    "half a body": saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", then="stay"),
    "half a chunk": saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok", then="stay"),
    "a body until the end, without end": saying(b"HTTP/1.0 200 OK\r\n\r\nok", then="stay"),
}


@pytest.mark.parametrize("name", HANGING)
async def test_row_16_the_total_deadline_holds(make_sender: MakeSender, name: str) -> None:
    """Row 16: one deadline over everything, and the connection closed at its end."""
    async with hostile(HANGING[name], receive_buffer=4096) as server:
        body = b"x" * (8 << 20) if name == "never reads" else b"{}"
        before = monotonic()
        outcome = await send(make_sender(), post(server, body), timeout_ms=250)
        assert kind(outcome) == ("timeout", True)
        assert 0.25 - EARLY_S <= monotonic() - before < 1.5
        if name != "never reads":
            await server.until_gone(1)


async def test_row_15_an_answer_just_in_time(make_sender: MakeSender) -> None:
    """Row 15, first half, on a scale of 1:20."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await asyncio.sleep(0.4)
        await peer.send(OK)

    async with hostile(script) as server:
        assert status(await send(make_sender(), post(server), timeout_ms=500)) == 200


async def test_row_15_an_answer_too_late_changes_nothing(make_sender: MakeSender) -> None:
    """Row 15, second half: failed, and the late 200 is not taken for the answer to the next request."""

    async def script(peer: Peer) -> None:
        body = (await peer.request()).body
        if body == b"slow":
            await asyncio.sleep(0.3)
        await peer.answer(body)

    async with hostile(script) as server:
        sender = make_sender()
        assert kind(await send(sender, post(server, b"slow"), timeout_ms=150)) == ("timeout", True)
        assert await send(sender, post(server, b"next")) == Answer(200, None, b"next", False)
        await server.until_gone(2)
        assert server.connections == 2


async def test_a_deadline_counts_from_its_own_request(make_sender: MakeSender) -> None:
    """The timer of a kept connection must end neither early (an old deadline) nor late (a longer one before)."""

    async def script(peer: Peer) -> None:
        while True:
            wait_s = float((await peer.request()).body)
            await asyncio.sleep(wait_s)
            await peer.send(OK)

    async with hostile(script) as server:
        sender = make_sender()
        assert status(await send(sender, post(server, b"0"), timeout_ms=300)) == 200
        await asyncio.sleep(0.2)
        assert status(await send(sender, post(server, b"0.2"), timeout_ms=300)) == 200
        assert status(await send(sender, post(server, b"0"), timeout_ms=60_000)) == 200
        before = monotonic()
        assert kind(await send(sender, post(server, b"2"), timeout_ms=150)) == ("timeout", True)
        assert 0.15 - EARLY_S <= monotonic() - before < 1.5
        assert server.connections == 1


# -- the end of a connection -------------------------------------------------------------------------------------------

ENDINGS: dict[str, tuple[Script, tuple[str, bool]]] = {
    "closed unanswered": (saying(b""), ("reset", True)),
    "reset unanswered": (saying(b"", then="reset"), ("reset", True)),
    "half closed unanswered": (saying(b"", then="half_close"), ("reset", True)),
    "closed in the head": (saying(b"HTTP/1.1 200 OK\r\nX-Half: "), ("reset", True)),
    "closed in the body": (saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), ("reset", True)),
    "closed in a chunk": (
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok"),
        ("reset", True),
    ),
    "closed before the last chunk": (
        saying(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"),
        ("reset", True),
    ),
    "half closed in the body": (
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", then="half_close"),
        ("reset", True),
    ),
    "reset in the body": (
        saying(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", then="reset"),
        ("reset", True),
    ),
    "closed after 100": (saying(b"HTTP/1.1 100 Continue\r\n\r\n"), ("reset", True)),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_row_16_connections_that_end_too_soon(make_sender: MakeSender, name: str) -> None:
    """Told at once, not at the deadline; and a first connection is not tried twice."""
    script, expected = ENDINGS[name]
    async with hostile(script) as server:
        before = monotonic()
        assert kind(await send(make_sender(), post(server), timeout_ms=3000)) == expected
        assert monotonic() - before < 1.5
        assert server.connections == 1


async def test_half_a_close_after_the_answer_is_an_answer(make_sender: MakeSender) -> None:
    async with hostile(saying(OK, then="half_close")) as server:
        sender = make_sender()
        for _ in range(2):
            assert await send(sender, post(server)) == Answer(200, None, b"ok", False)


# -- a kept connection that the sink has left --------------------------------------------------------------------------


def _stale(ending: str, said: bytes = b"", *, others: Script = serving) -> Script:
    """The first connection answers once, and ends so on its second request."""

    async def script(peer: Peer) -> None:
        if peer.number > 1:
            await others(peer)
            return
        await peer.answer((await peer.request()).body)
        await peer.request()
        if said:
            await peer.send(said)
        if ending == "reset":
            peer.reset()

    return script


@pytest.mark.parametrize("ending", ["close", "reset"])
async def test_a_stale_connection_is_replaced_once(make_sender: MakeSender, sender_kind: str, ending: str) -> None:
    async with hostile(_stale(ending)) as server:
        sender = make_sender()
        for body in (b"one", b"two", b"three"):
            assert await send(sender, post(server, body)) == Answer(200, None, body, False)
        # aiohttp keeps no connection made for a repeat (the adapter's table of differences).
        assert server.connections == {"fast": 2, "aiohttp": 3}[sender_kind]


async def test_a_stale_connection_is_not_replaced_twice(make_sender: MakeSender) -> None:
    async with hostile(_stale("close", others=saying(b""))) as server:
        sender = make_sender()
        assert status(await send(sender, post(server))) == 200
        assert kind(await send(sender, post(server))) == ("reset", True)
        assert server.connections == 2


async def test_a_stale_connection_is_replaced_inside_the_deadline(make_sender: MakeSender) -> None:
    async def late(peer: Peer) -> None:
        await peer.answer((await peer.request()).body)
        await peer.request()
        await asyncio.sleep(0.2)

    async def script(peer: Peer) -> None:
        await (late if peer.number == 1 else _silent)(peer)

    async with hostile(script) as server:
        sender = make_sender()
        assert status(await send(sender, post(server))) == 200
        before = monotonic()
        assert kind(await send(sender, post(server), timeout_ms=400, connect_timeout_ms=150)) == ("timeout", True)
        assert 0.4 - EARLY_S <= monotonic() - before < 1.5
        assert server.connections == 2


async def test_a_stale_connection_that_cannot_be_replaced_may_have_been_read(make_sender: MakeSender) -> None:
    async with hostile(_stale("close")) as server:
        resolver = FakeResolver({"sink.example": ("127.0.0.1",)})
        resolver.then("sink.example", ("10.0.0.1",))
        sender = make_sender(policy=HERE_ONLY, resolver=resolver)
        assert status(await send(sender, post(server, host="sink.example"))) == 200
        assert kind(await send(sender, post(server, host="sink.example"))) == ("blocked_address", True)


async def test_a_stale_connection_whose_sink_is_gone(make_sender: MakeSender) -> None:
    sender = make_sender()
    async with hostile(serving) as server:
        assert status(await send(sender, post(server))) == 200
        request = post(server)
    assert kind(await send(sender, request))[0] == "connect"


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 200 OK\r\nX-Half: ", CONTINUE])
async def test_one_byte_of_an_answer_and_nothing_is_repeated(
    make_sender: MakeSender, sender_kind: str, said: bytes
) -> None:
    async with hostile(_stale("close", said)) as server:
        sender = make_sender()
        assert status(await send(sender, post(server))) == 200
        outcome = await send(sender, post(server))
        if sender_kind == "aiohttp" and said == CONTINUE:
            assert status(outcome) == 200  # It tells nothing of a 1xx (the adapter's table of differences).
        else:
            assert kind(outcome) == ("reset", True)
            assert server.connections == 1


async def test_an_idle_connection_that_the_sink_closes_is_not_used(make_sender: MakeSender) -> None:
    async def script(peer: Peer) -> None:
        await peer.answer((await peer.request()).body)

    async with hostile(script) as server:
        sender = make_sender()
        for number in (1, 2, 3):
            assert status(await send(sender, post(server))) == 200
            await server.until_gone(number)


async def test_idle_connections_are_closed_in_time(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        sender = make_sender(idle_ms_max=150)
        assert status(await send(sender, post(server), timeout_ms=60_000)) == 200
        before = monotonic()
        await server.until_gone(1)
        # aiohttp looks at its idle connections once per such time.
        assert 0.1 <= monotonic() - before < 1.5
        assert status(await send(sender, post(server))) == 200


# -- connecting --------------------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def _full_backlog() -> AsyncIterator[int]:
    """A port whose kernel swallows every further SYN: nobody accepts, and the queue is full."""
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        port: int = listening.getsockname()[1]
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield port


async def test_connection_refused(make_sender: MakeSender) -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        target = Target("http", "127.0.0.1", reserved.getsockname()[1])
        outcome = await send(make_sender(), Request(target, b"POST", b"/", HEAD, b""))
    assert kind(outcome) == ("connect", False)
    assert isinstance(outcome, Failure) and "refused" in outcome.detail.lower()


@pytest.mark.parametrize(("connect_ms", "total_ms"), [(200, 1000), (1000, 200)])
async def test_no_answer_to_a_connect(make_sender: MakeSender, connect_ms: int, total_ms: int) -> None:
    async with _full_backlog() as port:
        request = Request(Target("http", "127.0.0.1", port), b"POST", b"/", HEAD, b"")
        before = monotonic()
        outcome = await send(make_sender(), request, connect_timeout_ms=connect_ms, timeout_ms=total_ms)
        assert kind(outcome) == ("timeout", False)
        assert 0.2 - EARLY_S <= monotonic() - before < 1.5


async def test_the_next_address_is_tried(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        resolver = FakeResolver({"sink.example": ("127.0.0.9", "127.0.0.1")})
        sender = make_sender(resolver=resolver)
        assert status(await send(sender, post(server, host="sink.example"))) == 200


# -- names -------------------------------------------------------------------------------------------------------------


async def test_row_18_a_name_that_does_not_resolve(make_sender: MakeSender) -> None:
    """Row 18: told as what it is; the rest is retrying's."""
    async with hostile(serving) as server:
        resolver = FakeResolver()
        sender = make_sender(resolver=resolver)
        assert kind(await send(sender, post(server, host="sink.example"))) == ("dns", False)
        resolver.then("sink.example", ("127.0.0.1",))
        assert status(await send(sender, post(server, host="sink.example"))) == 200


async def test_row_18_a_name_server_that_does_not_answer(make_sender: MakeSender) -> None:
    class Hanging:
        async def resolve(self, host: str) -> tuple[str, ...]:
            await asyncio.sleep(5)
            return ()

    async with hostile(serving) as server:
        before = monotonic()
        outcome = await send(make_sender(resolver=Hanging()), post(server, host="sink.example"), connect_timeout_ms=150)
        assert kind(outcome) == ("timeout", False)
        assert 0.15 - EARLY_S <= monotonic() - before < 1.5


async def test_a_name_without_addresses(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        sender = make_sender(resolver=FakeResolver({"sink.example": ()}))
        assert kind(await send(sender, post(server, host="sink.example"))) == ("blocked_address", False)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "0.0.0.0", "127.1", "2130706433"],
)
async def test_a_literal_address_inside_is_refused(make_sender: MakeSender, host: str) -> None:
    async with hostile(serving) as server:
        # The odd spellings come through no door of ours, but the system's resolver would take them.
        resolver = FakeResolver({"127.1": ("127.0.0.1",), "2130706433": ("127.0.0.1",)})
        sender = make_sender(policy=EgressPolicy(), resolver=resolver)
        assert kind(await send(sender, post(server, host=host))) == ("blocked_address", False)
        assert server.connections == 0


async def test_one_bad_address_refuses_all(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        for addresses in (("127.0.0.1", "10.0.0.1"), ("10.0.0.1", "127.0.0.1")):
            sender = make_sender(policy=HERE_ONLY, resolver=FakeResolver({"sink.example": addresses}))
            assert kind(await send(sender, post(server, host="sink.example"))) == ("blocked_address", False)
        assert server.connections == 0


async def test_row_31_a_name_that_points_elsewhere_at_connect(make_sender: MakeSender) -> None:
    """Whoever checked the name before, the address that counts is the one of this connect."""
    async with hostile(serving) as server:
        resolver = FakeResolver({"sink.example": ("127.0.0.1",)})
        resolver.then("sink.example", ("169.254.169.254",))
        assert await resolver.resolve("sink.example") == ("127.0.0.1",)
        sender = make_sender(policy=HERE_ONLY, resolver=resolver)
        assert kind(await send(sender, post(server, host="sink.example"))) == ("blocked_address", False)
        assert server.connections == 0


async def test_the_checked_address_is_the_one_connected_to(make_sender: MakeSender) -> None:
    """One lookup a connection, none for a kept one, which stays with its checked address; a new connection is checked
    anew."""

    async def script(peer: Peer) -> None:
        for _ in range(3):
            await peer.answer((await peer.request()).body)

    async with hostile(script) as server:
        resolver = FakeResolver({"sink.example": ("127.0.0.1",)})
        resolver.then("sink.example", ("169.254.169.254",))
        sender = make_sender(policy=HERE_ONLY, resolver=resolver)
        for _ in range(3):
            assert status(await send(sender, post(server, host="sink.example"))) == 200
        assert resolver.lookups == ["sink.example"]
        await server.until_gone(1)
        # Whether the kept connection is known to be gone by now, or found to be, is a matter of microseconds.
        assert kind(await send(sender, post(server, host="sink.example")))[0] == "blocked_address"
        assert (server.connections, len(resolver.lookups)) == (1, 2)


async def test_two_names_of_one_address_share_no_connection(make_sender: MakeSender) -> None:
    async with hostile(serving) as server:
        sender = make_sender()
        for host in ("sink.example", "other.example", "sink.example"):
            assert status(await send(sender, post(server, host=host))) == 200
        assert server.connections == 2


async def test_no_detail_shows_the_query(make_sender: MakeSender) -> None:
    async def outcome(script: Script, **policy: EgressPolicy) -> Failure:
        async with hostile(script) as server:
            path = b"/in?token=hunter2"
            failure = await send(make_sender(**policy), post(server, path=path, host="sink.example"), timeout_ms=150)
            assert isinstance(failure, Failure)
            return failure

    scripts: list[Script] = [_silent, saying(b""), saying(b"HTTP/1.1 nonsense\r\n\r\n"), saying(b"", then="reset")]
    failures = [await outcome(script) for script in scripts] + [await outcome(serving, policy=EgressPolicy())]
    assert {f.kind for f in failures} == {"timeout", "reset", "malformed", "blocked_address"}
    assert all("hunter2" not in f.detail and "\n" not in f.detail for f in failures)


# -- callers that go away ----------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_closes_its_connection_and_no_other(make_sender: MakeSender) -> None:
    hanging = asyncio.Event()

    async def script(peer: Peer) -> None:
        while True:
            body = (await peer.request()).body
            if body == b"hang":
                hanging.set()
                await peer.until_gone()
                return
            await peer.answer(body)

    async with hostile(script) as server:
        sender = make_sender()
        assert status(await send(sender, post(server))) == 200
        task = asyncio.create_task(send(sender, post(server, b"hang")))
        await hanging.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.until_gone(1)
        assert await send(sender, post(server, b"next")) == Answer(200, None, b"next", False)


async def test_callers_cancelled_at_any_moment_disturb_nobody(make_sender: MakeSender) -> None:
    """Cancelled before, with, or after their answer: a connection given on must not be taken from its new user."""
    async with hostile(serving) as server:
        sender = make_sender()
        for turns in range(12):
            doomed = [asyncio.create_task(send(sender, post(server, b"doomed"))) for _ in range(4)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in doomed:
                task.cancel()
            answers = await asyncio.gather(*(send(sender, post(server, b"%d" % i)) for i in range(8)))
            assert answers == [Answer(200, None, b"%d" % i, False) for i in range(8)]
            await asyncio.gather(*doomed, return_exceptions=True)


async def test_closing_ends_what_is_in_flight(make_sender: MakeSender) -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        asked.set()
        await peer.until_gone()

    async with hostile(script) as server:
        sender = make_sender()
        task = asyncio.create_task(send(sender, post(server), timeout_ms=3000))
        await asked.wait()
        before = monotonic()
        await sender.close()
        assert isinstance(await task, Failure)
        assert monotonic() - before < 1
        await server.until_gone(1)
        assert kind(await send(sender, post(server))) == ("connect", False)
        await sender.close()


async def test_nothing_is_left_behind(make_sender: MakeSender) -> None:
    """After closing, the sink sees every connection end."""
    async with hostile(serving) as server:
        sender = make_sender()
        await asyncio.gather(*(send(sender, post(server)) for _ in range(20)))
        await sender.close()
        await server.until_gone(server.connections)
