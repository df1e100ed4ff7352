"""Which topics a member reads: fixed ones, and those that exist and are accepted."""

from __future__ import annotations

from collections.abc import Callable, Collection

MISSED_LOOKS_MAX = 3


class TopicWatch:
    """Remembers what was seen. New topics count at once; one that was seen and is missing counts until it has been
    missing three looks in a row, because a broker that is starting lists less than there is. Pure."""

    def __init__(self, fixed: Collection[str], accepts: Callable[[str], bool] | None) -> None:
        self._fixed = frozenset(fixed)
        self._accepts = accepts
        self._missed: dict[str, int] = {}
        self.topics: frozenset[str] = self._fixed

    @property
    def looks(self) -> bool:
        """Whether there is anything to look for."""
        return self._accepts is not None

    def add(self, topics: Collection[str]) -> bool:
        """Makes these fixed; True when that changes `topics`."""
        self._fixed |= frozenset(topics)
        return self._update(self._fixed | self.topics)

    def saw(self, existing: Collection[str]) -> bool:
        """One look at every existing topic; True when `topics` changed."""
        if self._accepts is None:
            return False
        seen = {t for t in existing if self._accepts(t)}
        for topic in self.topics - self._fixed:
            self._missed[topic] = 0 if topic in seen else self._missed.get(topic, 0) + 1
        gone = {t for t, missed in self._missed.items() if missed >= MISSED_LOOKS_MAX}
        for topic in gone:
            del self._missed[topic]
        return self._update((self.topics | self._fixed | seen) - (gone - self._fixed))

    def _update(self, topics: frozenset[str] | set[str]) -> bool:
        changed = topics != self.topics
        self.topics = frozenset(topics)
        return changed
