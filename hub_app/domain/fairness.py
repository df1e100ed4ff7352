"""Who is next: tenants in turn, their destinations in turn, inside a destination by due time; no destination holds more
than its window, and those that hang hold together at most half of the workers. In memory, pure, exact.

A destination *stands in line* while it has due work, room in its window, and no block. It gets a ticket when it comes
to the line and a new one at each turn, and so does its tenant; lowest ticket first, the tenant's before the
destination's. Suspects stand in lines of their own, so that while they may not go on nobody has to walk past them, but
with the same tickets: their place is where it would be in one line.

Lines change at `pick` alone: first the destinations touched since the last one (in the order they were first touched),
then those whose time has come (in the order of their times). No decision looks at all destinations or tenants.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

from hub_app.domain.lines import SLACK, Destination, Line, Tenant

R = TypeVar("R", bound=Hashable)


class Scheduler(Generic[R]):
    """`now_ms` is the wall clock (due times are wall time; it may step), `mono_ms` a clock that only grows (how long an
    attempt has been in flight). A destination is (tenant, destination); a `ref` stands for one job and is unique among
    those waiting or in flight."""

    def __init__(self, workers: int, *, remembered_max: int = 10_000) -> None:
        """`remembered_max`: idle destinations whose window, usual time and last result are kept."""
        if workers < 1:
            raise ValueError("a scheduler needs a worker")
        self.workers = workers
        self.half = max(1, workers // 2)
        self._window_min = max(1, workers // 16)
        self._remembered_max = remembered_max
        self._numbers = 0
        self._tenants: dict[str, Tenant] = {}
        self._destinations: dict[tuple[str, str], Destination] = {}
        self._idle: OrderedDict[Destination, None] = OrderedDict()
        self._waiting: dict[R, tuple[Destination, int]] = {}
        self._flying: dict[R, Destination] = {}
        self._healthy: Line[Tenant] = Line()
        self._suspects: Line[Tenant] = Line()
        self._suspects_flying = 0
        self._touched: list[Destination] = []
        self._timers: list[tuple[int, int, Destination]] = []  # wall clock: due times and ends of blocks
        self._sleeping = 0
        self._watches: list[tuple[float, int, Destination]] = []  # monotonic clock: when an attempt counts as hanging

    # -- what the dispatcher calls -------------------------------------------------------------------------------------
    def offer(self, tenant: str, destination: str, due_ms: int, ref: R, *, passes: bool = False) -> None:
        """A job joins the head of its destination. `passes`: a block does not hold it; a destination has one such job
        at a time. ValueError if `ref` is already waiting or in flight, or a second one would pass."""
        if ref in self._waiting or ref in self._flying:
            raise ValueError("this job is already waiting or in flight")
        to = self._destination(tenant, destination)
        if passes and to.passing is not None:
            raise ValueError("one job at a time passes a block")
        number = self._next()
        if passes:
            to.passing = (due_ms, number, ref)
        else:
            heappush(to.heap, (due_ms, number, ref))
        self._waiting[ref] = (to, number)
        self._touch(to)

    def pick(self, now_ms: int, mono_ms: int) -> R | None:
        """The job to attempt now, or None: nothing is due, or everything due is held back, or all workers are busy."""
        if len(self._flying) >= self.workers:
            return None
        self._watch(mono_ms)
        self._settle(now_ms)
        while (chosen := self._first()) is not None:
            ready_at = self._ready_at(chosen)
            if ready_at is not None and ready_at <= now_ms:
                return self._start(chosen, now_ms, mono_ms)
            self._place(chosen, now_ms)  # the wall clock stepped back since it came to the line
        return None

    def finished(self, ref: R, *, ok: bool | None, now_ms: int, mono_ms: int) -> None:
        """The attempt of `ref` ended. None: not charged, it says nothing about the sink. Refill the destination's head
        before this call: the window grows only if more due work waits. KeyError if `ref` is not in flight."""
        of = self._flying.pop(ref)
        started = of.flying.pop(ref)
        if of.suspect:
            self._suspects_flying -= 1
        if ok is True:
            of.failed = False
            of.learn(mono_ms - started)
            if self._due_at(of, now_ms):
                of.window = min(self.half, of.window + 1)
            else:
                of.window = max(self._window_min, of.window - 1)
        elif ok is False:
            of.failed = True
            of.window = self._window_min
        hangs_after = of.hangs_after_ms() if of.flying else None
        self._suspect(of, of.failed or (hangs_after is not None and mono_ms > hangs_after))
        if hangs_after is not None:
            self._watch_from(of, hangs_after)
        self._touch(of)

    def remove(self, ref: R) -> bool:
        """Takes a waiting job out; False if it is not waiting (unknown, or in flight)."""
        entry = self._waiting.pop(ref, None)
        if entry is None:
            return False
        of = entry[0]
        if of.passing is not None and of.passing[1] == entry[1]:
            of.passing = None
            self._touch(of)
            return True
        of.gone += 1
        if of.gone > of.size + SLACK:
            of.heap[:] = [job for job in of.heap if self._is_waiting(job)]
            heapify(of.heap)
            of.gone = 0
        self._touch(of)
        return True

    def set_blocked(self, tenant: str, destination: str, until_ms: int | None, *, at_most: int | None = None) -> None:
        """The place of the circuit breaker: no attempt before `until_ms` (None: no block), and at most `at_most` in
        flight afterwards (None: as usual; forgotten with the destination when that has been idle for long)."""
        if at_most is not None and at_most < 1:
            raise ValueError("at most one or more: use a block for none")
        to = self._destination(tenant, destination)
        to.blocked_until_ms = 0 if until_ms is None else until_ms
        to.at_most = at_most
        self._touch(to)

    def next_wake_ms(self) -> int | None:
        """After a `pick` that gave None: the wall time at which one may give a job without any other event."""
        if len(self._flying) >= self.workers:
            return None
        timers = self._timers
        while timers and timers[0][2].wake_at_ms != timers[0][0]:
            heappop(timers)
        return timers[0][0] if timers else None

    def head_size(self, tenant: str, destination: str) -> int:
        """Jobs of a destination that wait here."""
        found = self._destinations.get((tenant, destination))
        return 0 if found is None else found.size

    def flying(self, tenant: str, destination: str) -> int:
        """Attempts of a destination in flight."""
        found = self._destinations.get((tenant, destination))
        return 0 if found is None else len(found.flying)

    @property
    def in_flight(self) -> int:
        return len(self._flying)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def known(self) -> int:
        """Destinations held in memory, idle ones included."""
        return len(self._destinations)

    # -- lines ---------------------------------------------------------------------------------------------------------
    def _first(self) -> Destination | None:
        """Whose turn it is: lowest ticket among the tenants that may go on, then among that tenant's destinations."""
        suspects_may = self._suspects_flying < self.half
        healthy = self._healthy.first()
        suspects = self._suspects.first() if suspects_may else None
        if healthy is None and suspects is None:
            return None
        if suspects is None or (healthy is not None and healthy[0] <= suspects[0]):
            assert healthy is not None
            tenant = healthy[1]
        else:
            tenant = suspects[1]
        one = tenant.healthy.first()
        other = tenant.suspects.first() if suspects_may else None
        if one is None or (other is not None and other[0] < one[0]):
            assert other is not None
            return other[1]
        return one[1]

    def _join(self, destination: Destination) -> None:
        tenant = destination.tenant
        if not tenant.healthy and not tenant.suspects:
            tenant.ticket = self._next()
        destination.ticket = self._next()
        self._enter(destination)

    def _enter(self, destination: Destination) -> None:
        """Into the lines of its class, with the tickets that it and its tenant have."""
        tenant = destination.tenant
        line, tenants = (tenant.suspects, self._suspects) if destination.suspect else (tenant.healthy, self._healthy)
        if not line:
            tenants.join(tenant, tenant.ticket)
        line.join(destination, destination.ticket)

    def _leave(self, destination: Destination) -> None:
        tenant = destination.tenant
        line, tenants = (tenant.suspects, self._suspects) if destination.suspect else (tenant.healthy, self._healthy)
        line.leave(destination)
        if not line:
            tenants.leave(tenant)

    def _suspect(self, destination: Destination, suspect: bool) -> None:
        """Changes its class; tickets stay."""
        if suspect is destination.suspect:
            return
        if destination.ticket:
            self._leave(destination)
        destination.suspect = suspect
        self._suspects_flying += len(destination.flying) if suspect else -len(destination.flying)
        if destination.ticket:
            self._enter(destination)

    def _start(self, destination: Destination, now_ms: int, mono_ms: int) -> R:
        ref: R = self._take(destination)
        del self._waiting[ref]
        self._flying[ref] = destination
        destination.flying[ref] = mono_ms
        if destination.suspect:
            self._suspects_flying += 1
        else:
            self._watch_from(destination, destination.hangs_after_ms())
        # Its turn is over: both go to the end, if they still have something to do.
        tenant = destination.tenant
        tenant.ticket = self._next()
        ready_at = self._ready_at(destination)
        line = tenant.suspects if destination.suspect else tenant.healthy
        if ready_at is not None and ready_at <= now_ms:
            destination.ticket = self._next()
            line.join(destination, destination.ticket)
        else:
            destination.ticket = 0
            line.leave(destination)
            self._rest(destination, ready_at, now_ms)
        for line, tenants in ((tenant.healthy, self._healthy), (tenant.suspects, self._suspects)):
            if line:
                tenants.join(tenant, tenant.ticket)
            else:
                tenants.leave(tenant)
        return ref

    def _take(self, destination: Destination) -> R:
        """Its next job: `_ready_at` cleared the top, and found one."""
        passing, heap = destination.passing, destination.heap
        if passing is not None and not (heap and max(heap[0][0], destination.blocked_until_ms) <= passing[0]):
            destination.passing = None
            entry = passing
        else:
            entry = heappop(heap)
        ref: R = entry[2]
        return ref

    # -- what is ready -------------------------------------------------------------------------------------------------
    def _is_waiting(self, job: tuple[int, int, Any]) -> bool:
        entry = self._waiting.get(job[2])
        return entry is not None and entry[1] == job[1]

    def _ready_at(self, destination: Destination) -> int | None:
        """When it may stand in line on the wall clock; None: not before another event."""
        heap = destination.heap
        while destination.gone and heap and not self._is_waiting(heap[0]):
            heappop(heap)
            destination.gone -= 1
        passing = destination.passing
        if not heap and passing is None:
            return None
        cap = destination.window
        if destination.at_most is not None and destination.at_most < cap:
            cap = destination.at_most
        if len(destination.flying) >= cap:
            return None
        if not heap:
            return passing[0] if passing is not None else None
        ready_at = max(heap[0][0], destination.blocked_until_ms)
        return ready_at if passing is None or passing[0] >= ready_at else passing[0]

    def _due_at(self, destination: Destination, now_ms: int) -> bool:
        """Whether due work waits, whatever holds it back."""
        heap = destination.heap
        while destination.gone and heap and not self._is_waiting(heap[0]):
            heappop(heap)
            destination.gone -= 1
        passing = destination.passing
        return (bool(heap) and heap[0][0] <= now_ms) or (passing is not None and passing[0] <= now_ms)

    def _place(self, destination: Destination, now_ms: int) -> None:
        """In line, asleep until its time, or idle: as things stand."""
        ready_at = self._ready_at(destination)
        if ready_at is not None and ready_at <= now_ms:
            self._sleep(destination, None)
            if not destination.ticket:
                self._join(destination)
            return
        if destination.ticket:
            self._leave(destination)
            destination.ticket = 0
        self._rest(destination, ready_at, now_ms)

    def _rest(self, destination: Destination, ready_at: int | None, now_ms: int) -> None:
        """Out of line: asleep until its time, or idle."""
        if ready_at is None and not destination.size and not destination.flying:
            if destination.blocked_until_ms > now_ms:
                ready_at = destination.blocked_until_ms
            else:
                self._retire(destination)
        self._sleep(destination, ready_at)

    def _settle(self, now_ms: int) -> None:
        touched = self._touched
        if touched:
            self._touched = []
            for destination in touched:
                destination.touched = False
                self._place(destination, now_ms)
        timers = self._timers
        while timers and timers[0][0] <= now_ms:
            at_ms, _, destination = heappop(timers)
            if destination.wake_at_ms == at_ms:
                self._place(destination, now_ms)

    def _touch(self, destination: Destination) -> None:
        if not destination.touched:
            destination.touched = True
            self._touched.append(destination)

    # -- time ----------------------------------------------------------------------------------------------------------
    def _sleep(self, destination: Destination, until_ms: int | None) -> None:
        was = destination.wake_at_ms
        if was == until_ms:
            return
        destination.wake_at_ms = until_ms
        self._sleeping += (until_ms is not None) - (was is not None)
        if until_ms is None:
            return
        timers = self._timers
        heappush(timers, (until_ms, destination.born, destination))
        if len(timers) > 2 * self._sleeping + SLACK:
            timers[:] = list({entry for entry in timers if entry[2].wake_at_ms == entry[0]})
            heapify(timers)

    def _watch_from(self, destination: Destination, hangs_after_ms: float) -> None:
        """One entry per destination is enough: looked at when its time comes, it is set anew if that was too early."""
        if destination.watch_at_ms is not None and destination.watch_at_ms <= hangs_after_ms:
            return
        destination.watch_at_ms = hangs_after_ms
        watches = self._watches
        heappush(watches, (hangs_after_ms, destination.born, destination))
        if len(watches) > 4 * self.workers + SLACK:
            for at_ms, _, idle in watches:
                if idle.watch_at_ms == at_ms and not idle.flying:
                    idle.watch_at_ms = None
            watches[:] = list({entry for entry in watches if entry[2].watch_at_ms == entry[0]})
            heapify(watches)

    def _watch(self, mono_ms: int) -> None:
        watches = self._watches
        while watches and watches[0][0] < mono_ms:
            at_ms, _, destination = heappop(watches)
            if destination.watch_at_ms != at_ms:
                continue
            destination.watch_at_ms = None
            if destination.flying and not destination.suspect:
                hangs_after = destination.hangs_after_ms()
                if hangs_after < mono_ms:
                    self._suspect(destination, True)
                else:
                    self._watch_from(destination, hangs_after)

    # -- memory --------------------------------------------------------------------------------------------------------
    def _next(self) -> int:
        self._numbers += 1
        return self._numbers

    def _destination(self, tenant: str, name: str) -> Destination:
        found = self._destinations.get((tenant, name))
        if found is not None:
            if found in self._idle:
                del self._idle[found]
            return found
        of = self._tenants.get(tenant)
        if of is None:
            of = self._tenants[tenant] = Tenant(tenant)
        of.known += 1
        made = self._destinations[tenant, name] = Destination(of, name, self._next(), self._window_min)
        return made

    def _retire(self, destination: Destination) -> None:
        """Idle: remembered while there is room, so that a sink that hung, or is slow by nature, stays known as such."""
        self._idle[destination] = None
        if len(self._idle) > self._remembered_max:
            oldest, _ = self._idle.popitem(last=False)
            tenant = oldest.tenant
            del self._destinations[tenant.name, oldest.name]
            tenant.known -= 1
            if not tenant.known:
                del self._tenants[tenant.name]
