"""The global table of the deployment itself: layout version and the epochs of logs."""

from __future__ import annotations

from hub_app.wire import meta as wire
from hub_app.wire.record import Unreadable
from tables.globals import GlobalTable, HeadersGiven


class MetaTable(GlobalTable[wire.Schema | wire.Epoch]):
    def __init__(self, topic: str) -> None:
        super().__init__(topic)
        self._epochs: dict[tuple[str, int], int] = {}
        self.schema: int | None = None
        """Layout version of the hub's topics; None before it was ever written."""

    def epoch(self, topic: str, partition: int) -> int:
        """How often that log was found re-created or cut below a stored position."""
        return self._epochs.get((topic, partition), 0)

    # -- records -------------------------------------------------------------------------------------------------
    def _read(
        self, key: bytes, value: bytes | None, headers: HeadersGiven
    ) -> wire.Schema | wire.Epoch | None | Unreadable:
        return wire.read(key, value)

    def _put(self, key: bytes, row: wire.Schema | wire.Epoch) -> None:
        if isinstance(row, wire.Schema):
            self.schema = row.version
        else:
            self._epochs[row.topic, row.partition] = row.epoch

    def _drop(self, key: bytes) -> None:
        row = wire.read(key, None)
        if isinstance(row, wire.Schema):
            self.schema = None
        elif isinstance(row, wire.Epoch):
            self._epochs.pop((row.topic, row.partition), None)
