"""Where the hub may send: rules for sink URLs, and for the addresses their names resolve to (delivery.md, Addresses).

A URL is judged when a subscription is created and verified (`check_url`), and by its resolved addresses at each
connect (`check_addresses`), which are the very addresses then connected to. Everything here is strict on purpose:
one spelling per address, nothing trimmed, nothing repaired, for what two readers read differently is how filters
are passed by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network
from typing import Final, NamedTuple, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

URL_CHARS_MAX: Final = 2048
HOST_CHARS_MAX: Final = 253
LABEL_CHARS_MAX: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """What is lifted. `allow_private` lifts https-only, the address rule and the rule on names that stand for private
    addresses; `allow_cidrs` lifts the address rule for the addresses inside it, and nothing else. Neither lifts the
    rules on spelling, userinfo and ports."""

    allow_private: bool = False
    allow_cidrs: tuple[Network, ...] = ()


class SinkUrl(NamedTuple):
    """A URL that passed. `scheme` and `host` are lower case (IPv6 without brackets, no trailing dot), `port` is
    explicit, `path` starts with "/" and holds the query; the fragment is gone."""

    scheme: str
    host: str
    port: int
    path: str


class UrlProblem(NamedTuple):
    """Why a URL is refused. `field` is the part at fault: url, scheme, userinfo, host, port or path."""

    field: str
    detail: str


def parse_cidrs(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of an allow list. Raises ValueError, naming the entry, for anything but `address/prefix` with no host
    bits set (10.1.2.3/8 is more likely a slip than a wish)."""
    raise NotImplementedError


def check_url(text: str, *, allow_private: bool = False, allow_cidrs: tuple[Network, ...] = ()) -> SinkUrl | UrlProblem:
    """Judge a sink URL as written; no lookup is made. A host that is a literal address is judged as an address too."""
    raise NotImplementedError


def normalise_url(url: SinkUrl) -> str:
    """The destination text of a sink: two subscriptions share a destination iff these are equal. Scheme and host lower
    case, default port dropped, path and query kept as written, no fragment."""
    raise NotImplementedError


def address_problem(ip_text: str, policy: EgressPolicy) -> str | None:
    """Why this literal address may not be connected to (for people), or None."""
    raise NotImplementedError


def check_addresses(addresses: Iterable[str], policy: EgressPolicy) -> str | None:
    """Why this answer of a resolver may not be used, or None. One bad address refuses all: a name that points both
    inside and outside is no honest sink, and which one would be connected to is luck. No address is a problem too."""
    raise NotImplementedError
