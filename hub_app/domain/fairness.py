"""Who is next: tenants in turn, their destinations in turn, inside a destination by due time; no destination holds more
than its window, and those that hang hold together at most half of the workers. In memory, pure, exact."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

R = TypeVar("R", bound=Hashable)


class Scheduler(Generic[R]):
    """`now_ms` is the wall clock (due times are wall time; it may step), `mono_ms` a clock that only grows (how long an
    attempt has been in flight). A destination is (tenant, destination); a `ref` stands for one job and is unique among
    those waiting or in flight."""

    def __init__(self, workers: int, *, remembered_max: int = 10_000) -> None:
        """`remembered_max`: idle destinations whose window, usual time and last result are kept."""
        raise NotImplementedError

    def offer(self, tenant: str, destination: str, due_ms: int, ref: R) -> None:
        """A job joins the head of its destination. ValueError if `ref` is already waiting or in flight."""
        raise NotImplementedError

    def pick(self, now_ms: int, mono_ms: int) -> R | None:
        """The job to attempt now, or None: nothing is due, or everything due is held back, or all workers are busy."""
        raise NotImplementedError

    def finished(self, ref: R, *, ok: bool | None, now_ms: int, mono_ms: int) -> None:
        """The attempt of `ref` ended. None: not charged, it says nothing about the sink. Refill the destination's head
        before this call: the window grows only if more due work waits. KeyError if `ref` is not in flight."""
        raise NotImplementedError

    def remove(self, ref: R) -> bool:
        """Takes a waiting job out; False if it is not waiting (unknown, or in flight)."""
        raise NotImplementedError

    def set_blocked(self, tenant: str, destination: str, until_ms: int | None, *, at_most: int | None = None) -> None:
        """The place of the circuit breaker: no attempt before `until_ms` (None: no block), and at most `at_most` in
        flight afterwards (None: as usual)."""
        raise NotImplementedError

    def next_wake_ms(self) -> int | None:
        """After a `pick` that gave None: the wall time at which one may give a job without any other event."""
        raise NotImplementedError

    def head_size(self, tenant: str, destination: str) -> int:
        """Jobs of a destination that wait here."""
        raise NotImplementedError

    @property
    def in_flight(self) -> int:
        raise NotImplementedError

    @property
    def waiting(self) -> int:
        raise NotImplementedError
