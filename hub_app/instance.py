"""INSTANCE_ID: the stable name of a worker, which only one process may have at a time (docs/operations.md).

Kafka lets the later process take the name over, and a restart must be able to: so the earlier one is asked whether it
still lives, by the URL that it told its group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp
from aiokafka.errors import KafkaError

from hub_app.kafka.assignor import Member, read_members
from hub_app.kafka.client import KafkaConfig, make_admin

ANSWER_S = 2.0
MEMBERS_S = 10.0


async def taken_by(config: KafkaConfig, group: str, *, instance_id: str, own_url: str) -> str | None:
    """The URL of a living worker of this name in `group`, or None. What Kafka does not tell in time is no reason not to
    start: the member that is displaced closes its shards by itself."""
    for member in await _members(config, group):
        # The same URL is this process's own: its port is ours, so whoever had it is gone.
        if member.instance == instance_id and member.url != own_url and await _lives(member.url):
            return member.url
    return None


async def _members(config: KafkaConfig, group: str) -> Sequence[Member]:
    """None known where Kafka cannot tell: one that has just been made has no coordinator yet."""
    admin = make_admin(config)
    try:
        async with asyncio.timeout(MEMBERS_S):
            await admin.start()
            return await read_members(admin, group) or ()
    except (KafkaError, OSError):  # TimeoutError is one
        return ()
    finally:
        await admin.close()


async def _lives(url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{url}/healthz") as answer:
            return answer.status == 200
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
