"""A connection that broke a moment ago, told in the words that aiokafka understands.

uvloop raises RuntimeError for a write to a transport that is closed, where asyncio's own loop says nothing; aiokafka
(tried: 0.14.0) takes only OSError for a broken connection. Between the break and the reader's noticing it, a request
then ends whatever task makes it: the one that keeps a client's metadata dies silently, and everybody who waits for
metadata (looking for a coordinator, say, under a lock) waits for ever. Seen after broker outages, about once in fifty.
"""

from __future__ import annotations

from typing import Any

from aiokafka.conn import CloseReason
from aiokafka.errors import KafkaConnectionError


def guard(client: Any) -> None:
    """Makes every connection of an AIOKafkaClient say KafkaConnectionError (which is tried again) and close."""
    get = client._get_conn

    async def get_guarded(*args: Any, **options: Any) -> Any:
        connection = await get(*args, **options)
        if connection is not None and "send" not in vars(connection):
            connection.send = _guarded_send(connection)
        return connection

    client._get_conn = get_guarded


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
