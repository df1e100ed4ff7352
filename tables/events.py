"""The head of an inbox row: broker time, and a word that holds the length of the tenant and, in its two highest bits,
what is known of the payload: looked at once, when it is admitted, so that no reader has to parse it again."""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from functools import lru_cache
from struct import Struct
from typing import Final

import orjson

from hub_app.domain.fact import Fact, JsonFact, OpaqueFact
from hub_app.domain.limits import TENANT_BYTES_MAX
from hub_app.domain.publishing import is_json_type

EVENT: Final = Struct(">QH")
TENANT_BITS: Final = 0x3FFF
JSON: Final = 0x8000
OPAQUE: Final = 0x4000
KINDS: Final[Mapping[int, type[Fact]]] = {0: Fact, JSON: JsonFact, OPAQUE: OpaqueFact}
"""0: nobody has looked (rows of earlier versions)."""
assert TENANT_BYTES_MAX <= TENANT_BITS


def look(fact: Fact) -> int:
    """JSON or OPAQUE: is the payload JSON by its content type and by its bytes?"""
    content_type = next((value for name, value in fact.headers if name == "ce-datacontenttype"), None)
    if content_type is not None and not _is_json_type(content_type):
        return OPAQUE
    try:
        orjson.loads(fact.value)
    except orjson.JSONDecodeError:
        return OPAQUE
    return JSON


@lru_cache(maxsize=256)
def _is_json_type(content_type: bytes) -> bool:
    return is_json_type(content_type.decode("utf-8", "replace"))


def read_fact(seq: int, value: bytes) -> Fact:
    """The fact of a row."""
    _, word = EVENT.unpack_from(value)
    start = EVENT.size + (word & TENANT_BITS)
    kind = KINDS[word & ~TENANT_BITS]
    return kind(seq, value[EVENT.size : start].decode(), *marshal.loads(memoryview(value)[start:]))
