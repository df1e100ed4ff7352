"""Requests between workers, over one aiohttp client session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import aiohttp
from yarl import URL

from hub_app.web.deps import NoReply, Reply

ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024
CONNECT_S: Final = 1.0
CONNECTIONS_PER_PEER_MAX: Final = 1_000  # long polls hold theirs


class AiohttpPeers:
    """`hub_app.web.deps.Peers`. The session is made at the first request, inside the running loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def send(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, timeout_ms: int
    ) -> Reply | NoReply:
        session = self._open()
        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000, sock_connect=CONNECT_S)
        target = URL(url, encoded=True)  # the path goes on byte for byte: a tenant may hold %2F
        try:
            async with session.request(
                method, target, headers=headers, data=body or None, timeout=timeout, allow_redirects=False
            ) as answer:
                read = await answer.content.read(ANSWER_BYTES_MAX + 1)
                while len(read) <= ANSWER_BYTES_MAX and not answer.content.at_eof():
                    read += await answer.content.read(ANSWER_BYTES_MAX + 1 - len(read))
                if len(read) > ANSWER_BYTES_MAX:
                    return NoReply(True, "the answer is too large")
                return Reply(answer.status, dict(answer.headers), read)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            return NoReply(False, type(error).__name__)
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            return NoReply(True, type(error).__name__)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=0, limit_per_host=CONNECTIONS_PER_PEER_MAX)
            self._session = aiohttp.ClientSession(
                connector=connector, auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._session
