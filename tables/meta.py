"""The global table of the deployment itself: layout version and the epochs of logs."""

from __future__ import annotations

from hub_app.wire import meta as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven


class MetaTable(GlobalTable[wire.Schema | wire.Epoch]):
    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._epochs: dict[int, wire.Epoch] = {}
        self.schema: int | None = None
        """Layout version of the hub's topics; None before it was ever written."""

    def epoch(self, shard: int) -> int:
        """How often the shard's facts were found re-created or cut below a stored position."""
        return self._epochs[shard].epoch if shard in self._epochs else 0

    # -- records -------------------------------------------------------------------------------------------------
    def _read(
        self, key: bytes, value: bytes | None, headers: HeadersGiven
    ) -> wire.Schema | wire.Epoch | Unreadable | None:
        return wire.read(key, value)

    def _put(self, key: bytes, row: wire.Schema | wire.Epoch) -> None:
        if isinstance(row, wire.Schema):
            self.schema = row.version
        else:
            self._epochs[row.shard] = row

    def _drop(self, key: bytes) -> None:
        """Only a log made anew gets here: nothing of `hub.meta` is deleted."""
        if key == b"schema":
            self.schema = None
        else:
            self._epochs = {shard: row for shard, row in self._epochs.items() if wire.write(row).key != key}
