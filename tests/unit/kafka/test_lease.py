"""The lease with a clock in the hand and a coordinator that answers what it is told."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.protocol.commit import OffsetCommitRequest
from aiokafka.protocol.group import HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest, SyncGroupRequest

from hub_app.kafka.lease import Lease, MemberFenced


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000

    def now_ms(self) -> int:
        raise AssertionError("the lease never looks at the wall clock")

    def monotonic_ms(self) -> int:
        return self.now


class Answer:
    def __init__(self, error_code: int = 0, topics: Any = ()) -> None:
        self.error_code = error_code
        self.topics = topics


class Coordinator:
    """`_send_req` takes `delay_ms` and answers `answer` (or raises it)."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.delay_ms = 0
        self.answer: Any = Answer()
        self.sent: list[Any] = []

    async def _send_req(self, request: Any) -> Any:
        self.sent.append(request)
        self.clock.now += self.delay_ms
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Consumer:
    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator


HEARTBEAT = HeartbeatRequest("g", 1, "m")
SYNC = SyncGroupRequest("g", 1, "m", None, [])
JOIN = JoinGroupRequest("g", 10_000, 30_000, "", "static", "consumer", [])
COMMIT = OffsetCommitRequest("g", 1, "m", -1, [])


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def coordinator(clock: Clock) -> Coordinator:
    return Coordinator(clock)


@pytest.fixture
def lease(clock: Clock, coordinator: Coordinator) -> Lease:
    lease = Lease(clock, session_timeout_ms=10_000)
    lease.attach(Consumer(coordinator))
    return lease


def test_without_contact_there_is_no_lease(lease: Lease, clock: Clock) -> None:
    assert not lease.valid(clock.now)
    assert lease.remaining_ms(clock.now) == 0


async def test_it_holds_from_the_sending_and_not_from_the_answer(
    lease: Lease, clock: Clock, coordinator: Coordinator
) -> None:
    sent = clock.now
    coordinator.delay_ms = 4_000
    await coordinator._send_req(HEARTBEAT)
    assert lease.valid(sent + 9_999)
    assert not lease.valid(sent + 10_000)
    assert lease.remaining_ms(sent + 4_000) == 6_000


@pytest.mark.parametrize(
    ("request_", "answer", "held"),
    [
        (HEARTBEAT, Answer(0), True),
        (HEARTBEAT, Answer(27), True),
        (HEARTBEAT, Answer(16), False),
        (SYNC, Answer(0), True),
        (SYNC, Answer(27), False),
        (COMMIT, Answer(topics=[("t", [(0, 0), (1, 3)])]), True),
        (COMMIT, Answer(topics=[("t", [(0, 27)])]), False),
        (COMMIT, Answer(topics=[]), False),
        (JOIN, Answer(0), False),
    ],
)
async def test_what_counts_as_contact(
    lease: Lease, clock: Clock, coordinator: Coordinator, request_: Any, answer: Answer, held: bool
) -> None:
    coordinator.answer = answer
    assert await coordinator._send_req(request_) is answer
    assert lease.valid(clock.now) is held


async def test_an_answer_that_never_came_renews_nothing(lease: Lease, clock: Clock, coordinator: Coordinator) -> None:
    await coordinator._send_req(HEARTBEAT)
    coordinator.delay_ms = 9_000
    coordinator.answer = TimeoutError()
    with pytest.raises(TimeoutError):
        await coordinator._send_req(HEARTBEAT)
    assert lease.valid(clock.now)
    clock.now += 1_000
    assert not lease.valid(clock.now)


@pytest.mark.parametrize("code", [22, 25, 82])
async def test_being_disowned_ends_it_at_once(lease: Lease, clock: Clock, coordinator: Coordinator, code: int) -> None:
    await coordinator._send_req(HEARTBEAT)
    coordinator.answer = Answer(code)
    await coordinator._send_req(HEARTBEAT)
    assert not lease.valid(clock.now)


async def test_leaving_ends_it(lease: Lease, clock: Clock, coordinator: Coordinator) -> None:
    await coordinator._send_req(HEARTBEAT)
    await coordinator._send_req(LeaveGroupRequest("g", "m"))
    assert not lease.valid(clock.now)


async def test_an_older_sending_never_shortens_it(clock: Clock) -> None:
    lease = Lease(clock, session_timeout_ms=100)
    lease.contact(500)
    lease.contact(400)
    assert lease.valid(599)


@pytest.mark.parametrize("may", [True, False])
async def test_a_displaced_static_member_asks_before_it_joins_again(
    clock: Clock, coordinator: Coordinator, may: bool
) -> None:
    lease = Lease(clock, session_timeout_ms=10_000)

    async def may_join() -> bool:
        return may

    lease.attach(Consumer(coordinator), may_join=may_join)
    await coordinator._send_req(HEARTBEAT)
    coordinator.answer = Answer(25)
    await coordinator._send_req(HEARTBEAT)
    coordinator.answer = Answer(0)
    if may:
        await coordinator._send_req(JOIN)
    else:
        with pytest.raises(MemberFenced):
            await coordinator._send_req(JOIN)
        assert JOIN not in coordinator.sent


async def test_a_member_whose_session_ran_out_joins_again_without_asking(
    clock: Clock, coordinator: Coordinator
) -> None:
    lease = Lease(clock, session_timeout_ms=10_000)

    async def may_join() -> bool:
        raise AssertionError("not asked")

    lease.attach(Consumer(coordinator), may_join=may_join)
    await coordinator._send_req(HEARTBEAT)
    clock.now += 20_000
    coordinator.answer = Answer(25)
    await coordinator._send_req(HEARTBEAT)
    coordinator.answer = Answer(0)
    assert await coordinator._send_req(JOIN) is coordinator.answer
