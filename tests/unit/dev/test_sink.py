"""The demo's sink: how each endpoint behaves, what it counts, and that it believes no false signature."""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer
from standardwebhooks.webhooks import Webhook

from hub_app.dev import sink
from hub_app.dev.sink import DemoSink, Endpoint, nearest_rank, signature_problem
from hub_app.domain.instants import rfc3339
from hub_app.domain.signing import Signer

SECRET = "whsec_" + base64.b64encode(b"k" * 32).decode()
BODY = b'{"amount":1}'

Client = TestClient[Any, Any]


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    async with TestClient(TestServer(DemoSink(dice=random.Random(1)).application())) as made:
        yield made


def _headers(event: str, *, age_ms: int = 40, secret: str = "", kind: str = "loan.made") -> dict[str, str]:
    now_ms = time.time_ns() // 1_000_000
    found = {"webhook-id": event, "ce-time": rfc3339(now_ms - age_ms), "X-Lerian-Event-Type": kind}
    if secret:
        lines = Signer([secret]).headers(event, now_ms // 1000, BODY).decode().split("\r\n")
        found |= dict(line.split(": ", 1) for line in lines if line)
    return found


async def _post(client: Client, path: str, event: str, **options: Any) -> int:
    async with client.post(path, data=BODY, headers=_headers(event, **options)) as answer:
        return answer.status


async def _stats(client: Client, path: str) -> dict[str, Any]:
    async with client.get("/_stats") as answer:
        found: dict[str, Any] = (await answer.json())["endpoints"][path]
        return found


async def test_good_takes_everything_and_counts_repeats(client: Client) -> None:
    assert [await _post(client, "/good/a", event) for event in ("evt_1", "evt_2", "evt_1")] == [200, 200, 200]
    stats = await _stats(client, "/good/a")
    assert (stats["requests"], stats["delivered"], stats["repeats"]) == (3, 2, 1)
    assert 40 <= stats["p50_ms"] <= stats["p99_ms"] < 10_000
    assert stats["first_ms"] <= stats["last_ms"]
    async with client.get("/_ids", params={"endpoint": "/good/a"}) as answer:
        assert await answer.json() == {"delivered": ["evt_1", "evt_2"]}


async def test_flaky_fails_twice_for_each_event(client: Client) -> None:
    statuses = [await _post(client, "/flaky/a", event) for event in ("evt_1", "evt_1", "evt_2", "evt_1")]
    assert statuses == [503, 503, 503, 200]
    stats = await _stats(client, "/flaky/a")
    assert (stats["delivered"], stats["events"], stats["answered_badly"]) == (1, 2, 3)


async def test_slow_takes_its_time(client: Client) -> None:
    began = time.monotonic()
    assert await _post(client, "/slow/a", "evt_1") == 200
    assert time.monotonic() - began >= sink.SLOW_MS[0] / 1000


async def test_dead_fails_or_hangs(client: Client) -> None:
    assert await _post(client, "/dead/a", "evt_1") == 500
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await _post(client, "/dead/a", "evt_10")
    stats = await _stats(client, "/dead/a")
    assert (stats["requests"], stats["delivered"], stats["p50_ms"]) == (2, 0, None)


@pytest.mark.parametrize("path", ["/good/a", "/flaky/a", "/dead/a"])
async def test_probes_are_welcome_everywhere(client: Client, path: str) -> None:
    assert await _post(client, path, "evt_1", kind=sink.PROBE) == 200
    stats = await _stats(client, path)
    assert (stats["probes"], stats["requests"], stats["delivered"]) == (1, 0, 0)


async def test_with_a_secret_only_what_it_signed_counts(client: Client) -> None:
    assert await _post(client, "/good/a", "evt_0") == 200
    async with client.put("/_secrets", json={"endpoint": "/good/a", "secret": SECRET}) as answer:
        assert answer.status == 204
    other = "whsec_" + base64.b64encode(b"x" * 32).decode()
    assert await _post(client, "/good/a", "evt_1", secret=SECRET) == 200
    assert await _post(client, "/good/a", "evt_2", secret=other) == 401
    assert await _post(client, "/good/a", "evt_3") == 401
    stats = await _stats(client, "/good/a")
    assert (stats["unsigned"], stats["refused"], stats["delivered"]) == (1, 2, 2)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"endpoint":"/good/a"}', b'{"endpoint":"/good/a","secret":"x"}'])
async def test_a_wrong_secret_is_refused(client: Client, body: bytes) -> None:
    async with client.put("/_secrets", data=body) as answer:
        assert answer.status == 400


@pytest.mark.parametrize(("method", "path", "status"), [("POST", "/other", 404), ("GET", "/good/a", 405)])
async def test_what_is_no_endpoint(client: Client, method: str, path: str, status: int) -> None:
    async with client.request(method, path) as answer:
        assert answer.status == status


async def test_without_an_id_it_is_no_event(client: Client) -> None:
    async with client.post("/good/a", data=BODY) as answer:
        assert answer.status == 400


async def test_endpoints_are_bounded(client: Client) -> None:
    statuses = [await _post(client, f"/good/{number}", "evt_1") for number in range(sink.ENDPOINTS_MAX + 1)]
    assert statuses == [200] * sink.ENDPOINTS_MAX + [404]


def test_events_are_bounded() -> None:
    endpoint = Endpoint()
    for number in range(sink.EVENTS_MAX + 5):
        endpoint.arrived(str(number), 1)
        endpoint.took(str(number), 0, 1)
    stats = endpoint.stats()
    assert (stats["events"], stats["delivered"], stats["forgotten"]) == (sink.EVENTS_MAX, sink.EVENTS_MAX, 5)


def test_a_planted_loss_is_one_event() -> None:
    endpoint = Endpoint(skip=2)
    for event in "abcd":
        endpoint.took(event, None, 1)
    assert endpoint.taken() == ["a", "c", "d"]


def test_its_check_agrees_with_a_public_library() -> None:
    now_s = int(time.time())
    headers = _headers("evt_1", secret=SECRET)
    Webhook(SECRET).verify(BODY, headers)
    assert signature_problem(b"k" * 32, headers, BODY, now_s) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"webhook-id": "evt_2"}, "webhook-signature does not match"),
        ({"webhook-signature": "v1,AAAA v2,BBBB"}, "webhook-signature does not match"),
        ({"webhook-timestamp": "1"}, "webhook-timestamp is not now"),
        ({"webhook-timestamp": "soon"}, "webhook-timestamp is not now"),
    ],
)
def test_what_is_not_genuine(change: dict[str, str], problem: str) -> None:
    headers = _headers("evt_1", secret=SECRET) | change
    assert signature_problem(b"k" * 32, headers, BODY, time.time()) == problem


def test_a_missing_header_is_named() -> None:
    assert signature_problem(b"k", {"webhook-id": "evt_1"}, BODY, 0) == "no webhook-timestamp"


@pytest.mark.parametrize(
    ("values", "percent", "found"),
    [([], 50, None), ([7], 50, 7), ([7], 99, 7), ([1, 2], 50, 1), ([1, 2, 3], 50, 2), (list(range(100)), 99, 98)],
)
def test_nearest_rank(values: list[int], percent: int, found: int | None) -> None:
    assert nearest_rank(values, percent) == found
