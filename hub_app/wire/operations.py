"""`hub.operations`: one record per bulk operation (`wire.owned`)."""

from __future__ import annotations

from hub_app.domain.operation import Operation, from_record, to_record
from hub_app.wire import owned

Stored = owned.Stored[Operation]
"""`row` is None when the operation was deleted."""

_CODEC: owned.Codec[Operation] = owned.Codec("operation", to_record, from_record)
write, read = _CODEC.write, _CODEC.read
