"""Openings, topic watch, standing, backoff, run_forever, client options: each a table or two."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from hub_app.kafka.backoff import delay_ms
from hub_app.kafka.client import KafkaConfig, brokers_of, tls_context
from hub_app.kafka.closing import to_the_end
from hub_app.kafka.forever import describe, run_forever
from hub_app.kafka.openings import Found, judge, judge_starts
from hub_app.kafka.standing import Standing
from hub_app.kafka.topicwatch import MISSED_LOOKS_MAX, TopicWatch


class Clock:
    now = 5

    def now_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now


class Dice:
    def draw(self) -> float:
        return 0.0

    def token(self, size: int) -> bytes:
        return bytes(size)


@pytest.mark.parametrize(
    ("found", "on_disk", "commit", "truncated"),
    [
        (Found(None, 0, 0), False, {"t": 0}, []),
        (Found(None, 0, 0), True, {"t": 0}, []),
        (Found(None, 0, 9), False, {"t": 0}, []),
        (Found(None, 0, 9), True, {"t": 0}, [("t", -1, 9)]),
        (Found(0, 0, 9), True, {}, []),
        (Found(9, 3, 9), True, {}, []),
        (Found(2, 3, 9), True, {}, []),
        (Found(10, 0, 9), False, {"t": 9}, [("t", 10, 9)]),
    ],
)
def test_offsets_at_opening(found: Found, on_disk: bool, commit: Any, truncated: Any) -> None:
    ruling = judge({"t": found}, group="g", shard=3, on_disk=on_disk)
    assert (dict(ruling.commit), list(ruling.truncated), ruling.stopped) == (commit, truncated, "")


def test_no_offset_and_a_later_beginning_stops_with_the_command() -> None:
    ruling = judge({"a": Found(0, 0, 5), "t": Found(None, 4, 9)}, group="g", shard=3, on_disk=False)
    assert not ruling.commit
    assert "--group g --topic t:3 --reset-offsets --to-earliest --execute" in ruling.stopped


@pytest.mark.parametrize(
    ("starts", "why"),
    [
        ({"t": 4}, ""),
        ({"t": 9}, ""),
        ({}, "named no start"),
        ({"t": 3}, "records 3 to 3 of t/7 were deleted"),
        ({"t": 10}, "past its end 9"),
    ],
)
def test_where_reading_may_begin(starts: dict[str, int], why: str) -> None:
    answer = judge_starts({"t": Found(4, 4, 9)}, starts, group="g", shard=7)
    assert (why in answer) if why else (answer == "")


def test_topics_count_at_once_and_leave_slowly() -> None:
    watch = TopicWatch(["facts"], lambda t: t.startswith("retry."))
    assert watch.topics == {"facts"}
    assert watch.saw(["retry.1m", "other"])
    assert watch.topics == {"facts", "retry.1m"}
    for _ in range(MISSED_LOOKS_MAX - 1):
        assert not watch.saw([])
    assert not watch.saw(["retry.1m"])
    for _ in range(MISSED_LOOKS_MAX - 1):
        assert not watch.saw([])
    assert watch.saw([])
    assert watch.topics == {"facts"}
    assert watch.add(["more"])
    assert not watch.add(["more"])
    assert watch.topics == {"facts", "more"}


def test_fixed_topics_never_leave() -> None:
    watch = TopicWatch(["retry.1m"], lambda t: t.startswith("retry."))
    for _ in range(9):
        assert not watch.saw([])
    assert TopicWatch(["a"], None).saw(["b"]) is False


def test_standing_keeps_the_first_moment() -> None:
    clock = Clock()
    standing = Standing(clock)
    standing.report("plane/3", "a")
    clock.now = 9
    standing.report("plane/3", "b")
    standing.report("plane", "c")
    standing.report("planet", "d")
    assert [(n, r.since_ms, r.text) for n, r in standing.reasons().items()] == [
        ("plane", 9, "c"),
        ("plane/3", 5, "b"),
        ("planet", 9, "d"),
    ]
    standing.clear_under("plane")
    standing.clear("unknown")
    assert list(standing.reasons()) == ["planet"]


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_delays_grow_and_are_capped(failures: int, draw: float) -> None:
    delay = delay_ms(failures, draw, first_ms=100, cap_ms=30_000)
    ceiling = min(30_000, 100 * 2 ** min(failures - 1, 30))
    assert ceiling // 2 <= delay < ceiling


async def test_a_loop_outlives_its_step_and_shows_it() -> None:
    standing = Standing(Clock())
    seen: list[Any] = []
    over = asyncio.Event()

    async def step() -> None:
        seen.append(dict(standing.reasons()))
        if len(seen) in (2, 3):
            raise OSError("  away \n now ")
        if len(seen) == 6:
            over.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(run_forever("loop", step, standing=standing, entropy=Dice(), first_ms=1, cap_ms=2))
    async with asyncio.timeout(5):
        await over.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [bool(s) for s in seen] == [False, False, True, True, False, False]
    assert seen[2]["loop"].text == "OSError: away now"
    assert describe(ValueError()) == "ValueError"


async def test_an_end_is_reached_although_the_closer_is_cancelled() -> None:
    steps: list[str] = []
    begun, go = asyncio.Event(), asyncio.Event()

    async def closing() -> None:
        begun.set()
        await go.wait()
        steps.append("closed")

    task = asyncio.create_task(to_the_end(closing()))
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert steps == ["closed"]


def test_security_is_read_from_the_config() -> None:
    assert brokers_of(KafkaConfig(brokers=" a:1, b:2 ,")) == ["a:1", "b:2"]
    assert "secret" not in repr(KafkaConfig(brokers="a", username="u", password="secret"))
    pem = trustme.CA().cert_pem.bytes()
    context = tls_context(base64.b64encode(pem).decode())
    assert context.check_hostname
    assert len(context.get_ca_certs()) == 1
    for wrong in ("%%%", base64.b64encode(b"no pem").decode(), base64.b64encode(b"\xff\xfe").decode()):
        with pytest.raises(ValueError, match="base64 of a PEM"):
            tls_context(wrong)
