"""What a route takes and gives, beside its handler: the part of the routes' table that `web.openapi` writes down.

Schemas are named here and made in `web.schemas`, mostly from the shapes and bounds that validate."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from hub_app.web.shapes import Shape

_NO_ANSWERS: Final[Mapping[int, str | None]] = MappingProxyType({})


class Query(NamedTuple):
    """A parameter of the query. `repeated`: may be given several times, any of them will do."""

    name: str
    shape: Shape
    meaning: str
    repeated: bool = False


class Doc(NamedTuple):
    """`answers`: what a success gives, by status: the schema's name, None for no body. `body`: the schema of the
    request's. `refuses`: statuses of its own, beside those that follow from the rest (`web.openapi`)."""

    answers: Mapping[int, str | None] = _NO_ANSWERS
    body: str | None = None
    body_needed: bool = True
    query: tuple[Query, ...] = ()
    refuses: tuple[int, ...] = ()
    idempotent: bool = False
    if_match: bool = False
