"""What the failure of a store says: its files are bad (set aside and rebuilt, it is well again), there is no room, or
neither. rocksdict passes on nothing but RocksDB's words, so these are what tells."""

from __future__ import annotations

from collections.abc import Callable
from struct import error as StructError
from types import TracebackType

from hub_app.domain.errors import StoreFailed, StoreFull

_DAMAGE_WORDS = (
    *("Corruption", "checksum", "No such file or directory", "Is a directory", "Not a directory"),
    *("Invalid argument", "not a valid"),
)
_OUR_OWN = "Invalid column family"  # a batch made before its family was emptied: no fault of the files
_FULL_WORDS = ("No space left", "File too large", "quota")

UNDECODABLE = (ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError, StructError)
"""What decoding a row raises that does not hold what was written there. To be caught around decoding alone."""


def failure(shard: str, error: Exception) -> StoreFailed:
    """What the store of `shard` (`inbox/3`) raised, as the hub's own. An OSError is of the folders around it."""
    text = str(error)
    if any(word in text for word in _FULL_WORDS):
        return StoreFull(shard, text)
    return StoreFailed(shard, text, damaged=not isinstance(error, OSError) and is_damage(error))


def is_damage(error: Exception) -> bool:
    """Whether the files are bad."""
    text = str(error)
    return _OUR_OWN not in text and any(word in text for word in _DAMAGE_WORDS)


def unreadable(shard: str, family: str, error: Exception) -> StoreFailed:
    """A row of `family` does not hold what was written there."""
    return StoreFailed(shard, f"a row of {family} cannot be read: {error!r}"[:500], damaged=True)


class Decoding:
    """`with` this around decoding rows of `family`, and nothing else: what it raises says that the store is damaged."""

    __slots__ = ("_family", "_unreadable")

    def __init__(self, unreadable: Callable[[str, Exception], StoreFailed], family: str) -> None:
        self._unreadable, self._family = unreadable, family

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, UNDECODABLE):
            raise self._unreadable(self._family, error) from error
