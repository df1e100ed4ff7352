"""The unexpected, as one tree. What is expected (a refused record, a failed attempt, a lost lease) is a value instead.

Each class says whose fault it is, and when it strikes: before the call had any effect, during it (part of it may have
happened: repeat with the same ids), or after (it happened, and only the answer is missing).

    HubError
    +-- Refused              operator  before   the deployment cannot work so: say why in one line, exit
    |   +-- SettingsRefused                     78  a setting is wrong or contradicts another
    |   +-- TopicsRefused                       78  the broker's topics are not the ones this deployment needs
    |   +-- FolderInUse                         75  another worker holds the data folder, or the port
    +-- StoreUnfit           hub       before   the folder of a shard does not belong or is damaged: set aside, rebuild
    +-- StoreFailed          hub       during   a shard's store refused a read or write; damaged: set aside, rebuild
    |   +-- StoreFull        operator  during   no room on the disk: nothing was written, nothing is committed past it
    +-- ShardStopped         operator  during   the shard cannot go on without a person (disk full, log cut): readiness
    +-- BrokerTrouble        kafka     during   no acknowledgement: nothing was committed, the batch comes again
    |   +-- OutcomeUnknown             after    a send was abandoned: it may be written all the same
    +-- Fenced               nobody    before   another worker owns this now: drop the work, it has it too
    +-- RecordTooLarge       hub       before   a record was built that no topic takes: a bound is wrong
"""

from __future__ import annotations

from typing import ClassVar


class HubError(Exception):
    """Root of what the hub raises on purpose. `fault`: operator, kafka, hub, nobody; `phase`: before, during, after."""

    fault: ClassVar[str] = "hub"
    phase: ClassVar[str] = "during"


class Refused(HubError):
    """The process must not start. The text is one clear line for the operator; `exit_status` is sysexits'."""

    fault, phase = "operator", "before"
    exit_status: ClassVar[int] = 78  # EX_CONFIG


class SettingsRefused(Refused):
    """A setting is missing, malformed, or contradicts another."""


class TopicsRefused(Refused):
    """Topics exist with another partition count, cannot be made, or keep records for less than a job can live."""


class FolderInUse(Refused):
    """Another process holds what this one needs alone."""

    exit_status = 75  # EX_TEMPFAIL


class StoreUnfit(HubError):
    """A shard's folder is foreign, too new, behind its log, or damaged. It is set aside and the shard is rebuilt."""

    phase = "before"


class StoreFailed(HubError):
    """The store of `shard` (`inbox/3`) refused a read or write. `damaged`: its files are bad, so that setting it aside
    and rebuilding helps."""

    def __init__(self, shard: str, detail: str, *, damaged: bool = False) -> None:
        super().__init__(f"store {shard}: {detail}")
        self.shard, self.detail, self.damaged = shard, detail, damaged


class StoreFull(StoreFailed):
    """No room left on the disk, or under its quota. The batch was not written, so nothing may be committed past it."""

    fault = "operator"


class ShardStopped(HubError):
    """The shard stands still until a person acts; the text says what to do, and readiness shows it."""

    fault = "operator"


class BrokerTrouble(HubError):
    """Kafka did not acknowledge in time. Nothing was committed, so the same work comes again with the same ids."""

    fault = "kafka"


class OutcomeUnknown(BrokerTrouble):
    """A send was abandoned at its deadline. It may be written: treat it as both."""

    phase = "after"


class Fenced(HubError):
    """Another worker owns the shard or the producer's id now. The work is dropped here; the owner has it too."""

    fault, phase = "nobody", "before"


class RecordTooLarge(HubError):
    """A record above `limits.RECORD_BYTES_MAX` was about to be sent; sending it would poison the producer."""

    phase = "before"
