"""The head of a webhook request: Standard Webhooks signature, CloudEvents HTTP binary mode, the hub's own headers.

Nothing that came from outside is written to a head as it came: names must be HTTP tokens, values are percent-encoded
where they hold anything but printable ASCII, so no value can end its line. This is the hot path (one head per attempt):
what does not change is encoded once.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from hub_app.domain.limits import TEXTS_MAX

SECRET_PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64

STATIC_NAME_CHARS_MAX: Final = 128
STATIC_VALUE_CHARS_MAX: Final = 2_048

_NAME_CHARS_CACHED_MAX: Final = 64

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z\-]+")
_STATIC_VALUE: Final = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?")
_TRACEPARENT: Final = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_TRACESTATE: Final = re.compile(rb"[\x20-\x7e]{1,512}")

# Refused as static headers. Hop-by-hop (RFC 9110, 7.6.1, and what older agents treat so), what frames the request, and
# what the hub writes itself: a second line of one of those would leave the sink to choose which to believe.
_REFUSED: Final = frozenset(
    {
        "connection",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "trailers",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    }
)
_REFUSED_PREFIXES: Final = ("ce-", "content-", "proxy-", "webhook-", "x-lerian-")

_DEFAULT_CONTENT_TYPE: Final = b"application/json"
# CloudEvents HTTP binding 1.0.2, 3.1.3.2: space, double quote, percent, and all outside U+0021…U+007E are encoded.
_PLAIN: Final = bytes(c for c in range(0x21, 0x7F) if c not in b'"%')
_ENCODED: Final = tuple(bytes([c]) if c in _PLAIN else b"%%%02X" % c for c in range(256))
# A media type has spaces and quotes of its own; only what cannot stand in a header line at all is encoded.
_PRINTABLE: Final = bytes(range(0x20, 0x7F))
_ENCODED_UNPRINTABLE: Final = tuple(bytes([c]) if c in _PRINTABLE else b"%%%02X" % c for c in range(256))


def secret_text(key: bytes) -> str:
    """`whsec_<base64>` of a random key (24 to 64 bytes)."""
    if not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise ValueError(f"a signing key has {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes")
    return SECRET_PREFIX + b64encode(key).decode()


def secret_key(secret: str) -> bytes:
    """The key inside `whsec_<base64>`. ValueError, never naming the secret, when it is malformed."""
    try:
        if secret.startswith(SECRET_PREFIX):
            key = b64decode(secret[len(SECRET_PREFIX) :], validate=True)
            if SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
                return key
    except ValueError:
        pass
    # Raised outside the handler: the inner error's text could quote the secret.
    raise ValueError(
        f"a signing secret is {SECRET_PREFIX} and the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
    )


def static_header_problem(name: str, value: str) -> str | None:
    """Why a subscription may not add this header to its requests, or None."""
    lower = name.lower()
    if len(name) > STATIC_NAME_CHARS_MAX or not _TOKEN.fullmatch(name):
        return f"is not a header name of at most {STATIC_NAME_CHARS_MAX} characters"
    if lower in _REFUSED or lower.startswith(_REFUSED_PREFIXES):
        return "is a header that the hub or the connection sets; leave it out"
    if len(value) > STATIC_VALUE_CHARS_MAX or (value and not _STATIC_VALUE.fullmatch(value)):
        return f"must be at most {STATIC_VALUE_CHARS_MAX} printable ASCII characters, no space at either end"
    return None


class Signer:
    """Standard Webhooks v1, HMAC-SHA256. `secrets` are opened (`whsec_…`), newest first; two during a rotation. The key
    schedule is made once per secret. Its repr tells nothing."""

    __slots__ = ("_macs",)

    def __init__(self, secrets: Sequence[str]) -> None:
        """ValueError (never naming the secret) when one is malformed or there is none."""
        if not secrets:
            raise ValueError("a signer needs a secret")
        self._macs = tuple(hmac.new(secret_key(secret), digestmod="sha256") for secret in secrets)

    def headers(self, event_id: str, timestamp_s: int, body: bytes) -> bytes:
        """`webhook-id`, `webhook-timestamp` and `webhook-signature` lines, each ended by CRLF. `event_id` is letters,
        digits and underscores (ValueError): a dot would make the signed text ambiguous, a line end the head."""
        if not (event_id.isascii() and event_id.isidentifier()):
            raise ValueError("an event id is letters, digits and underscores")
        id_bytes = event_id.encode()
        signed = b"%b.%d." % (id_bytes, timestamp_s)
        signatures = []
        for prepared in self._macs:
            mac = prepared.copy()
            mac.update(signed)
            mac.update(body)  # apart, so that a payload of a mebibyte is not copied
            signatures.append(b"v1," + b64encode(mac.digest()))
        return b"webhook-id: %b\r\nwebhook-timestamp: %d\r\nwebhook-signature: %b\r\n" % (
            id_bytes,
            timestamp_s,
            b" ".join(signatures),
        )


class WebhookHead:
    """Builds request heads of one subscription; its static part is prepared once. Make a new one per revision, and when
    the previous secret's time is over."""

    __slots__ = ("_signer", "_static")

    def __init__(self, *, signer: Signer, user_agent: str, static_headers: Iterable[tuple[str, str]] = ()) -> None:
        """ValueError when the user agent or a static header could not stand in a head."""
        if not _STATIC_VALUE.fullmatch(user_agent):
            raise ValueError("the user agent must be printable ASCII")
        lines = [f"User-Agent: {user_agent}"]
        for name, value in static_headers:
            problem = static_header_problem(name, value)
            if problem is not None:
                raise ValueError(f"static header {name[:STATIC_NAME_CHARS_MAX]!r} {problem}")
            lines.append(f"{name}: {value}")
        self._signer = signer
        self._static = "\r\n".join(lines).encode()

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
        """Every header line but Host and Content-Length, each ended by CRLF: `hub_app.ports.Request.head`.

        `headers` are the fact's. Of them go out: each `ce-*` attribute (`ce-datacontenttype` as `Content-Type`, as the
        binding says), `traceparent`, and `tracestate` beside it, if they are well formed. Others stay here.
        """
        names: list[bytes] = []
        values: list[bytes] = []
        content_type = _DEFAULT_CONTENT_TYPE
        trace = state = b""
        for name, value in dict(headers).items():  # a repeated header has one value, or the record was quarantined
            line = _line_start(name) if len(name) <= _NAME_CHARS_CACHED_MAX else _make_line_start(name)
            if line is not None:
                names.append(line)
                values.append(value)
            elif name == "ce-datacontenttype":
                content_type = _content_type(value)
            elif name == "traceparent":
                trace = value
            elif name == "tracestate":
                state = value
        names.append(b"\r\nX-Lerian-Event-Type: ")
        values.append(event_type.encode())
        if b"".join(values).translate(None, _PLAIN):
            values = [_percent_encoded(value) for value in values]
        lines = [self._static]
        for pair in zip(names, values, strict=True):
            lines += pair
        lines.append(
            b"\r\nContent-Type: %b\r\nX-Lerian-Delivery-Id: %b\r\nX-Lerian-Attempt: %d\r\n"
            % (content_type, delivery_id.hex().encode(), attempt)
        )
        if trace and _TRACEPARENT.fullmatch(trace):
            lines.append(b"traceparent: %b\r\n" % trace)
            if state and _TRACESTATE.fullmatch(state):
                lines.append(b"tracestate: %b\r\n" % state)
        lines.append(self._signer.headers(event_id, timestamp_s, body))
        return b"".join(lines)


def _make_line_start(name: str) -> bytes | None:
    """The start of a CloudEvents header line (with the end of the line before it), or None if `name` is none, or could
    not stand in a head."""
    if not name.startswith("ce-") or name == "ce-datacontenttype" or not _TOKEN.fullmatch(name, 3):
        return None
    return f"\r\n{name}: ".encode()


_line_start: Final = lru_cache(maxsize=TEXTS_MAX)(_make_line_start)


def _percent_encoded(value: bytes) -> bytes:
    if not value.translate(None, _PLAIN):
        return value
    return b"".join([_ENCODED[c] for c in value])


@lru_cache(maxsize=256)
def _content_type(value: bytes) -> bytes:
    value = value.strip()
    if not value.translate(None, _PRINTABLE):
        return value or _DEFAULT_CONTENT_TYPE
    return b"".join([_ENCODED_UNPRINTABLE[c] for c in value])
