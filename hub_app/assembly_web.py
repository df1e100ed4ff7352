"""The API's part of the assembly: who is asked for what, and the routes on Faust's web server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.inbox import Inbox
from agents.operations import Operations
from agents.owners import InboxOwners, KeysTail
from agents.registrations import KeyStore, OperationStore, SubscriptionStore
from hub_app import __version__
from hub_app.kafka.assignor import OwnerReader
from hub_app.kafka.client import make_admin
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
    hub.operations = Operations(
        outbox=parts.producer.outbox,
        names=parts.names,
        shards=settings.shards,
        here=owners,
        table=parts.operations,
        store=operation_store,
        subscriptions=parts.subscriptions,
        clock=clock,
    )
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
        operation_begun=hub.operations.wake,
        owners=owners,
        peers=peers,
        readiness=parts.standing.reasons,
        stopping=lambda: hub.stopping,
        metrics=parts.metrics,
        log=Log("http"),
        arrivals=parts.arrivals,
    )
    parts.app.web.web_app.add_routes(build_web(deps))


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
