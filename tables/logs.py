"""Which logs a shard's folder has read: the ids of their topics, beside its offsets.

An offset means nothing in another log. One that ends below it shows; one that was made anew and has grown past it does
not, but for the id of its topic (docs/protocol.md, "Offsets that do not fit").
"""

from __future__ import annotations

from collections.abc import Mapping

from tables.batch import OFFSETS
from tables.shard import ShardStore

_LOG = b"\0log\x1f"  # no topic name starts with NUL


def made_anew(store: ShardStore, ids: Mapping[str, bytes]) -> list[str]:
    """Topics that have another id than the one this folder read. What was never noted, or is unknown, is not told."""
    keys = {topic: _LOG + topic.encode() for topic in ids}
    known = zip(ids, store.multi_get(OFFSETS, list(keys.values())), strict=True)
    return [topic for topic, id in known if id not in (None, ids[topic])]


def note_logs(store: ShardStore, ids: Mapping[str, bytes]) -> None:
    """Remembers the ids; call it before anything of those topics is read."""
    batch = store.batch()
    batch.put_many(OFFSETS, [(_LOG + topic.encode(), id) for topic, id in ids.items()])
    if len(batch):
        store.write(batch)
