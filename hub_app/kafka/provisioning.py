"""Topics as they must be: created when missing, checked when present."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from hub_app.kafka.client import KafkaConfig


class TopicSpec(Protocol):
    """What `hub_app.topics` describes."""

    @property
    def name(self) -> str: ...
    @property
    def partitions(self) -> int: ...
    @property
    def replication(self) -> int: ...
    @property
    def config(self) -> Mapping[str, str]: ...


class Problem(NamedTuple):
    """One line for people. `fatal`: the worker must not start; else a warning."""

    fatal: bool
    subject: str
    text: str


class Provisioned(NamedTuple):
    """`cluster_id` of the broker, names created now, configs altered (`topic.key`), problems found."""

    cluster_id: str
    created: Sequence[str]
    altered: Sequence[str]
    problems: Sequence[Problem]


async def provision(config: KafkaConfig, specs: Sequence[TopicSpec], *, local: bool) -> Provisioned:
    """Idempotent, safe to run by several workers at once. Raises only when the broker cannot be reached."""
    raise NotImplementedError
