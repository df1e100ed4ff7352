"""A sink that costs next to nothing: HTTP/1.1 over a bare asyncio.Protocol on uvloop, 200 to every request, at once.

It is a yardstick, not a server: it trusts what it is sent (one `Content-Length` per request, no chunks). Paths that
begin with "/!" behave otherwise: `/!hang` never answers, `/!slow/<ms>` answers late, `/!status/<code>` with that code,
`/!down/<ms>` with 503. Told to `behave`, the sink answers them like any other path (`/!down` so late), until it is told
to `misbehave` again.

On stdin it takes one command a line, and answers on stdout with one JSON object a line: `counts`, `arrivals`,
`forget`, `behave`, `misbehave`. It ends when stdin ends, so it does not outlive who started it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
import time
from typing import Any

import uvloop

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Ledger:
    """Who came, how often, and when."""

    def __init__(self, header: str | None) -> None:
        self.mark = f"\r\n{header.lower()}: ".encode() if header else None
        self.requests = 0
        self.seen: dict[bytes, list[int]] = {}
        self.behaves = False
        self.late = self.late_max = 0
        """Requests that wait for their late answer: now, and at most."""

    def note(self, head: bytes) -> None:
        self.requests += 1
        if self.mark is None:
            return
        now = time.monotonic_ns()
        start = head.lower().find(self.mark) + len(self.mark)
        name = head[start : head.index(b"\r\n", start)] if start >= len(self.mark) else b""
        entry = self.seen.get(name)
        if entry is None:
            self.seen[name] = [1, now, now]
        else:
            entry[0] += 1
            entry[2] = now

    def answer(self, command: str) -> dict[str, Any]:
        if command == "counts":
            return {"requests": self.requests, "ids": len(self.seen), "late_max": self.late_max}
        if command == "arrivals":
            return {name.decode("latin-1"): seen for name, seen in self.seen.items()}
        if command == "forget":
            self.requests = self.late_max = 0
            self.seen.clear()
            return {}
        if command in ("behave", "misbehave"):
            self.behaves = command == "behave"
            return {}
        return {"error": "counts, arrivals, forget, behave or misbehave"}


class Sink(asyncio.Protocol):
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._pending = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._pending:
            data = self._pending + data
            self._pending = b""
        while data:
            head_end = data.find(b"\r\n\r\n") + 4
            if head_end < 4 or len(data) < (end := head_end + _length(data)):
                self._pending = data
                return
            self._ledger.note(data[:head_end])
            start = data.index(b" ") + 1
            if data[start + 1] == 0x21:
                self._behave(data[start : data.index(b" ", start)].decode())
            else:
                self._transport.write(OK)
            data = data[end:]

    def _behave(self, path: str) -> None:
        word, _, value = path[2:].partition("/")
        first, behaves = value.partition("/")[0], self._ledger.behaves  # the rest tells destinations apart
        if word == ("down" if behaves else "slow"):
            self._ledger.late += 1
            self._ledger.late_max = max(self._ledger.late_max, self._ledger.late)
            asyncio.get_running_loop().call_later(int(first) / 1000, self._answer_late)
        elif behaves:
            self._transport.write(OK)
        elif word != "hang":
            self._transport.write(OK.replace(b"200 OK", b"%d Status" % (503 if word == "down" else int(first))))

    def _answer_late(self) -> None:
        self._ledger.late -= 1
        if not self._transport.is_closing():
            self._transport.write(OK)


def _length(data: bytes) -> int:
    start = data.find(b"\r\nContent-Length: ")
    if start < 0:
        start = data.lower().find(b"\r\ncontent-length: ")
    return int(data[start + 18 : data.index(b"\r\n", start + 18)])


async def serve(port: int, header: str | None) -> None:
    loop = asyncio.get_running_loop()
    ledger, done = Ledger(header), asyncio.Event()
    server = await loop.create_server(lambda: Sink(ledger), "127.0.0.1", port, backlog=1024)

    def on_stdin() -> None:
        line = sys.stdin.readline()
        if line:
            print(json.dumps(ledger.answer(line.strip())), flush=True)
        else:
            done.set()

    loop.add_reader(sys.stdin.fileno(), on_stdin)
    loop.add_signal_handler(signal.SIGTERM, done.set)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await done.wait()
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--record", metavar="HEADER")
    args = parser.parse_args()
    uvloop.run(serve(args.port, args.record))


if __name__ == "__main__":
    main()
