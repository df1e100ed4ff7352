"""`hub.subscriptions`: one record per subscription. Key: tenant and id; partitioned by tenant. Value: JSON.

A null value deletes.
"""

from __future__ import annotations

from hub_app.wire import keyed
from hub_app.wire.record import Unreadable


def join_key(tenant: str, id: str) -> bytes:
    """The message key; its partition is that of `ids.tenant_key(tenant)`."""
    return keyed.join(tenant, id)


def split_key(key: bytes | None) -> tuple[str, str] | Unreadable:
    """(tenant, id) of a message key. Total."""
    parts = keyed.split(key, 2)
    return parts if isinstance(parts, Unreadable) else (parts[0], parts[1])
