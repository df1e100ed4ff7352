"""INSTANCE_ID: the stable name of a worker, which only one process may have at a time (docs/operations.md).

Kafka lets the later process take the name over, and a restart must be able to: so the earlier one is asked whether it
still lives, by the URL that it told its group.
"""

from __future__ import annotations

import aiohttp

from hub_app.kafka.assignor import read_members
from hub_app.kafka.client import KafkaConfig, make_admin

ANSWER_S = 2.0


async def taken_by(config: KafkaConfig, group: str, *, instance_id: str, own_url: str) -> str | None:
    """The URL of a living worker of this name in `group`, or None. What Kafka does not tell in time is no reason not to
    start: the member that is displaced closes its shards by itself."""
    admin = make_admin(config)
    try:
        await admin.start()
        members = await read_members(admin, group) or ()
    finally:
        await admin.close()
    for member in members:
        # The same URL is this process's own: its port is ours, so whoever had it is gone.
        if member.instance == instance_id and member.url != own_url and await _lives(member.url):
            return member.url
    return None


async def _lives(url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=ANSWER_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{url}/healthz") as answer:
            return answer.status == 200
    except (TimeoutError, aiohttp.ClientError, OSError):
        return False
