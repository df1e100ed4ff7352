"""What the scheduler keeps (fairness.py): lines of members with tickets, tenants, destinations."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Final, Generic, TypeVar

M = TypeVar("M")

HANG_MS_MIN: Final = 250
HANG_FACTOR: Final = 4
USUAL_WEIGHT: Final = 0.125
SLACK: Final = 64
"""Stale heap entries beyond half are swept out once there are so many more."""


class Line(Generic[M]):
    """Members by ticket, lowest first. Leaving is lazy: an entry counts while its ticket is the member's."""

    __slots__ = ("_heap", "_tickets")

    def __init__(self) -> None:
        self._heap: list[tuple[int, M]] = []
        self._tickets: dict[M, int] = {}

    def __len__(self) -> int:
        return len(self._tickets)

    def __contains__(self, member: M) -> bool:
        return member in self._tickets

    def join(self, member: M, ticket: int) -> None:
        """Also gives a member that stands here another ticket."""
        tickets, heap = self._tickets, self._heap
        tickets[member] = ticket
        if heap and heap[0][1] is member:
            heapreplace(heap, (ticket, member))
            return
        heappush(heap, (ticket, member))
        if len(heap) > 2 * len(tickets) + SLACK:
            heap[:] = [(ticket, member) for member, ticket in tickets.items()]
            heapify(heap)

    def leave(self, member: M) -> None:
        self._tickets.pop(member, None)

    def first(self) -> tuple[int, M] | None:
        heap, tickets = self._heap, self._tickets
        while heap:
            entry = heap[0]
            if tickets.get(entry[1]) == entry[0]:
                return entry
            heappop(heap)
        return None


class Tenant:
    __slots__ = ("healthy", "known", "name", "suspects", "ticket")

    def __init__(self, name: str) -> None:
        self.name = name
        self.known = 0  # destinations that refer to it
        self.ticket = 0
        self.healthy: Line[Destination] = Line()
        self.suspects: Line[Destination] = Line()


class Destination:
    __slots__ = (
        "at_most",
        "blocked_until_ms",
        "born",
        "failed",
        "flying",
        "gone",
        "heap",
        "name",
        "passing",
        "suspect",
        "tenant",
        "ticket",
        "touched",
        "usual_ms",
        "wake_at_ms",
        "watch_at_ms",
        "window",
    )

    def __init__(self, tenant: Tenant, name: str, born: int, window: int) -> None:
        self.tenant, self.name, self.born = tenant, name, born
        self.heap: list[tuple[int, int, Any]] = []  # (due_ms, number of the offer, ref)
        self.gone = 0  # entries of the heap that were removed
        self.passing: tuple[int, int, Any] | None = None  # as an entry of the heap: a job that no block holds
        self.flying: dict[Any, int] = {}  # ref -> start on the monotonic clock, oldest first
        self.window = window
        self.failed = False
        self.usual_ms: float | None = None
        self.blocked_until_ms = 0
        self.at_most: int | None = None
        self.suspect = False
        self.ticket = 0  # 0: stands in no line
        self.touched = False
        self.wake_at_ms: int | None = None
        self.watch_at_ms: float | None = None

    @property
    def size(self) -> int:
        return len(self.heap) - self.gone + (self.passing is not None)

    def hangs_after_ms(self) -> float:
        """The time on the monotonic clock after which its oldest attempt makes it suspect."""
        usual = self.usual_ms
        patience = HANG_MS_MIN if usual is None else max(HANG_MS_MIN, HANG_FACTOR * usual)
        return next(iter(self.flying.values())) + patience

    def learn(self, took_ms: int) -> None:
        """The usual time is a moving average of successes. A sample counts up to the present patience only: one
        answer just before the deadline must not hide the next hangs."""
        usual = self.usual_ms
        if usual is None:
            self.usual_ms = float(took_ms)
        else:
            sample = min(took_ms, max(HANG_MS_MIN, HANG_FACTOR * usual))
            self.usual_ms = usual + USUAL_WEIGHT * (sample - usual)
