"""Texts into values. Every reader takes the text of one variable and gives its value, or `Refused` with the accepted
form. Texts are taken as they are, never trimmed: a stray blank is a mistake to be shown, not to be guessed at."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
KEY_BYTES: Final = 32
NAME_OF_VARIABLE: Final = re.compile(r"[A-Z_][A-Z0-9_]{0,127}", re.ASCII)  # upper case, so that a key is never a name
_DURATION: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)", re.ASCII)
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]", re.ASCII)


class Refused(NamedTuple):
    """The text is not a value. `accepted` says, after "expected", what would be."""

    accepted: str


Reader = Callable[[str], object]


def duration_ms(text: str) -> int | None:
    match = _DURATION.fullmatch(text)
    return int(match[1]) * UNIT_MS[match[2]] if match else None


def duration(low: str, high: str) -> Reader:
    low_ms, high_ms = duration_ms(low), duration_ms(high)
    assert low_ms is not None and high_ms is not None
    accepted = f"a duration from {low} to {high}, such as 250ms, 10s, 5m, 2h or 7d"

    def read(text: str) -> object:
        value = duration_ms(text)
        return value if value is not None and low_ms <= value <= high_ms else Refused(accepted)

    return read


def durations(low: str, high: str, entries_max: int) -> Reader:
    one = duration(low, high)
    accepted = (
        f"1 to {entries_max} durations from {low} to {high}, separated by commas, none shorter than the one before"
    )

    def read(text: str) -> object:
        values = [one(part) for part in text.split(",")]
        numbers = tuple(value for value in values if isinstance(value, int))
        if len(numbers) != len(values) or len(values) > entries_max or list(numbers) != sorted(numbers):
            return Refused(accepted)
        return numbers

    return read


def whole(low: int, high: int) -> Reader:
    def read(text: str) -> object:
        fits = text.isascii() and text.isdigit() and len(text) <= 12 and low <= int(text) <= high
        return int(text) if fits else Refused(f"a whole number from {low} to {high}")

    return read


def boolean(text: str) -> object:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower(), Refused("true or false"))


def choice(*values: str) -> Reader:
    def read(text: str) -> object:
        return text if text in values else Refused(" or ".join(value for value in values if value))

    return read


def matching(pattern: str, accepted: str, *, empty: bool = False) -> Reader:
    compiled = re.compile(pattern, re.ASCII)

    def read(text: str) -> object:
        return text if (empty and not text) or compiled.fullmatch(text) else Refused(accepted)

    return read


def tenant(text: str) -> object:
    plain = all(ord(c) >= 0x20 and ord(c) != 0x7F for c in text)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        size = 0
    return text if plain and 1 <= size <= 256 else Refused("1 to 256 bytes of UTF-8 without control characters")


def folder(text: str) -> object:
    return Path(text) if "\0" not in text else Refused("a path")


def host_port(text: str) -> tuple[str, int] | None:
    host, colon, port = text.rpartition(":")
    good_port = port.isascii() and port.isdigit() and len(port) <= 5 and 1 <= int(port) <= 65_535
    if not colon or not good_port or not (host == "" or _HOST.fullmatch(host)):
        return None
    return host.strip("[]"), int(port)


def listen_address(text: str) -> object:
    """`host:port`; an empty host means every address of the machine."""
    pair = host_port(text)
    return Refused("host:port, such as 127.0.0.1:8080 or :8080") if pair is None else (pair[0] or "0.0.0.0", pair[1])


def brokers(text: str) -> object:
    parts = text.split(",")
    good = all((pair := host_port(part)) is not None and pair[0] for part in parts)
    return (
        tuple(parts) if good else Refused("host:port, several separated by commas, such as kafka-1:9092,kafka-2:9092")
    )


def web_url(*, path: bool) -> Reader:
    """An http(s) URL without userinfo, query or fragment; empty is allowed and stays empty."""
    accepted = "http://host:port or https://host:port" + ("" if path else ", without a path")

    def read(text: str) -> object:
        if not text:
            return ""
        try:
            parts = urlsplit(text)
            good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            return Refused(accepted)
        if not good or not text.isascii() or not text.isprintable() or " " in text:
            return Refused(accepted)
        bare = parts.username is None and parts.password is None and "?" not in text and "#" not in text
        return text.rstrip("/") if bare and (path or parts.path in ("", "/")) else Refused(accepted)

    return read


def networks(text: str) -> object:
    if not text:
        return ()
    try:
        return tuple(str(ipaddress.ip_network(part)) for part in text.split(","))
    except ValueError:
        return Refused("networks such as 10.1.0.0/16 or fd00::/8, separated by commas, without host bits")


def key_bytes(text: str) -> bytes | None:
    """32 bytes in base64, standard or URL alphabet, with or without padding; blanks around it are cut."""
    text = text.strip()
    try:
        raw = base64.b64decode(text.translate({45: "+", 95: "/"}) + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return raw if len(raw) == KEY_BYTES else None


def dev_kek(text: str) -> object:
    key = key_bytes(text) if text else b""
    return Refused(f"{KEY_BYTES} bytes in base64") if key is None else key


def variable_names(text: str) -> object:
    """Names of variables, not the keys themselves."""
    names = tuple(text.split(",")) if text else ()
    good = all(NAME_OF_VARIABLE.fullmatch(name) for name in names) and len(names) <= 8 and len(set(names)) == len(names)
    return (
        names
        if good
        else Refused("the upper-case name of the variable that holds the key, several separated by commas")
    )


def certificates(text: str) -> object:
    """Base64 of PEM certificates; gives the PEM text."""
    if not text:
        return ""
    refused = Refused("the base64 of one or more certificates in PEM form")
    try:
        pem = base64.b64decode("".join(text.split()), validate=True).decode("ascii")
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=pem)
    except (binascii.Error, ValueError, ssl.SSLError):
        return refused
    return pem
