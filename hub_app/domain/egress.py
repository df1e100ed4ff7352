"""Where the hub may send: rules for sink URLs, and for the addresses their names resolve to.

Source of the rules: docs/delivery.md, "Addresses".

A URL is judged when a subscription is created and verified (`check_url`), and by its resolved addresses at each
connect (`check_addresses`), which are the very addresses then connected to. Everything here is strict on purpose:
one spelling per address, nothing trimmed, nothing repaired, for what two readers read differently is how filters
are passed by.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, NamedTuple, TypeAlias

from hub_app.domain.limits import HOST_CHARS_MAX, URL_CHARS_MAX

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


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


_DEFAULT_PORTS: Final = {"https": 443, "http": 80}

# What RFC 3986 lets stand in a URL, and no more: no space, control, quote, backslash, bracket of another kind, and
# nothing outside ASCII. So no full-width digit or ideographic dot (U+3002, U+FF0E, U+FF61) gets as far as the host.
_URL_CHARS: Final = re.compile(r"[A-Za-z0-9\-._~:/?#\[\]@!$&'()*+,;=%]*")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_BAD_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_\-]{0,61}[a-z0-9_])?")
# The rule of browsers ("ends in a number"): such a host is an IPv4 address to one reader or another, however odd.
_NUMERIC_LABEL: Final = re.compile(r"(?:[0-9]+|0x[0-9a-f]*)")
_DOTTED_QUAD: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")

_PRIVATE_NAMES: Final = frozenset(
    {
        "ip6-localhost",
        "ip6-loopback",
        "metadata",
        "metadata.goog",
        "metadata.azure.com",
        "metadata.packet.net",
        "metadata.platformequinix.com",
        "metadata.tencentyun.com",
        "instance-data",
        "rancher-metadata",
    }
)
_PRIVATE_SUFFIXES: Final = ("localhost", "localdomain", "local", "internal", "cluster.local", "home.arpa")

_V4_REFUSED: Final = tuple(
    (IPv4Network(cidr), why)
    for cidr, why in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("168.63.129.16/32", "cloud metadata"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
    )
)
_V6_REFUSED: Final = tuple(
    (IPv6Network(cidr), why)
    for cidr, why in (
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("64:ff9b:1::/48", "local NAT64"),
        ("100::/64", "discard-only"),
        ("2001::/23", "protocol assignments"),
        ("2001:db8::/32", "documentation"),
        ("3fff::/20", "documentation"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("fec0::/10", "site-local"),
        ("ff00::/8", "multicast"),
    )
)
_V6_GLOBAL: Final = IPv6Network("2000::/3")

# IPv6 prefixes with an IPv4 address inside: where its 32 bits start, counted from the right, and what they must be
# turned by. Whoever routes such an address may end at the inner one, so the inner one is judged.
_V6_CARRIERS: Final = tuple(
    (IPv6Network(cidr), shift, mask, why)
    for cidr, shift, mask, why in (
        ("::/96", 0, 0, "IPv4-compatible"),
        ("::ffff:0:0/96", 0, 0, "IPv4-mapped"),
        ("::ffff:0:0:0/96", 0, 0, "IPv4-translated"),
        ("64:ff9b::/96", 0, 0, "NAT64"),
        ("2002::/16", 80, 0, "6to4"),
        ("2001::/32", 64, 0, "Teredo server"),
        ("2001::/32", 0, 0xFFFFFFFF, "Teredo client"),
    )
)
_ISATAP: Final = frozenset({0x00005EFE, 0x02005EFE})


def parse_cidrs(texts: Iterable[str]) -> tuple[Network, ...]:
    """Networks of an allow list; one address is a network of one. Raises ValueError, naming the entry, for anything
    else, host bits included (10.1.2.3/8 is more likely a slip than a wish)."""
    return tuple(ip_network(text) for text in texts)


def check_url(text: str, *, allow_private: bool = False, allow_cidrs: tuple[Network, ...] = ()) -> SinkUrl | UrlProblem:
    """Judge a sink URL as written; no lookup is made. A host that is a literal address is judged as an address too."""
    policy = EgressPolicy(allow_private=allow_private, allow_cidrs=allow_cidrs)
    if len(text) > URL_CHARS_MAX:
        return UrlProblem("url", f"longer than {URL_CHARS_MAX} characters")
    if _URL_CHARS.fullmatch(text) is None:
        return UrlProblem(
            "url", "holds a character no URL may hold: percent-encode it, and write an international name as xn--…"
        )
    match = _SCHEME.match(text)
    if match is None:
        return UrlProblem("scheme", "must start with https://")
    scheme = match[1].lower()
    if scheme not in (("https", "http") if allow_private else ("https",)):
        return UrlProblem("scheme", "must be https" + (" or http" if allow_private else ""))
    rest = text[match.end() :].split("#", 1)[0]
    end = next((i for i, c in enumerate(rest) if c in "/?"), len(rest))
    authority, path = rest[:end], rest[end:]
    if "@" in authority:
        return UrlProblem("userinfo", "a user name or password in the URL is refused")
    split = _split_port(authority, _DEFAULT_PORTS[scheme])
    if isinstance(split, UrlProblem):
        return split
    host = _check_host(split[0], policy)
    if isinstance(host, UrlProblem):
        return host
    if _BAD_PERCENT.search(path) or "[" in path or "]" in path:
        return UrlProblem("path", "holds a % without two hexadecimal digits, or a bracket: percent-encode it")
    return SinkUrl(scheme, host, split[1], path if path.startswith("/") else "/" + path)


def normalise_url(url: SinkUrl) -> str:
    """The destination text of a sink: two subscriptions share a destination iff these are equal. Scheme and host lower
    case, default port dropped, path and query kept as written, no fragment."""
    host = f"[{url.host}]" if ":" in url.host else url.host
    port = "" if url.port == _DEFAULT_PORTS[url.scheme] else f":{url.port}"
    return f"{url.scheme}://{host}{port}{url.path}"


def address_problem(ip_text: str, policy: EgressPolicy) -> str | None:
    """Why this literal address may not be connected to (for people), or None."""
    try:
        address = ip_address(ip_text)
    except ValueError:
        return "not an address"
    return None if _is_allowed(address, policy) else _refused_as(address)


def check_addresses(addresses: Iterable[str], policy: EgressPolicy) -> str | None:
    """Why this answer of a resolver may not be used, or None. One bad address refuses all: a name that points both
    inside and outside is no honest sink, and which one would be connected to is luck. No address is a problem too."""
    seen = False
    for ip_text in addresses:
        seen = True
        problem = address_problem(ip_text, policy)
        if problem is not None:
            return f"{ip_text}: {problem}"
    return None if seen else "no address"


def _split_port(authority: str, default: int) -> tuple[str, int] | UrlProblem:
    """Host (brackets kept) and port of an authority without userinfo."""
    if authority.startswith("["):
        host, bracket, tail = authority.partition("]")
        host += bracket
    else:
        host, colon, port = authority.partition(":")
        tail = colon + port
    if not tail:
        return host, default
    if not tail.startswith(":") or _PORT.fullmatch(tail, 1) is None or int(tail[1:]) > 65535:
        return UrlProblem("port", "must be a number from 1 to 65535")
    return host, int(tail[1:])


def _check_host(host: str, policy: EgressPolicy) -> str | UrlProblem:
    """The host in its one form, or why not."""
    if not host:
        return UrlProblem("host", "is missing")
    if host.startswith("["):
        return _check_ipv6(host, policy)
    name = host.lower().removesuffix(".")
    labels = name.split(".")
    if _NUMERIC_LABEL.fullmatch(labels[-1]):
        if _DOTTED_QUAD.fullmatch(host) is None:
            return UrlProblem("host", "an IPv4 address must be written as four decimal numbers")
        problem = address_problem(host, policy)
        return UrlProblem("host", f"refused address: {problem}") if problem else host
    if len(name) > HOST_CHARS_MAX or not all(_LABEL.fullmatch(label) for label in labels):
        return UrlProblem("host", "is not a host name")
    if not policy.allow_private and _is_private_name(name):
        return UrlProblem("host", "refused name: it stands for an address inside")
    return name


def _check_ipv6(host: str, policy: EgressPolicy) -> str | UrlProblem:
    try:
        # A zone ("%eth0") would pass the parser: it names an interface of this machine.
        address = IPv6Address(host[1:-1] if host.endswith("]") and "%" not in host else "")
    except ValueError:
        return UrlProblem("host", "is not an IPv6 address in brackets")
    problem = address_problem(str(address), policy)
    return UrlProblem("host", f"refused address: {problem}") if problem else str(address)


def _is_private_name(name: str) -> bool:
    return name in _PRIVATE_NAMES or any(name == end or name.endswith("." + end) for end in _PRIVATE_SUFFIXES)


def _is_allowed(address: Address, policy: EgressPolicy) -> bool:
    # `in` is False, not an error, across the two versions. A mapped address counts as the IPv4 address it is, which
    # is where the kernel sends it.
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return policy.allow_private or any((mapped or address) in network for network in policy.allow_cidrs)


def _refused_as(address: Address) -> str | None:
    if isinstance(address, IPv4Address):
        return next((why for network, why in _V4_REFUSED if address in network), None)
    value = int(address)
    carried = False
    for network, shift, mask, kind in _V6_CARRIERS:
        if address in network:
            inner = IPv4Address((value >> shift & 0xFFFFFFFF) ^ mask)
            problem = _refused_as(inner)
            if problem is not None and value > 1:
                return f"{kind} form of {inner}, {problem}"
            carried = value > 1
    if carried:
        return None
    if value >> 32 & 0xFFFFFFFF in _ISATAP:
        problem = _refused_as(IPv4Address(value & 0xFFFFFFFF))
        if problem is not None:
            return f"ISATAP form of an address, {problem}"
    for refused, why in _V6_REFUSED:
        if address in refused:
            return why
    return None if address in _V6_GLOBAL else "not a global address"
