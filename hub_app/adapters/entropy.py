"""Dice: a fast generator for jitter, the system's for secrets."""

from __future__ import annotations

import os
import random


class SystemEntropy:
    """`hub_app.ports.Entropy`. `draw` is seeded from the system once and need not be unpredictable; `token` must be."""

    __slots__ = ("_random",)

    def __init__(self) -> None:
        self._random = random.Random()

    def draw(self) -> float:
        return self._random.random()

    def token(self, size: int) -> bytes:
        return os.urandom(size)
