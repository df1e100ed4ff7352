"""The fast sender against aiohttp's: POSTs a second and CPU a POST, each in its own process, against the local sink in
a third. The same 1 KB request, 64 in flight. A bare aiohttp client session, which checks and bounds nothing, is beside
them, so that nobody takes our own adapter's cost for aiohttp's."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable

import aiohttp
import uvloop

from hub_app.adapters.resolver import SystemResolver
from hub_app.adapters.sender_aiohttp import AiohttpSender
from hub_app.adapters.sender_fast import FastSender
from hub_app.domain.egress import EgressPolicy
from hub_app.ports import Answer, Request, Sender, Target
from tests.bench import _lib

IN_FLIGHT = 64
POSTS = {"fast": 60_000, "aiohttp": 12_000, "bare": 12_000}
BODY = b"x" * 1024
HEADERS = {
    "User-Agent": "streaming-hub/0",
    "Content-Type": "application/json",
    "ce-specversion": "1.0",
    "ce-id": "6e1b4a0c-5d0f-4c0e-9a53-000000000001",
    "ce-source": "lender",
    "ce-type": "studio.lerian.lender.loan_application.approved",
    "ce-time": "2026-01-02T03:04:05.678Z",
    "ce-schemaversion": "1.0.0",
    "ce-resourcetype": "loan_application",
    "ce-eventtype": "approved",
    "ce-subject": "loan-4711",
    "ce-tenantid": "tenant-1",
    "X-Lerian-Event-Type": "loan_application.approved",
    "X-Lerian-Delivery-Id": "0123456789abcdef0123456789abcdef",
    "X-Lerian-Attempt": "1",
    "webhook-id": "evt_0123456789abcdef0123456789abcdef",
    "webhook-timestamp": "1767323045",
    "webhook-signature": "v1,MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=",
}


def post_with(sender: Sender, port: int) -> Callable[[], Awaitable[int]]:
    head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()).encode()
    request = Request(Target("http", "127.0.0.1", port), b"POST", b"/", head, BODY)

    async def post() -> int:
        answer = await sender.send(request, connect_timeout_ms=5_000, timeout_ms=10_000)
        return answer.status if isinstance(answer, Answer) else 0

    return post


def post_bare(session: aiohttp.ClientSession, port: int) -> Callable[[], Awaitable[int]]:
    url = f"http://127.0.0.1:{port}/"

    async def post() -> int:
        async with session.post(url, data=BODY, headers=HEADERS) as response:
            await response.read()
            return response.status

    return post


async def load(post: Callable[[], Awaitable[int]], posts: int) -> None:
    async def worker(share: int) -> None:
        for _ in range(share):
            if await post() != 200:
                raise RuntimeError("the sink did not answer 200")

    await asyncio.gather(*(worker(posts // IN_FLIGHT) for _ in range(IN_FLIGHT)))


async def measure(kind: str, port: int) -> None:
    """One sender, warmed up and then measured; the last line is the figures."""
    resolver = SystemResolver()
    policy = EgressPolicy(allow_private=True)
    closing: Sender | aiohttp.ClientSession
    if kind == "bare":
        closing = session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        post = post_bare(session, port)
    else:
        closing = sender = (FastSender if kind == "fast" else AiohttpSender)(resolver=resolver, policy=policy)
        post = post_with(sender, port)
    posts = POSTS[kind]
    await load(post, posts // 10)
    before = _lib.Usage.now()
    await load(post, posts)
    spent = _lib.Usage.now().since(before)
    await closing.close()
    await resolver.close()
    done = posts // IN_FLIGHT * IN_FLIGHT
    _lib.report(per_s=done / spent.at_s, cpu_us=spent.cpu_s / done * 1e6, rss_mib=_lib.rss_peak_mib())


def main() -> None:
    if len(sys.argv) == 3:
        uvloop.run(measure(sys.argv[1], int(sys.argv[2])))
        return
    best: dict[str, dict[str, float]] = {}
    with _lib.sink() as sink:
        for round_ in range(1, _lib.ROUNDS + 1):
            for kind in POSTS:
                figures = _lib.run_child("tests.bench.sender", kind, sink.port)
                _lib.progress(f"round {round_}: {kind:8} {figures['per_s']:8.0f}/s {figures['cpu_us']:6.1f} µs a POST")
                known = best.setdefault(kind, figures)
                best[kind] = {
                    "per_s": max(known["per_s"], figures["per_s"]),
                    "cpu_us": min(known["cpu_us"], figures["cpu_us"]),
                    "rss_mib": min(known["rss_mib"], figures["rss_mib"]),
                }
    _lib.report(
        ratio=best["fast"]["per_s"] / best["aiohttp"]["per_s"],
        sender_per_s=round(best["fast"]["per_s"]),
        aiohttp_per_s=round(best["aiohttp"]["per_s"]),
        cpu_us=best["fast"]["cpu_us"],
        cpu_ratio=best["aiohttp"]["cpu_us"] / best["fast"]["cpu_us"],
        aiohttp_cpu_us=best["aiohttp"]["cpu_us"],
        bare_aiohttp_per_s=round(best["bare"]["per_s"]),
        bare_aiohttp_cpu_us=best["bare"]["cpu_us"],
        rss_mib=best["fast"]["rss_mib"],
    )


if __name__ == "__main__":
    main()
