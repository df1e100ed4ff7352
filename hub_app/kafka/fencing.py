"""Whether another process runs under a static member's id."""

from __future__ import annotations

import asyncio
import logging

from hub_app.kafka.assignor import read_members
from hub_app.kafka.client import KafkaConfig, make_admin
from hub_app.kafka.forever import describe

log = logging.getLogger(__name__)

LOOKS = 20
LOOK_EVERY_S = 0.25


async def taken_over(config: KafkaConfig, group: str, instance_id: str, *, boot: str) -> bool:
    """Whether the group has a member with this static id that was started as another `boot`. False when the broker
    cannot tell: then the group itself decides at the next join."""
    admin = make_admin(config)
    try:
        await admin.start()
        for _ in range(LOOKS):
            members = await read_members(admin, group)
            if members is not None:
                return any(m.instance == instance_id and m.boot != boot for m in members)
            await asyncio.sleep(LOOK_EVERY_S)
    except Exception as exc:
        log.warning("%s: cannot find out who is in the group: %s", group, describe(exc))
    finally:
        await admin.close()
    return False
