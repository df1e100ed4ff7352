"""The head of a webhook request: Standard Webhooks signature, CloudEvents HTTP binary mode, the hub's own headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SECRET_PREFIX = "whsec_"


def secret_text(key: bytes) -> str:
    """`whsec_<base64>` of a random key (24 to 64 bytes)."""
    raise NotImplementedError


class Signer:
    """Standard Webhooks v1, HMAC-SHA256. `secrets` are opened (`whsec_…`), newest first; two during a rotation."""

    def __init__(self, secrets: Sequence[str]) -> None:
        """ValueError (never naming the secret) when one is malformed or there is none."""
        raise NotImplementedError

    def headers(self, event_id: str, timestamp_s: int, body: bytes) -> bytes:
        """`webhook-id`, `webhook-timestamp` and `webhook-signature` lines, each ended by CRLF."""
        raise NotImplementedError


class WebhookHead:
    """Builds request heads of one subscription; its static part is prepared once. Make a new one per revision."""

    def __init__(self, *, signer: Signer, user_agent: str, static_headers: Iterable[tuple[str, str]] = ()) -> None:
        raise NotImplementedError

    def build(
        self,
        *,
        headers: Sequence[tuple[str, bytes]],
        event_type: str,
        delivery_id: bytes,
        attempt: int,
        event_id: str,
        timestamp_s: int,
        body: bytes,
    ) -> bytes:
        """Every header line but Host and Content-Length, each ended by CRLF: `hub_app.ports.Request.head`."""
        raise NotImplementedError
