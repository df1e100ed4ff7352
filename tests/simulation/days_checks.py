"""What must hold in a world of days (`days_world`). What a sink's breaker and a subscription's streak should be is kept
here beside the hub's own, from what attempts came to; only a new life of a worker takes over what the log has kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from hub_app.domain import autodisable, breaker
from hub_app.domain.autodisable import DisablePolicy, Streak
from hub_app.domain.backoff import DEFAULT_CURVE
from hub_app.domain.breaker import CLOSED, Breaker, BreakerPolicy, Event, State
from hub_app.domain.delivery import Job, OutcomeKind, is_last
from hub_app.domain.subscription import Subscription
from hub_app.wire import attempts as wire_attempts
from tests.support.dispatch_bench import MAX_AGE_MS, Worker, World
from tests.support.dispatching import NAMES

Place = tuple[str, str]
Problem = Callable[[str], None]

DISABLING = DisablePolicy()
ENDS = (OutcomeKind.DELIVERED, OutcomeKind.DEAD)
RECORDED_MS = 130_000
"""By then a streak stands in the log: it is written at most once a minute."""


class Checks:
    def __init__(self, world: World, problem: Problem, *, half: int, breakers: BreakerPolicy) -> None:
        self._world, self._problem, self._half = world, problem, half
        self._policy = breakers
        self.made: dict[bytes, Job] = {}
        self._ended: set[bytes] = set()
        self._read = 0
        self._breakers: dict[Place, Breaker] = {}
        self._lifted: set[Place] = set()
        self._latest_ms = 0
        self._streaks: dict[str, Streak | None] = {}
        self._since_mono_ms: dict[str, int] = {}
        self._tenants: dict[str, str] = {}
        self._flying: Counter[Place] = Counter()
        self._lasts: Counter[Place] = Counter()
        self._last_of: dict[bytes, bool] = {}
        self._sent: set[tuple[bytes, bytes]] = set()

    # -- hooks ---------------------------------------------------------------------------------------------------------
    def watch(self, worker: Worker) -> None:
        """Sees every claim, every end of an attempt, and every subscription that is to be disabled."""
        self._worker = worker
        dispatcher: Any = worker.dispatcher
        health: Any = worker.health
        claim, attempted, judge = dispatcher._claim, health.attempted, health._judge

        def claims(shard: Any, claimed: list[Any], now_ms: int) -> None:
            for row, _ in claimed:
                self._claimed(row, now_ms)
            claim(shard, claimed, now_ms)

        def ends(shard: Any, job: Job, *, ok: bool | None) -> None:
            self._streak_after(job, ok)
            attempted(shard, job, ok=ok)
            self._breaker_after(job, ok)

        def judges(sink: Any, subscription: str, now_ms: int) -> None:
            before = subscription in health.wanted
            judge(sink, subscription, now_ms)
            if subscription in health.wanted and not before:
                streak = self._streaks.get(subscription)
                if not autodisable.fires(streak, now_ms=now_ms, policy=DISABLING):
                    self._problem(f"{subscription} is to be disabled, after {streak} at {now_ms}")

        dispatcher._claim, health.attempted, health._judge = claims, ends, judges

    def stepped_back(self, by_ms: int) -> None:
        """A clock from before an opening does not hold the breaker open for the length of the step, and one that had
        run out has not begun again: one probe may go, also when the clock is set forward once more before that."""
        now_ms, sinks = self._world.clock.now_ms(), self._worker.health._sinks
        self._latest_ms = max(self._latest_ms, now_ms + by_ms)
        for place, one in self._breakers.items():
            if one.open_ms and (one.opened_at_ms > now_ms or (place in sinks and sinks[place].until_ms == 0)):
                self._lifted.add(place)

    def died(self) -> None:
        self._flying.clear()
        self._lasts.clear()
        self._last_of.clear()
        self._sent.clear()  # what was under way may be made again

    def began(self) -> None:
        """A worker has opened the shard: what the log kept of sinks stands."""
        mono_ms = self._world.clock.monotonic_ms()
        known = {id: f.streak for sink in self._worker.health._sinks.values() for id, f in sink.failing.items()}
        for id, streak in self._streaks.items():
            old = mono_ms - self._since_mono_ms.get(id, mono_ms) > RECORDED_MS
            if streak is not None and old and (id not in known or known[id].first_ms != streak.first_ms):
                self._problem(f"the streak of {id} was {streak}, and after a restart {known.get(id)}")
        self._streaks = dict(known)
        self._breakers = {place: sink.breaker for place, sink in self._worker.health._sinks.items()}

    def enabled(self, one: Subscription) -> None:
        id, place = one.id, (one.tenant, one.destination)
        self._streaks[id] = autodisable.since_enabled(self._streaks.get(id), enabled_at_ms=one.enabled_at_ms)
        sink = self._worker.health.sink(place)
        self._breakers[place] = CLOSED if sink is None else sink.breaker

    # -- attempts ------------------------------------------------------------------------------------------------------
    def _claimed(self, row: Any, now_ms: int) -> None:
        job: Job = row.job
        name, place = f"attempt {job.attempt} of job {job.seq}", (job.tenant, job.destination)
        self._read_log()
        if job.delivery_id in self._ended:
            self._problem(f"{name}: it has ended")
        if job.attempt > DEFAULT_CURVE.attempts_max:
            self._problem(f"{name}: one too many")
        # A job that came to the line for its last attempt keeps its place there when the clock steps back.
        oldest_ms = max(now_ms, self._latest_ms)
        last = is_last(job, curve=DEFAULT_CURVE, started_at_ms=oldest_ms, max_age_ms=MAX_AGE_MS)
        if row.due_ms > now_ms and not last:
            self._problem(f"{name}: {row.due_ms - now_ms} ms too early")
        one = self._worker.subscriptions.get(job.tenant, job.subscription)
        if one is None or not one.receives or one.id in self._worker.health.wanted:
            self._problem(f"{name}: its subscription receives nothing")
        state = self._state(place, now_ms)
        if state is State.OPEN and not (last and self._lasts[place] == 0):
            self._problem(f"{name}: the breaker is open, last: {last}, {self._lasts[place]} lasts in flight")
        if state is State.HALF_OPEN and self._flying[place]:
            self._problem(f"{name}: a second probe")
        self._flying[place] += 1
        self._lasts[place] += last
        self._last_of[job.delivery_id] = last
        if self._flying[place] > self._half:
            self._problem(f"{name}: {self._flying[place]} workers are at {place}")

    def _state(self, place: Place, now_ms: int) -> State:
        now = self._breakers.get(place, CLOSED)
        return State.HALF_OPEN if now.open_ms and place in self._lifted else breaker.state_at(now, now_ms)

    def sent(self, request: Any) -> None:
        """Nothing is sent twice in one life of a worker, whatever the clock does."""
        lines = dict(line.split(b": ", 1) for line in request.head.lower().split(b"\r\n") if line)
        key = (lines[b"x-lerian-delivery-id"], lines[b"x-lerian-attempt"])
        if key in self._sent:
            self._problem(f"attempt {key[1].decode()} of {key[0].decode()} is made again")
        self._sent.add(key)

    def _streak_after(self, job: Job, ok: bool | None) -> None:
        id = job.subscription
        self._tenants[id] = job.tenant
        if ok:
            self._streaks[id] = None
        elif ok is False:
            before = self._streaks.get(id)
            if before is None:
                self._since_mono_ms[id] = self._world.clock.monotonic_ms()
            self._streaks[id] = autodisable.failed(before, at_ms=self._world.clock.now_ms())

    def _breaker_after(self, job: Job, ok: bool | None) -> None:
        place = (job.tenant, job.destination)
        self._flying[place] -= 1
        self._lasts[place] -= self._last_of.pop(job.delivery_id, False)
        if ok is not None:
            event = Event.SUCCEEDED if ok else Event.FAILED
            before, now_ms = self._breakers.get(place, CLOSED), self._world.clock.now_ms()
            self._lifted.discard(place)
            self._breakers[place] = breaker.after(before, event, now_ms=now_ms, policy=self._policy)

    # -- what the log says ---------------------------------------------------------------------------------------------
    def _read_log(self) -> None:
        entries = self._world.log.topics[NAMES.attempts, 0][self._read :]
        self._read += len(entries)
        for entry in entries:
            said = wire_attempts.read(entry.headers, entry.value)
            if not isinstance(said, wire_attempts.Outcome):
                continue
            job = said.job
            if said.kind in ENDS:
                self._ended.add(job.delivery_id)
            elif said.kind is OutcomeKind.FAILED and is_last(
                job, curve=DEFAULT_CURVE, started_at_ms=said.at_ms, max_age_ms=MAX_AGE_MS
            ):
                self._problem(f"job {job.seq} goes on after its last attempt, number {job.attempt}")
            if said.reason == "exhausted" and job.attempt != DEFAULT_CURVE.attempts_max:
                self._problem(f"job {job.seq} was given up after {job.attempt} attempts")

    def unfinished(self) -> set[bytes]:
        self._read_log()
        return self.made.keys() - self._ended

    # -- what time brings ----------------------------------------------------------------------------------------------
    def judged(self) -> None:
        """For when the hub has had the time to look: whose streak is old enough is to be disabled."""
        now_ms = self._world.clock.now_ms()
        for id, streak in self._streaks.items():
            one = self._worker.subscriptions.get(self._tenants[id], id)
            if one is None or not one.enabled or id in self._worker.health.wanted:
                continue
            if autodisable.fires(streak, now_ms=now_ms, policy=DISABLING):
                self._problem(f"{id} fails since {streak} and is not to be disabled at {now_ms}")
