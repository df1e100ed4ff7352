"""Lock tokens: opaque texts of 36 characters, each for one delivery of one event out of one queue.

    version (1 byte), seq (8), delivery (2), MAC (16), in base64url

The MAC is over tenant, topic, subscription, seq, delivery and series, with a secret of the subscription: so a token
says nothing about another queue, and none can be made up. It is no credential: whoever uses it has shown a key before.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from struct import Struct
from typing import Final, NamedTuple

from hub_app.domain.ids import SEP
from hub_app.domain.queue import Row

MAC_BYTES: Final = 16
_VERSION: Final = 1
_HEAD: Final = Struct(">BQH")
_FORM: Final = re.compile(r"[A-Za-z0-9_-]{36}", re.ASCII)
assert (_HEAD.size + MAC_BYTES) * 4 == 36 * 3


class Token(NamedTuple):
    """A text that has the form of a token. Whether it is one, `Tokens.made` says."""

    seq: int
    delivery: int
    mac: bytes


def read(text: object) -> Token | None:
    """None for what cannot be a token. Total."""
    if not isinstance(text, str) or not _FORM.fullmatch(text):
        return None
    raw = urlsafe_b64decode(text)
    version, seq, delivery = _HEAD.unpack_from(raw)
    return Token(seq, delivery, raw[_HEAD.size :]) if version == _VERSION and delivery else None


class Tokens:
    """Those of one queue. `key` is its secret."""

    __slots__ = ("_mac",)

    def __init__(self, key: bytes, *, tenant: str, topic: str, subscription: str) -> None:
        self._mac = hmac.new(key, SEP.join(("queue-token", tenant, topic, subscription, "")).encode(), sha256)

    def make(self, row: Row) -> str:
        """The token of the row's latest delivery."""
        head = _HEAD.pack(_VERSION, row.seq, row.deliveries)
        return urlsafe_b64encode(head + self._sum(head, row.series)).decode()

    def made(self, token: Token, series: str) -> bool:
        """Whether it was made here, for an event of this series."""
        head = _HEAD.pack(_VERSION, token.seq, token.delivery)
        return hmac.compare_digest(self._sum(head, series), token.mac)

    def _sum(self, head: bytes, series: str) -> bytes:
        mac = self._mac.copy()
        mac.update(head + series.encode())
        return mac.digest()[:MAC_BYTES]
