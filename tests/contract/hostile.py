"""A server that does to its clients whatever a script says, byte by byte: the peer of the senders' contract suite."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

PATIENCE_S = 5.0


class Received(NamedTuple):
    line: bytes
    headers: tuple[bytes, ...]
    body: bytes


class Peer:
    """One accepted connection, as its script sees it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number  # Of the connection, from 1.
        self.reader, self.writer = reader, writer
        self.written = 0

    async def head(self) -> tuple[bytes, ...]:
        """Request line and header lines. Raises IncompleteReadError when the client is gone."""
        return tuple((await self.reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n"))

    async def request(self) -> Received:
        """A whole request."""
        line, *headers = await self.head()
        lengths = [h.partition(b":")[2] for h in headers if h.lower().startswith(b"content-length:")]
        return Received(line, tuple(headers), await self.reader.readexactly(int(lengths[0])))

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        self.written += len(data)
        await self.writer.drain()

    async def answer(self, body: bytes = b"ok", status: bytes = b"200 OK", headers: bytes = b"") -> None:
        """A whole, decent answer."""
        await self.send(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n%s\r\n%s" % (status, len(body), headers, body))

    async def drip(self, data: bytes, every_s: float) -> None:
        for i in range(len(data)):
            await self.send(data[i : i + 1])
            await asyncio.sleep(every_s)

    async def flood(self, data: bytes) -> None:
        """The same again and again, until the client is gone."""
        while True:
            await self.send(data)

    def half_close(self) -> None:
        """No more from this side, though it still reads."""
        raw = socket.socket(fileno=self.writer.get_extra_info("socket").fileno())
        try:
            raw.shutdown(socket.SHUT_WR)
        finally:
            raw.detach()

    def reset(self) -> None:
        """RST, not FIN."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def until_gone(self) -> None:
        """Wait until the client has closed, or been rude."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Peer], Awaitable[None]]


class Hostile:
    """A listening server. What became of each connection is in `gone`, how many there were in `connections`."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.peers: list[Peer] = []
        self.requests: list[Received] = []
        self.names: list[str | None] = []
        self.port = 0
        self.gone = 0
        self._changed = asyncio.Event()

    @property
    def connections(self) -> int:
        return len(self.peers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        peer = Peer(self.connections + 1, reader, writer)
        self.peers.append(peer)
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._script(peer)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # A client that goes away is what most scripts provoke.
        except asyncio.CancelledError:
            pass  # By end(). Passed on, asyncio's streams would report it as an error of theirs.
        finally:
            self._tasks.discard(task)
            writer.transport.abort()
            self.gone += 1
            self._changed.set()

    async def until_gone(self, count: int) -> None:
        """Wait until so many connections have ended; raises TimeoutError after a while."""
        async with asyncio.timeout(PATIENCE_S):
            while self.gone < count:
                self._changed.clear()
                await self._changed.wait()

    async def end(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def hostile(
    script: Script, *, tls: ssl.SSLContext | None = None, receive_buffer: int | None = None
) -> AsyncIterator[Hostile]:
    """A hostile server on a free port. A small receive buffer makes a client's long body wait at the client."""
    server = Hostile(script)
    if tls is not None:
        tls.sni_callback = lambda _, name, __: server.names.append(name)
    sock = socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    sock.bind(("127.0.0.1", 0))
    listening = await asyncio.start_server(server.serve, sock=sock, ssl=tls, limit=receive_buffer or 65536)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.end()


def saying(data: bytes, *, then: str = "close") -> Script:
    """Read one request, say this, and then `close`, `reset`, `half_close`, or `stay` silent."""

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(data)
        if then == "reset":
            peer.reset()
        elif then == "half_close":
            peer.half_close()
            await peer.until_gone()
        elif then == "stay":
            await peer.until_gone()

    return script


async def serving(peer: Peer) -> None:
    """A decent server: each request is answered with its own body."""
    while True:
        await peer.answer((await peer.request()).body)
