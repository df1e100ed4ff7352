"""The dispatch plane's part of the assembly: from the scheduler to what looks after waiting jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agents.attempt import Attempter
from agents.dispatch import Dispatcher
from agents.dispatch_opening import DispatchShards
from agents.dispatch_shard import DispatchShard
from agents.heads import Heads
from agents.health import SinkHealth
from agents.health_log import HealthLog
from agents.lasts import LastAttempts
from agents.notices import Notices
from agents.parking import Parking
from agents.settle import Settler
from agents.shelf import ShelfKeeper
from agents.unattempted import Unattempted
from agents.upkeep import Upkeep
from hub_app import __version__
from hub_app.derived import breaker_policy, disable_policy, egress_policy
from hub_app.domain.errors import StoreFailed
from hub_app.domain.fairness import Scheduler
from hub_app.domain.ids import tenant_key
from hub_app.lifecycle import refuse_to_start
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.topics import partition_for
from tables.claims import ClaimFile
from tables.jobs import LastRule

if TYPE_CHECKING:
    from hub_app.assembly import Assembly


class DispatchParts(NamedTuple):
    """What of the dispatch plane is started, stopped or asked by others."""

    settler: Settler
    dispatcher: Dispatcher
    shards: DispatchShards
    upkeep: Upkeep
    shelf: ShelfKeeper


class _Made:
    """The parts, as they are made: some refer to others that are made later."""

    def __init__(self, parts: Assembly) -> None:
        self._parts = parts
        settings, ports = parts.settings, parts.ports
        self.settler = Settler(
            producer=parts.producer,
            names=parts.names,
            shards=settings.shards,
            clock=ports.clock,
            curve=parts.curve,
            metrics=parts.metrics,
            store_failed=self._failed,
        )
        self.health = self._health()
        self.heads = Heads(Scheduler(settings.dispatch_workers), store_failed=self._failed)
        self.unattempted = Unattempted(
            heads=self.heads, settler=self.settler, clock=ports.clock, store_failed=self._failed
        )
        self.attempter = self._attempter()
        self.claims = self._claims()
        self.dispatcher = Dispatcher(
            heads=self.heads,
            health=self.health,
            unattempted=self.unattempted,
            claims=self.claims,
            claim_batch=settings.dispatch_claim_batch,
            idle_interval_ms=settings.dispatch_idle_interval_ms,
            attempter=self.attempter,
            settler=self.settler,
            clock=ports.clock,
            lease_valid=parts.dispatch_lease,
            metrics=parts.metrics,
        )
        self.settler.on_settled = self.dispatcher.settled
        self.shards = self._shards()
        self.shelf = self._shelf()
        parts.subscriptions.watchers += (self.health.subscription_changed, self.shelf.subscription_changed)

    def _claims(self) -> ClaimFile:
        path = self._parts.data.path / "claims"
        try:
            made = ClaimFile(path, self._parts.settings.dispatch_workers)
        except OSError as error:
            refuse_to_start([f"{path} cannot be written: {error.strerror or error}"], 75)
        if made.damaged:
            Log("dispatch").warning(Event.CLAIMS_SET_ASIDE, detail=made.damaged)
        return made

    def _failed(self, shard: DispatchShard, error: StoreFailed) -> None:
        self.shards.store_failed(shard.number, error)

    def _health(self) -> SinkHealth:
        parts, settings, clock = self._parts, self._parts.settings, self._parts.ports.clock
        note = self.settler.note
        notices = Notices(topic=parts.names.operator, shards=settings.shards, clock=clock, note=note)
        self.settler.on_death = notices.died
        return SinkHealth(
            table=parts.health,
            subscriptions=parts.subscriptions,
            shards=settings.shards,
            clock=clock,
            breakers=breaker_policy(settings),
            disabling=disable_policy(settings),
            log=HealthLog(parts.names.health, clock, note),
            notices=notices,
        )

    def _attempter(self) -> Attempter:
        parts, settings, ports = self._parts, self._parts.settings, self._parts.ports
        return Attempter(
            subscriptions=parts.subscriptions,
            read_to=self._read_to,
            unwanted=self.health.wanted,
            sender=ports.sender,
            keyring=ports.keyring,
            clock=ports.clock,
            entropy=ports.entropy,
            curve=parts.curve,
            policy=egress_policy(settings),
            timeout_ms=settings.dispatch_timeout_ms,
            connect_timeout_ms=settings.dispatch_connect_timeout_ms,
            max_age_ms=settings.max_age_ms,
            poisoned_from=settings.poison_threshold,
            user_agent=f"streaming-hub/{__version__}",
        )

    def _read_to(self, tenant: str) -> int:
        return self._parts.subscriptions.offset(partition_for(tenant_key(tenant), self._parts.settings.shards))

    def _shards(self) -> DispatchShards:
        parts = self._parts
        return DispatchShards(
            dispatcher=self.dispatcher,
            settler=self.settler,
            reader=parts.reader,
            names=parts.names,
            data=parts.data,
            left=self.claims.left,
            memory=parts.memory,
            clock=parts.ports.clock,
            metrics=parts.metrics,
            cluster_id=parts.cluster_id,
            reopen=lambda shard, reason: parts.plane("dispatch_plane").reopen(shard, reason),
            commit=lambda offsets: parts.plane("dispatch_plane").commit(offsets),
            lasts=LastRule(parts.curve.attempts_max, parts.settings.max_age_ms),
            read_health=parts.tails[parts.names.health].read_to_end,
            on_opened=self._opened,
        )

    def _opened(self, shard: DispatchShard) -> None:
        self.shelf.opened(shard)

    def _shelf(self) -> ShelfKeeper:
        return ShelfKeeper(
            shards=self.shards.shards,
            count=self._parts.settings.shards,
            subscriptions=self._parts.subscriptions,
            read_to=self._read_to,
            heads=self.heads,
            unattempted=self.unattempted,
            wake=self.dispatcher.wake,
            store_failed=self._failed,
        )

    def upkeep(self) -> Upkeep:
        lasts = LastAttempts(
            dispatcher=self.dispatcher,
            attempter=self.attempter,
            unattempted=self.unattempted,
            clock=self._parts.ports.clock,
            max_age_ms=self._parts.settings.max_age_ms,
            store_failed=self._failed,
        )
        parking = Parking(
            shards=self.shards.shards,
            unattempted=self.unattempted,
            parked_topic=self._parts.names.parked,
            store_failed=self._failed,
        )
        return Upkeep(self.health, lasts, parking)


def dispatch_parts(parts: Assembly) -> DispatchParts:
    """Makes the dispatch plane's parts and ties them together."""
    made = _Made(parts)
    parts.metrics.breakers_open.only().watch(made.health.not_closed)
    return DispatchParts(made.settler, made.dispatcher, made.shards, made.upkeep(), made.shelf)
