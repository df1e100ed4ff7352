"""What of a subscription is sealed, and what each is bound to: tenant, subscription and field (docs/http-api.md,
"Secrets"). The signing secret always; of the static headers those whose names look like credentials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from hub_app.domain.subscription import SealedText, Sink, Subscription, WebhookSink
from hub_app.domain.subscription_json import MASK, looks_secret
from hub_app.ports import Keyring, SecretUnavailable

HIDDEN_CHARS_MIN: Final = 4
"""Shorter words stand in any text."""


def secret_context(subscription: Subscription) -> str:
    return f"{subscription.tenant}\x1f{subscription.id}\x1fsecret"


def header_context(tenant: str, id: str, name: str) -> str:
    return f"{tenant}\x1f{id}\x1fheader:{name.lower()}"


def sealed(keyring: Keyring, subscription: Subscription, secret: str) -> Subscription:
    """A new one as it may be kept, with its signing secret. Raises SecretUnavailable."""
    sink = seal_headers(keyring, subscription.tenant, subscription.id, subscription.sink)
    return replace(subscription, sink=sink, secret=keyring.seal(secret.encode(), context=secret_context(subscription)))


def seal_headers(keyring: Keyring, tenant: str, id: str, sink: Sink, before: Sink | None = None) -> Sink:
    """The sink as it may be kept. A value that is the one sealed in `before` stays as it was sealed, so that the same
    change twice is no change. Raises SecretUnavailable."""
    if not isinstance(sink, WebhookSink):
        return sink
    kept = {name.lower(): value for name, value in before.headers} if isinstance(before, WebhookSink) else {}

    def kept_as(name: str, value: str) -> str:
        if isinstance(value, SealedText) or not looks_secret(name):
            return value
        context, known = header_context(tenant, id, name), kept.get(name.lower())
        if isinstance(known, SealedText) and _opens_to(keyring, known, context, value):
            return known
        return SealedText(keyring.seal(value.encode(), context=context), len(value))

    return replace(sink, headers=tuple((name, kept_as(name, value)) for name, value in sink.headers))


def open_headers(keyring: Keyring, subscription: Subscription) -> list[tuple[str, str]]:
    """The static headers as they are sent. Raises SecretUnavailable, or ValueError for what is no text."""
    if not isinstance(subscription.sink, WebhookSink):
        return []
    return [
        (name, keyring.open(value, context=header_context(subscription.tenant, subscription.id, name)).decode())
        if isinstance(value, SealedText)
        else (name, value)
        for name, value in subscription.sink.headers
    ]


def hidden(path: str, headers: list[tuple[str, str]]) -> tuple[bytes, ...]:
    """The query, and the values of headers that look like credentials: the longest first, for one may hold another."""
    texts = [path.partition("?")[2], *(value for name, value in headers if looks_secret(name))]
    words = [word for text in texts for word in (text, text.rpartition(" ")[2]) if len(word) >= HIDDEN_CHARS_MIN]
    return tuple(word.encode() for word in sorted(set(words), key=len, reverse=True))


def hide(answer: bytes, words: tuple[bytes, ...]) -> bytes:
    """What a sink answered, without what it repeats of them."""
    for word in words:
        answer = answer.replace(word, MASK.encode())
    return answer


def sealed_texts(subscription: Subscription) -> Iterator[tuple[str, str]]:
    """Everything of it that is sealed, with what it is bound to."""
    for text in (subscription.secret, subscription.previous_secret):
        if text:
            yield text, secret_context(subscription)
    if isinstance(subscription.sink, WebhookSink):
        for name, value in subscription.sink.headers:
            if isinstance(value, SealedText):
                yield value, header_context(subscription.tenant, subscription.id, name)


def _opens_to(keyring: Keyring, sealed: str, context: str, value: str) -> bool:
    try:
        return keyring.open(sealed, context=context) == value.encode()
    except SecretUnavailable:
        return False
