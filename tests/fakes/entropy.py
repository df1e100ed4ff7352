"""Dice with a seed, or with the numbers written on them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable


class FakeEntropy:
    """`hub_app.ports.Entropy`, the same for the same seed; `draws` come first, one by one."""

    def __init__(self, seed: int = 0, draws: Iterable[float] = ()) -> None:
        self._random = random.Random(seed)
        self._draws = deque(draws)

    def draw(self) -> float:
        return self._draws.popleft() if self._draws else self._random.random()

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)
