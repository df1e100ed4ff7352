"""Token buckets at their edges, and what a client is told."""

from __future__ import annotations

from hub_app.settings import Settings, parse
from hub_app.web import rates
from hub_app.web.problems import Problem
from hub_app.web.rates import PULL, READ, WRITE, Granted, RateCaps
from tests.fakes.clock import FakeClock
from tests.fakes.workers import Deployment


def settings(**given: str) -> Settings:
    parsed = parse({name if name == "RATE_LIMIT_ENABLED" else f"STREAMING_HUB_{name}": v for name, v in given.items()})
    assert isinstance(parsed, Settings)
    return parsed


def test_a_burst_then_the_rate() -> None:
    clock = FakeClock()
    caps = RateCaps(settings(PULL_RATE="10", PULL_BURST="3"), clock)
    assert [caps.take(PULL, "k") for _ in range(3)] == [Granted(3, 2, 1), Granted(3, 1, 1), Granted(3, 0, 1)]
    refused = caps.take(PULL, "k")
    assert isinstance(refused, Problem)
    assert refused.status == 429
    assert refused.headers == {
        "Retry-After": "1",
        "RateLimit-Limit": "3",
        "RateLimit-Remaining": "0",
        "RateLimit-Reset": "1",
    }
    clock.advance(99)
    assert isinstance(caps.take(PULL, "k"), Problem)
    clock.advance(1)
    assert isinstance(caps.take(PULL, "k"), Granted)
    assert isinstance(caps.take(PULL, "k"), Problem)


def test_a_bucket_never_holds_more_than_its_burst() -> None:
    clock = FakeClock()
    caps = RateCaps(settings(PULL_RATE="10", PULL_BURST="2"), clock)
    clock.advance(86_400_000)
    assert [isinstance(caps.take(PULL, "k"), Granted) for _ in range(3)] == [True, True, False]


def test_windows_of_management_routes() -> None:
    clock = FakeClock()
    caps = RateCaps(settings(AGGRESSIVE_RATE_LIMIT_MAX="1", AGGRESSIVE_RATE_LIMIT_WINDOW_SEC="60"), clock)
    assert caps.take(WRITE, "k") == Granted(1, 0, 60)
    refused = caps.take(WRITE, "k")
    assert isinstance(refused, Problem)
    assert refused.headers["Retry-After"] == "60"
    assert isinstance(caps.take(WRITE, "other"), Granted)
    assert isinstance(caps.take(READ, "k"), Granted)
    clock.step(3_600_000)  # the wall clock is not asked
    assert isinstance(caps.take(WRITE, "k"), Problem)


def test_management_caps_can_be_off_and_pull_stays() -> None:
    caps = RateCaps(settings(RATE_LIMIT_ENABLED="false", PULL_BURST="1"), FakeClock())
    assert all(caps.take(WRITE, "k") == Granted(0, 0, 0) for _ in range(1_000))
    caps.take(PULL, "k")
    assert isinstance(caps.take(PULL, "k"), Problem)


def test_the_number_of_keys_remembered_is_bounded() -> None:
    caps = RateCaps(settings(), FakeClock())
    for number in range(rates.BUCKETS_MAX + 10):
        caps.take(READ, str(number))
    assert len(caps._buckets) == rates.BUCKETS_MAX


async def test_a_client_is_told(hub: Deployment) -> None:
    worker = await hub.worker(PULL_RATE="1", PULL_BURST="2")
    key, other = await hub.key(worker, "t"), await hub.key(worker, "t")
    first = await hub.ask(worker, "GET", "/v1/events", key=key)
    assert (first.headers["RateLimit-Limit"], first.headers["RateLimit-Remaining"]) == ("2", "1")
    await hub.ask(worker, "GET", "/v1/events", key=key)
    refused = await hub.ask(worker, "GET", "/v1/events", key=key)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert (await hub.ask(worker, "GET", "/v1/events", key=other)).status == 200


async def test_a_cap_holds_whichever_worker_is_asked(hub: Deployment) -> None:
    worker = await hub.worker(PULL_RATE="1", PULL_BURST="3")
    other = await hub.worker(PULL_RATE="1", PULL_BURST="3")
    key = await hub.key(worker, "t")
    replies = [await hub.ask(asked, "GET", "/v1/events", key=key) for asked in (worker, other, other, other)]
    assert [reply.status for reply in replies] == [200, 200, 200, 429]
    assert [reply.headers["RateLimit-Remaining"] for reply in replies] == ["2", "1", "0", "0"]
