"""Names to addresses, through the system's resolver."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic
from typing import Any

from hub_app.domain.limits import LOOKUPS_MAX, NAMES_RESOLVED_MAX


class SystemResolver:
    """`hub_app.ports.Resolver` over getaddrinfo: a small bounded cache of good answers, one lookup per name at a time,
    a bounded number of lookups at once. Failures are never cached.

    Lookups run on threads of their own: the loop's are few (uvloop's are four), and a name server that swallows
    questions would hold them all. A caller that gives up does not stop its lookup, whose answer others may want.
    """

    def __init__(
        self,
        *,
        ttl_ms: int = 5_000,
        names_max: int = NAMES_RESOLVED_MAX,
        lookups_max: int = LOOKUPS_MAX,
        getaddrinfo: Callable[..., list[Any]] = socket.getaddrinfo,
    ) -> None:
        self._ttl_s = ttl_ms / 1000
        self._names_max = names_max
        self._getaddrinfo = getaddrinfo
        self._known: OrderedDict[str, tuple[float, tuple[str, ...]]] = OrderedDict()
        self._asked: dict[str, asyncio.Task[tuple[str, ...]]] = {}
        self._closed = False
        self._threads = ThreadPoolExecutor(lookups_max, thread_name_prefix="resolver")

    async def resolve(self, host: str) -> tuple[str, ...]:
        """Addresses in the system's order, each once; a literal address is its own answer."""
        literal = _literal(host)
        if literal is not None:
            return (literal,)
        known = self._known.get(host)
        if known is not None and monotonic() < known[0]:
            return known[1]
        if self._closed:
            raise OSError("this resolver is closed")
        lookup = self._asked.get(host)
        if lookup is None:
            lookup = self._asked[host] = asyncio.get_running_loop().create_task(self._look_up(host))
            lookup.add_done_callback(_mark_seen)
        return await asyncio.shield(lookup)

    async def close(self) -> None:
        """Lookups in hand are left to end by themselves; those not yet begun are dropped."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        lookups = tuple(self._asked.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)

    async def _look_up(self, host: str) -> tuple[str, ...]:
        try:
            found = await asyncio.get_running_loop().run_in_executor(
                self._threads, lambda: self._getaddrinfo(host, None, type=socket.SOCK_STREAM)
            )
        except UnicodeError as exc:  # A label longer than IDNA allows; not an OSError, though it means the same.
            raise OSError(f"not a host name: {exc}") from exc
        finally:
            del self._asked[host]
        addresses = tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
        self._known[host] = (monotonic() + self._ttl_s, addresses)
        self._known.move_to_end(host)
        if len(self._known) > self._names_max:
            self._known.popitem(last=False)
        return addresses


def _literal(host: str) -> str | None:
    # Names end in a letter or hold no colon; this keeps the parser, which raises, off the common path.
    if not (host[-1:].isdigit() or ":" in host):
        return None
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return None


def _mark_seen(lookup: asyncio.Task[tuple[str, ...]]) -> None:
    # Everyone who asked may have given up; a failure that nobody hears is not worth a line in the log.
    if not lookup.cancelled():
        lookup.exception()
