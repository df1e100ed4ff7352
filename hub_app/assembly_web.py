"""The API's part of the assembly: who is asked for what, and the routes on Faust's web server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agents.archive import Archive
from agents.dead_letters import DeadLetters
from agents.disabling import Disabler
from agents.history import Histories
from agents.inbox import Inbox
from agents.observer import readmit
from agents.operations import Operations
from agents.operator_log import OperatorEvents
from agents.owners import DispatchOwners, InboxOwners, KeysTail
from agents.publishing import Publisher
from agents.registrations import KeyStore, OperationStore, SubscriptionStore
from agents.views import Views
from hub_app import __version__
from hub_app.derived import disable_policy
from hub_app.domain.operation import OperationKind
from hub_app.kafka.assignor import OwnerReader
from hub_app.kafka.client import make_admin
from hub_app.kafka.follower import Follower
from hub_app.kafka.looks import LookReader
from hub_app.lifecycle import Hub
from hub_app.settings import Settings
from hub_app.telemetry.events import Event
from hub_app.telemetry.log import Log
from hub_app.web.deps import WebDeps
from hub_app.web.peers import AiohttpPeers
from hub_app.web.routes import build_web

if TYPE_CHECKING:
    from hub_app.assembly import Assembly


def serve_web(parts: Assembly, hub: Hub, inbox: Inbox) -> None:
    """Makes what the API needs, and adds its routes."""
    parts.app.web.web_app.add_routes(build_web(_deps(parts, hub, inbox)))


def _deps(parts: Assembly, hub: Hub, inbox: Inbox) -> WebDeps:
    settings, clock = parts.settings, parts.ports.clock
    peers, admin, looks = AiohttpPeers(), make_admin(parts.config), LookReader(parts.config)
    owners = _owners(parts, hub, inbox, admin)

    async def close() -> None:
        await peers.close()
        await admin.close()
        await looks.on_stop()

    hub.close_web = close
    changes: dict[str, Any] = {
        "shards": settings.shards,
        "clock": clock,
        "idempotency_ttl_ms": settings.idempotency_ttl_ms,
    }
    keys_tail = parts.tails[parts.names.keys]
    operation_store = OperationStore(hub.owner, parts.operations, **changes)
    operations, dead_letters = _background(parts, hub, inbox, owners, operation_store)
    subscription_store = SubscriptionStore(hub.owner, parts.subscriptions, **changes)
    hub.background["disabling"] = _disabler(parts, inbox, subscription_store).step
    return WebDeps(
        **_shared(parts, hub),
        settings=settings,
        version=__version__,
        admin_key=_admin_key(parts, settings),
        clock=clock,
        keys_tail=KeysTail(read_to_end=keys_tail.all_read_to_end, started=hub.started.is_set),
        key_store=KeyStore(hub.owner, parts.keys, **changes),
        subscription_store=subscription_store,
        operation_store=operation_store,
        operation_begun=operations.wake,
        dead_letters=dead_letters,
        publisher=Publisher(
            producer=parts.producer,
            names=parts.names,
            shards=settings.shards,
            clock=clock,
            metrics=parts.metrics,
        ),
        archive=Archive(looks, settings.shards),
        operator_events=OperatorEvents(looks, parts.names.operator, settings.shards),
        readmit=partial(readmit, parts.producer.outbox, parts.names, settings.shards, clock),
        owners=owners,
        sinks=_sink_owners(parts, hub, admin),
        held_against=hub.dispatcher.health.sink,
        disabling=disable_policy(settings),
        peers=peers,
    )


def _shared(parts: Assembly, hub: Hub) -> dict[str, Any]:
    """What the API has in common with the rest of the worker."""
    return {
        "entropy": parts.ports.entropy,
        "keyring": parts.ports.keyring,
        "sender": parts.ports.sender,
        "keys": parts.keys,
        "subscriptions": parts.subscriptions,
        "operations": parts.operations,
        "queues": parts.queues,
        "readiness": parts.standing.reasons,
        "stopping": lambda: hub.stopping,
        "metrics": parts.metrics,
        "log": Log("http"),
        "arrivals": parts.arrivals,
    }


def _background(
    parts: Assembly, hub: Hub, inbox: Inbox, owners: InboxOwners, store: OperationStore
) -> tuple[Operations, DeadLetters]:
    """What goes on behind the API, for the inbox shards that are here."""
    shared: dict[str, Any] = {
        "outbox": parts.producer.outbox,
        "names": parts.names,
        "shards": parts.settings.shards,
        "subscriptions": parts.subscriptions,
        "clock": parts.ports.clock,
        "give_again": parts.queues.give_again,
    }
    dead_letters = DeadLetters(
        **shared,
        inbox=owners.inbox,
        retention_ms=parts.settings.dead_letter_retention_ms,
        failed=lambda shard, error: parts.failures["inbox"](shard, error),  # noqa: PLW0108  filled later
    )
    operations = Operations(**shared, here=owners, table=parts.operations, store=store)
    operations.steps[OperationKind.REDRIVE] = dead_letters.step
    views = Views(
        dead_letters, here=lambda: [n for n in list(inbox.shards) if owners.is_here(n)], clock=parts.ports.clock
    )
    follower = Follower(parts.config, wanted=views.wanted, deliver=views.deliver, recreated=views.recreated)
    hub.background |= {"operations": operations.step, "follower": follower.step}
    return operations, dead_letters


def _disabler(parts: Assembly, inbox: Inbox, store: SubscriptionStore) -> Disabler:
    """Changes subscriptions as the API does, through the same store."""
    made = Disabler(
        health=parts.health,
        subscriptions=parts.subscriptions,
        replace=store.replace,
        owned=lambda shard: shard in inbox.shards and parts.inbox_lease(),
        shards=parts.settings.shards,
        producer=parts.producer,
        topic=parts.names.operator,
        clock=parts.ports.clock,
        metrics=parts.metrics,
    )
    parts.subscriptions.watchers += (made.subscription_changed,)
    return made


def _owners(parts: Assembly, hub: Hub, inbox: Inbox, admin: Any) -> InboxOwners:
    """Who serves which inbox shard."""
    clock, plane = parts.ports.clock, hub.inbox_plane
    reader = OwnerReader(admin, f"streaming-hub-inbox.{parts.settings.env}", now_ms=clock.monotonic_ms)
    return InboxOwners(
        shards=inbox.shards,
        lease_valid=lambda now_ms: plane is not None and plane.lease.valid(now_ms),
        known=lambda: plane.owners if plane is not None else {},
        read=reader.owners,
        clock=clock,
    )


def _sink_owners(parts: Assembly, hub: Hub, admin: Any) -> DispatchOwners:
    """Who serves which dispatch shard."""
    clock, plane = parts.ports.clock, hub.dispatch_plane
    reader = OwnerReader(admin, f"streaming-hub-dispatch.{parts.settings.env}", now_ms=clock.monotonic_ms)
    histories = Histories(shards=hub.dispatch_shards.shards, reader=parts.reader, topic=parts.names.attempts)
    hub.background["histories"] = histories.step
    return DispatchOwners(
        shards=hub.dispatch_shards.shards,
        lease_valid=lambda now_ms: plane is not None and plane.lease.valid(now_ms),
        known=lambda: plane.owners if plane is not None else {},
        read=reader.owners,
        clock=clock,
    )


def _admin_key(parts: Assembly, settings: Settings) -> str:
    """The bootstrap key; in `local` one is made and shown when none is given."""
    if settings.admin_key or not settings.is_local:
        return settings.admin_key
    made = f"shk_admin_{parts.ports.entropy.token(24).hex()}"
    Log("worker").warning(Event.ADMIN_KEY_MADE, admin_key=made, detail="set STREAMING_HUB_ADMIN_KEY to choose it")
    return made
