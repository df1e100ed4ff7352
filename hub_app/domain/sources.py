"""Names of producers' topics: `lerian.streaming.<source>` (docs/wire.md, "Topics").

No trimming, no lower-casing, no mapping: a name is a source or it is not.
"""

from __future__ import annotations

import re
from functools import lru_cache

from hub_app.domain.limits import SOURCE_BYTES_MAX, TEXTS_MAX, TOPIC_NAME_BYTES_MAX

FACTS_PREFIX = "lerian.streaming."
DEAD_LETTERS_SUFFIX = ".dlq"

_SOURCE = re.compile(r"[a-z0-9][a-z0-9_-]*", re.ASCII)


def is_source(text: str) -> bool:
    """Whole-string match and at most 223 bytes; the form allows ASCII only, so characters are bytes."""
    return len(text) <= SOURCE_BYTES_MAX and _SOURCE.fullmatch(text) is not None


def source_of(topic: str) -> str | None:
    """The source whose facts `topic` carries, or None: commands, dead letters and other topics are not ingested."""
    return _source_of(topic) if len(topic) <= TOPIC_NAME_BYTES_MAX else None


def observed_source_of(topic: str) -> str | None:
    """The source whose dead letters `topic` carries, or None."""
    return source_of(topic.removesuffix(DEAD_LETTERS_SUFFIX)) if topic.endswith(DEAD_LETTERS_SUFFIX) else None


@lru_cache(maxsize=TEXTS_MAX)
def _source_of(topic: str) -> str | None:
    source = topic.removeprefix(FACTS_PREFIX)
    return source if source != topic and is_source(source) else None
