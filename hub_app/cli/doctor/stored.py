"""What the stored subscriptions stand on: keys that open their secrets, sinks that can be reached."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import aclosing
from time import monotonic
from typing import Final, NamedTuple

from agents.sealing import sealed_texts
from hub_app.adapters.entropy import SystemEntropy
from hub_app.adapters.fast_connection import Connection
from hub_app.adapters.fast_pool import ConnectionPool
from hub_app.adapters.keyring import EnvelopeKeyring, fingerprint
from hub_app.adapters.sender_common import SenderLimits, client_tls
from hub_app.cli.doctor.finding import Finding, broken, some
from hub_app.derived import egress_policy
from hub_app.domain.egress import UrlProblem, check_url
from hub_app.domain.subscription import Subscription, WebhookSink
from hub_app.kafka.looks import LookReader
from hub_app.ports import Failure, Resolver, SecretUnavailable, Target
from hub_app.settings import Settings
from tables.subscriptions import SubscriptionsTable

SINKS_MAX: Final = 500
AT_ONCE: Final = 16
KEYS, SINKS = "key for secrets", "reachable sinks"


async def read_subscriptions(reader: LookReader, topic: str, partitions: int) -> list[Subscription]:
    """All that are stored, as of now. Raises BrokerTrouble."""
    shards = list(range(partitions))
    table = SubscriptionsTable(topic)
    ends = await reader.end_offsets(topic, shards, isolation_level="read_committed")
    for shard in shards:
        reading = reader.read_range(topic, shard, 0, ends[shard], isolation_level="read_committed")
        async with aclosing(reading) as batches:
            async for records in batches:
                for record in records:
                    table.apply(shard, record.offset, record.key, record.value, record.headers)
    return [one for tenant in table.tenants() for one in table.of_tenant(tenant)]


# -- keys --------------------------------------------------------------------------------------------------------------
def examine_keys(settings: Settings, subscriptions: Sequence[Subscription] | None) -> list[Finding]:
    """Opens every stored secret. `subscriptions` None: they cannot be read now."""
    if not settings.keks:
        missing = broken(KEYS, "none is named", "set STREAMING_HUB_KEK_REF (docs/settings.md, Keys)")
        return [missing] if not subscriptions else [missing, *_unopened(settings, subscriptions)]
    named = f"{len(settings.keks)} named, the first in {settings.keks[0].name}"
    if subscriptions is None:
        return [Finding(KEYS, True, f"{named}; the stored secrets cannot be read now")]
    unopened = _unopened(settings, subscriptions)
    if unopened:
        return unopened
    older = _older(settings, subscriptions)
    return [Finding(KEYS, True, f"{named}; it opens the secrets of {len(subscriptions)} subscriptions{older}")]


def _unopened(settings: Settings, subscriptions: Sequence[Subscription]) -> list[Finding]:
    keyring, closed = EnvelopeKeyring(settings.keks, SystemEntropy()), defaultdict[str, list[str]](list)
    for one in subscriptions:
        for sealed, context in sealed_texts(one):
            try:
                keyring.open(sealed, context=context)
            except SecretUnavailable as error:
                closed[str(error)].append(one.id)
    repair = "name that key in STREAMING_HUB_KEK_REF again, after the newest; or rotate these subscriptions' secrets"
    return [broken(KEYS, f"{why}: {some(sorted(set(ids)))}", repair) for why, ids in closed.items()]


def _older(settings: Settings, subscriptions: Sequence[Subscription]) -> str:
    """Keys beside the first that something is still sealed under."""
    by_print = {fingerprint(kek.key): kek.name for kek in settings.keks}
    first = fingerprint(settings.keks[0].key)
    used = Counter(sealed.split(".")[1] for one in subscriptions for sealed, _ in sealed_texts(one))
    rest = [f"{count} under {by_print[name]}" for name, count in sorted(used.items()) if name != first]
    return f", {', '.join(rest)}: keep naming it until they have been rotated" if rest else ""


# -- sinks -------------------------------------------------------------------------------------------------------------
class Place(NamedTuple):
    """Where deliveries go: without path, query and credentials, which are the tenant's own."""

    target: Target
    shown: str


async def examine_sinks(
    settings: Settings, subscriptions: Sequence[Subscription], resolver: Resolver, *, cafile: str | None = None
) -> list[Finding]:
    """Name, address rule, TCP and TLS of every webhook that receives, as a delivery goes about it; sends nothing."""
    policy, refused, ids = egress_policy(settings), list[Finding](), defaultdict[Place, list[str]](list)
    for one in subscriptions:
        if not isinstance(one.sink, WebhookSink) or not one.receives:
            continue
        url = check_url(one.sink.url, allow_private=policy.allow_private, allow_cidrs=policy.allow_cidrs)
        if isinstance(url, UrlProblem):
            refused.append(broken(f"sink of {one.id}", f"{url.field}: {url.detail}", "change the subscription's URL"))
            continue
        host = f"[{url.host}]" if ":" in url.host else url.host
        ids[Place(Target(url.scheme, url.host, url.port), f"{url.scheme}://{host}:{url.port}")].append(one.id)
    places = sorted(ids)[:SINKS_MAX]
    pool = ConnectionPool(resolver=resolver, policy=policy, tls=client_tls(cafile), limits=SenderLimits())
    turns = asyncio.Semaphore(AT_ONCE)

    async def reach(place: Place) -> Failure | None:
        async with turns:
            deadline = monotonic() + settings.dispatch_timeout_ms / 1000
            opened = await pool.open(place.target, settings.dispatch_connect_timeout_ms, deadline)
            return None if isinstance(opened, Connection) else opened

    try:
        failures = dict(zip(places, await asyncio.gather(*map(reach, places)), strict=True))
    finally:
        await pool.close()
    bad = [_unreached(place, ids[place], failure) for place, failure in failures.items() if failure is not None]
    left = f"; {len(ids) - len(places)} more were not tried" if len(ids) > len(places) else ""
    reached = len(places) - len(bad)
    summary = f"{reached} of {len(places)} reached{left}" if ids else "none is wanted yet"
    if bad or refused:
        return [broken(SINKS, summary, "those that follow"), *bad, *refused]
    return [Finding(SINKS, True, summary)]


REPAIRS: Final = {
    "dns": "look at the name, and at this machine's name server",
    "blocked_address": "the sink needs a public address; or allow its network by STREAMING_HUB_SINK_ALLOW_CIDRS",
    "connect": "is it running, and does a firewall let this machine through?",
    "tls": "its certificate must be valid for the name and signed by a known authority",
    "timeout": "is it running, and does a firewall let this machine through?",
}


def _unreached(place: Place, ids: list[str], failure: Failure) -> Finding:
    detail = f"{failure.kind}: {failure.detail} ({some(sorted(ids))})"
    return broken(f"sink {place.shown}", detail, REPAIRS.get(failure.kind, "look at the sink's own log"))
