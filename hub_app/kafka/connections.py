"""A connection that broke a moment ago, told in the words that aiokafka understands.

uvloop raises RuntimeError for a write to a transport that is closed, where asyncio's own loop says nothing; aiokafka
(tried: 0.14.0) takes only OSError for a broken connection. Between the break and the reader's noticing it, a request
then ends whatever task makes it: the one that keeps a client's metadata dies silently, and everybody who waits for
metadata (looking for a coordinator, say, under a lock) waits for ever. Seen after broker outages, about once in fifty.
Closing a client may wait for ever too (`_close`).
"""

from __future__ import annotations

import asyncio
from typing import Any

from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError

from hub_app.kafka.closing import ended

CLOSE_S = 5.0


def guard(client: Any) -> None:
    """Makes every connection of an AIOKafkaClient say KafkaConnectionError (which is tried again) and close; and makes
    the client's own closing end (`_close`)."""
    get, close = client._get_conn, client.close

    async def get_guarded(*args: Any, **options: Any) -> Any:
        connection = await get(*args, **options)
        if connection is not None and "send" not in vars(connection):
            connection.send = _guarded_send(connection)
        return connection

    client._get_conn = get_guarded
    client.close = lambda: _close(client, close)


async def _close(client: Any, close: Any) -> None:
    """aiokafka cancels the task that keeps metadata once and waits for its end, which may never come
    (`hub_app.kafka.closing.ended`), and waits until what is in its buffers has been sent, which a broker that has
    stopped reading never lets happen."""
    if client._sync_task is not None:
        await ended(client._sync_task)
        client._sync_task = None
    transports = [c._writer.transport for c in client._conns.values() if c._writer is not None]
    closing = asyncio.ensure_future(close())
    try:
        await asyncio.wait([closing], timeout=CLOSE_S)
        if not closing.done():
            for transport in transports:
                transport.abort()
            await asyncio.wait([closing], timeout=CLOSE_S)
    finally:
        await ended(closing)


def _guarded_send(connection: Any) -> Any:
    send = connection.send

    def send_guarded(*args: Any, **options: Any) -> Any:
        try:
            return send(*args, **options)
        except RuntimeError as error:
            connection.close(CloseReason.CONNECTION_BROKEN)
            where = f"{connection.host}:{connection.port}"
            raise KafkaConnectionError(f"Connection at {where} broken: {error}") from error

    return send_guarded
