"""The API's part of the assembly: who is asked for what, and the routes on Faust's web server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.dead_letters import DeadLetters
from agents.inbox import Inbox
from agents.operations import Operations
from agents.owners import InboxOwners, KeysTail
from agents.publishing import Publisher
from agents.registrations import KeyStore, OperationStore, SubscriptionStore
from agents.views import Views
from hub_app import __version__
from hub_app.domain.operation import OperationKind
from hub_app.kafka.assignor import OwnerReader
from hub_app.kafka.client import make_admin
from hub_app.kafka.follower import Follower
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
    settings, clock = parts.settings, parts.ports.clock
    peers = AiohttpPeers()
    owners = _owners(parts, hub, inbox, peers)
    changes: dict[str, Any] = {
        "shards": settings.shards,
        "clock": clock,
        "idempotency_ttl_ms": settings.idempotency_ttl_ms,
    }
    keys_tail = parts.tails[parts.names.keys]
    operation_store = OperationStore(hub.owner, parts.operations, **changes)
    operations, dead_letters = _background(parts, hub, inbox, owners, operation_store)
    deps = WebDeps(
        settings=settings,
        version=__version__,
        admin_key=_admin_key(parts, settings),
        clock=clock,
        entropy=parts.ports.entropy,
        keyring=parts.ports.keyring,
        sender=parts.ports.sender,
        keys=parts.keys,
        keys_tail=KeysTail(read_to_end=keys_tail.all_read_to_end, started=hub.started.is_set),
        key_store=KeyStore(hub.owner, parts.keys, **changes),
        subscriptions=parts.subscriptions,
        subscription_store=SubscriptionStore(hub.owner, parts.subscriptions, **changes),
        operations=parts.operations,
        operation_store=operation_store,
        operation_begun=operations.wake,
        dead_letters=dead_letters,
        queues=parts.queues,
        publisher=Publisher(
            producer=parts.producer,
            names=parts.names,
            shards=settings.shards,
            clock=clock,
            metrics=parts.metrics,
        ),
        owners=owners,
        peers=peers,
        readiness=parts.standing.reasons,
        stopping=lambda: hub.stopping,
        metrics=parts.metrics,
        log=Log("http"),
        arrivals=parts.arrivals,
    )
    parts.app.web.web_app.add_routes(build_web(deps))


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


def _owners(parts: Assembly, hub: Hub, inbox: Inbox, peers: AiohttpPeers) -> InboxOwners:
    """Who serves which shard; what that needs is closed with the API."""
    clock, inbox_plane = parts.ports.clock, hub.inbox_plane
    admin = make_admin(parts.config)
    reader = OwnerReader(admin, f"streaming-hub-inbox.{parts.settings.env}", now_ms=clock.monotonic_ms)

    async def close() -> None:
        await peers.close()
        await admin.close()

    hub.close_web = close
    return InboxOwners(
        shards=inbox.shards,
        lease_valid=lambda now_ms: inbox_plane is not None and inbox_plane.lease.valid(now_ms),
        known=lambda: inbox_plane.owners if inbox_plane is not None else {},
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
