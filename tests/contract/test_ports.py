"""Clock, Entropy and Resolver: what real and fake both do."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from hub_app.adapters.clock import SystemClock
from hub_app.adapters.entropy import SystemEntropy
from hub_app.adapters.resolver import SystemResolver
from hub_app.ports import Clock, Entropy, Resolver
from tests.fakes.clock import FakeClock
from tests.fakes.entropy import FakeEntropy
from tests.fakes.resolver import FakeResolver

NAMES = {"sink.example": ("192.0.2.1", "2001:db8::1"), "one.example": ("192.0.2.2",)}


@pytest.fixture(params=[SystemClock, FakeClock])
def clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


def test_clocks_count_whole_milliseconds_and_grow(clock: Clock) -> None:
    now, monotonic = clock.now_ms(), clock.monotonic_ms()
    assert isinstance(now, int) and isinstance(monotonic, int)
    assert now > 1_700_000_000_000  # Milliseconds since the epoch, not seconds.
    assert clock.now_ms() >= now
    assert clock.monotonic_ms() >= monotonic


def test_the_fake_clock_moves_as_told() -> None:
    clock = FakeClock(now_ms=1000)
    before = clock.monotonic_ms()
    clock.advance(250)
    clock.step(-900)
    assert (clock.now_ms(), clock.monotonic_ms() - before) == (350, 250)
    with pytest.raises(ValueError, match="only grows"):
        clock.advance(-1)


@pytest.fixture(params=[SystemEntropy, FakeEntropy])
def entropy(request: pytest.FixtureRequest) -> Entropy:
    made: Entropy = request.param()
    return made


def test_entropy_is_uniform_enough_and_below_one(entropy: Entropy) -> None:
    draws = [entropy.draw() for _ in range(4000)]
    assert all(0 <= draw < 1 for draw in draws)
    assert all(300 < sum(int(draw * 10) == tenth for draw in draws) < 500 for tenth in range(10))


@pytest.mark.parametrize("size", [0, 1, 32])
def test_tokens_have_their_size_and_differ(entropy: Entropy, size: int) -> None:
    tokens = [entropy.token(size) for _ in range(4)]
    assert all(isinstance(token, bytes) and len(token) == size for token in tokens)
    assert size < 32 or len(set(tokens)) == 4


def test_the_fake_entropy_repeats_itself_and_takes_numbers() -> None:
    one, two = FakeEntropy(7, draws=[0.25, 0.5]), FakeEntropy(7)
    assert [one.draw(), one.draw()] == [0.25, 0.5]
    assert [one.draw(), one.token(4)] == [two.draw(), two.token(4)]


def _answers(host: str) -> list[Any]:
    """As getaddrinfo answers: an entry per address and socket type; the real one raises gaierror."""
    if host not in NAMES:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    return [
        (socket.AF_INET6 if ":" in ip else socket.AF_INET, kind, 0, "", (ip, 0))
        for ip in NAMES[host]
        for kind in (1, 2)
    ]


@pytest_asyncio.fixture(params=["system", "fake"])
async def resolver(request: pytest.FixtureRequest) -> AsyncIterator[Resolver]:
    if request.param == "fake":
        yield FakeResolver(NAMES)
        return
    made = SystemResolver(getaddrinfo=lambda host, *_, **__: _answers(host))
    yield made
    await made.close()


async def test_names_resolve_to_each_address_once_and_in_order(resolver: Resolver) -> None:
    for _ in range(2):
        assert await resolver.resolve("sink.example") == NAMES["sink.example"]
        assert await resolver.resolve("one.example") == NAMES["one.example"]


async def test_unknown_names_raise_oserror_every_time(resolver: Resolver) -> None:
    for _ in range(2):
        with pytest.raises(OSError, match="not known"):
            await resolver.resolve("missing.example")


@pytest.mark.parametrize("literal", ["127.0.0.1", "192.0.2.9", "::1", "2001:db8::9"])
async def test_literal_addresses_are_their_own_answer(resolver: Resolver, literal: str) -> None:
    assert await resolver.resolve(literal) == (literal,)


class Counting:
    """A getaddrinfo that counts, and waits for a sign if asked to."""

    def __init__(self, *, hold: bool = False) -> None:
        self.asked: list[str] = []
        self.at_once = self.at_once_max = 0
        self._lock = threading.Lock()
        self.go = threading.Event()
        if not hold:
            self.go.set()

    def __call__(self, host: str, *_: Any, **__: Any) -> list[Any]:
        with self._lock:
            self.asked.append(host)
            self.at_once += 1
            self.at_once_max = max(self.at_once, self.at_once_max)
        try:
            self.go.wait(5)
            if host.startswith("bad"):
                raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
            return [(socket.AF_INET, 1, 0, "", ("192.0.2.1", 0))]
        finally:
            with self._lock:
                self.at_once -= 1


MakeResolver = Callable[..., SystemResolver]


@pytest_asyncio.fixture
async def make_resolver() -> AsyncIterator[MakeResolver]:
    made: list[SystemResolver] = []

    def make(**options: Any) -> SystemResolver:
        made.append(SystemResolver(**options))
        return made[-1]

    yield make
    for resolver in made:
        await resolver.close()


async def test_good_answers_are_kept_for_a_while_and_failures_are_not(make_resolver: MakeResolver) -> None:
    ask = Counting()
    resolver = make_resolver(getaddrinfo=ask, ttl_ms=60_000)
    for _ in range(3):
        await resolver.resolve("good.example")
        with pytest.raises(OSError, match="Temporary"):
            await resolver.resolve("bad.example")
    assert sorted(ask.asked) == ["bad.example"] * 3 + ["good.example"]
    expired = make_resolver(getaddrinfo=ask, ttl_ms=0)
    for _ in range(2):
        await expired.resolve("good.example")
    assert ask.asked.count("good.example") == 3


async def test_the_cache_is_bounded(make_resolver: MakeResolver) -> None:
    ask = Counting()
    resolver = make_resolver(getaddrinfo=ask, names_max=2, ttl_ms=60_000)
    for name in ("a.example", "b.example", "c.example", "c.example", "b.example", "a.example"):
        await resolver.resolve(name)
    assert ask.asked == ["a.example", "b.example", "c.example", "a.example"]


async def test_one_lookup_a_name_and_few_at_once(make_resolver: MakeResolver) -> None:
    ask = Counting(hold=True)
    resolver = make_resolver(getaddrinfo=ask, lookups_max=3)
    names = [f"{n % 10}.example" for n in range(50)]
    waiting = asyncio.gather(*(resolver.resolve(name) for name in names))
    await asyncio.sleep(0)
    ask.go.set()
    assert set(await waiting) == {("192.0.2.1",)}
    assert sorted(ask.asked) == sorted(set(names))
    assert ask.at_once_max <= 3


async def test_a_caller_that_gives_up_takes_the_answer_from_nobody(make_resolver: MakeResolver) -> None:
    ask = Counting(hold=True)
    resolver = make_resolver(getaddrinfo=ask)
    impatient = asyncio.create_task(resolver.resolve("good.example"))
    patient = asyncio.create_task(resolver.resolve("good.example"))
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.sleep(0)
    ask.go.set()
    assert await patient == ("192.0.2.1",)
    assert impatient.cancelled() and ask.asked == ["good.example"]


async def test_a_failure_nobody_waits_for_is_silent(make_resolver: MakeResolver) -> None:
    """No "exception was never retrieved" in the log; the suite turns it into an error."""
    ask = Counting(hold=True)
    resolver = make_resolver(getaddrinfo=ask)
    task = asyncio.create_task(resolver.resolve("bad.example"))
    await asyncio.sleep(0)
    task.cancel()
    ask.go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OSError, match="Temporary"):
        await resolver.resolve("bad.example")


async def test_a_closed_resolver_says_so(make_resolver: MakeResolver) -> None:
    resolver = make_resolver(getaddrinfo=Counting())
    await resolver.close()
    with pytest.raises(OSError, match="closed"):
        await resolver.resolve("good.example")


@pytest.mark.parametrize("host", ["a" * 70 + ".example", "a..example", "bad name", "\u2488.example"])
async def test_names_the_system_chokes_on_do_not_resolve(make_resolver: MakeResolver, host: str) -> None:
    """Python's IDNA raises UnicodeError for some of them."""

    def encode(host: str, *_: Any, **__: Any) -> list[Any]:
        host.encode("idna")
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with pytest.raises(OSError, match=r"not a host name|not known"):
        await make_resolver(getaddrinfo=encode).resolve(host)


async def test_the_system_resolves_this_machine(make_resolver: MakeResolver) -> None:
    assert {"127.0.0.1", "::1"} & set(await make_resolver().resolve("localhost"))
