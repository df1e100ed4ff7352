"""A fact: one event, admitted by the hub."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """A record of the facts topic. A NamedTuple because one is made for every record read.

    `topic` is the source's name for facts from Kafka, else the topic published to; `type` is the full `ce-type`;
    `event_type` is `<resource>.<event>` (the whole `type` where a published event has no resource type).
    `headers` are canonical: each `ce-*` once and in hyphen spelling, unknown ones as they came, none of the hub's own.
    `value` is the payload, byte for byte.
    """

    seq: int
    tenant: str
    topic: str
    source: str
    id: str
    type: str
    event_type: str
    headers: tuple[tuple[str, bytes], ...]
    value: bytes
    received_at_ms: int


class JsonFact(Fact):
    """One whose payload was found to be JSON, by its content type and by its bytes, when it was admitted."""


class OpaqueFact(Fact):
    """One whose payload was found not to be JSON, by either, when it was admitted."""
