"""Identities: all are hashes or positions, so that doing the same thing again makes the same id.

Parts are joined by U+001F, which no tenant, topic, source or destination may hold (where a part may hold anything, it
stands last), so different parts never make the same text.
"""

from __future__ import annotations

from base64 import b32encode
from hashlib import blake2b

from hub_app.domain.limits import OFFSET_BITS

SEP = "\x1f"

_OFFSET_MASK = (1 << OFFSET_BITS) - 1
DELIVERY_ID_BYTES = 16


def seq_of(epoch: int, offset: int) -> int:
    """Arrival sequence of a fact in its shard: rises strictly, also when the topic is made anew (the epoch rises)."""
    return (epoch << OFFSET_BITS) | offset


def split_seq(seq: int) -> tuple[int, int]:
    """(epoch, offset) of a sequence number."""
    return seq >> OFFSET_BITS, seq & _OFFSET_MASK


def delivery_id(tenant: str, seq: int, subscription: str, series: str = "") -> bytes:
    """16 raw bytes. `series` is empty for the ordinary delivery, else the operation's id (redrive, replay)."""
    text = f"{tenant}\x1f{seq}\x1f{subscription}\x1f{series}"
    return blake2b(text.encode(), digest_size=DELIVERY_ID_BYTES).digest()


def event_id(tenant: str, topic: str, source: str, id: str) -> str:
    """The `webhook-id`: the same for every retry, redrive and subscription of one event."""
    text = f"{tenant}\x1f{topic}\x1f{source}\x1f{id}"
    return "evt_" + blake2b(text.encode(), digest_size=16).hexdigest()


def subscription_id(tenant: str, *parts: str) -> str:
    """`sub_` and 26 letters or digits; `parts` is what makes the creation unique (an idempotency key, or entropy)."""
    text = SEP.join((tenant, *parts))
    return "sub_" + b32encode(blake2b(text.encode(), digest_size=16).digest()).decode().rstrip("=").lower()


def identity_key(tenant: str, topic: str, source: str, id: str) -> bytes:
    """What makes two records one event: tenant, topic, source and id. `id` may hold anything, so it stands last."""
    return f"{tenant}\x1f{topic}\x1f{source}\x1f{id}".encode()


def tenant_key(tenant: str) -> bytes:
    """Message key of everything that lives with the tenant: facts, queues, dead letters."""
    return tenant.encode()


def destination_key(tenant: str, destination: str) -> bytes:
    """Message key of everything that lives with a destination: deliveries, retries, attempts, health."""
    return f"{tenant}\x1f{destination}".encode()
