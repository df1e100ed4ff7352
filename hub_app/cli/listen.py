"""`hub listen`: a receiver for trying out. It verifies signatures and can fail on schedule."""

from __future__ import annotations

import base64
import hmac
import time
from collections.abc import Callable, Mapping
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Final

TOLERANCE_S: Final = 300
BODY_BYTES_MAX: Final = 8 << 20


def verified(secret: str, headers: Mapping[str, str], body: bytes, now_s: float) -> str:
    """Empty when the signature holds (Standard Webhooks), else what is wrong."""
    id, stamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    if not id or not stamp.isdigit():
        return "no webhook-id or webhook-timestamp"
    if abs(now_s - int(stamp)) > TOLERANCE_S:
        return "webhook-timestamp is too far from now"
    key = base64.b64decode(secret.removeprefix("whsec_"))
    made = hmac.new(key, f"{id}.{stamp}.".encode() + body, sha256).digest()
    wanted = "v1," + base64.b64encode(made).decode()
    given = headers.get("webhook-signature", "").split(" ")
    return "" if any(hmac.compare_digest(wanted, one) for one in given) else "the signature does not hold"


def make_server(
    host: str, port: int, *, secret: str, fail_every: int, status: int, say: Callable[[str], None]
) -> ThreadingHTTPServer:
    """Every `fail_every`-th request is answered with `status` (0: none is); a bad signature with 401. Not started."""
    numbers = count(1)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(min(int(self.headers.get("Content-Length", "0")), BODY_BYTES_MAX))
            headers = {name.lower(): value for name, value in self.headers.items()}
            number = next(numbers)
            wrong = verified(secret, headers, body, time.time()) if secret else ""
            answer = 401 if wrong else status if fail_every and number % fail_every == 0 else 204
            event, attempt = headers.get("x-lerian-event-type", "?"), headers.get("x-lerian-attempt", "?")
            say(f"{number} {event} {headers.get('webhook-id', '?')} attempt {attempt}: {answer} {wrong}".rstrip())
            self.send_response(answer)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Said by `say` already."""

    return ThreadingHTTPServer((host, port), Handler)
