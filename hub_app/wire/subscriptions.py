"""`hub.subscriptions`: one record per subscription (`wire.owned`). Secrets are sealed."""

from __future__ import annotations

from hub_app.domain.subscription import Subscription
from hub_app.domain.subscription_json import from_record, to_record
from hub_app.wire import owned

Stored = owned.Stored[Subscription]
"""`row` is None when the subscription was deleted."""

_CODEC: owned.Codec[Subscription] = owned.Codec("subscription", to_record, from_record)
write, read = _CODEC.write, _CODEC.read
