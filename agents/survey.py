"""What a dispatch shard's table holds when it is opened: where there are rows, and which records they stand for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from agents.dispatch_shard import DispatchShard, Place
from hub_app.domain.delivery import version
from tables.jobs import Source


async def survey(shard: DispatchShard, committed: Mapping[str, int]) -> tuple[Iterable[Place], list[Source]]:
    """Where the table holds rows and which records they stand for; in slices, so that other shards go on. Rows that
    ended in other hands, or unnoticed, are dropped: by an outcome, or because their records are committed."""
    places: dict[Place, None] = {}
    sources: list[Source] = []
    count = 0
    for rows in shard.table.slices():
        batch = shard.table.store.batch()
        for row, done in zip(rows, shard.table.finished([row.job.delivery_id for row in rows]), strict=True):
            if version(row.job) <= done or all(offset < committed.get(topic, 0) for topic, offset in row.sources):
                shard.table.drop(batch, row)
                continue
            count += 1
            places[row.job.tenant, row.job.destination] = None
            sources.extend(row.sources)
        if len(batch):
            shard.table.store.write(batch)
        await asyncio.sleep(0)
    shard.table.count = count
    return places, sources
