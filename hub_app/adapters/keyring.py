"""Envelope encryption of sinks' secrets. A sealed secret is text for people and logs to pass by:

    v1 . <fingerprint of the key-encryption key> . <nonce, wrapped data key> . <nonce, sealed secret>

Each secret has a data key of its own (AES-256-GCM both times), so a key-encryption key never meets a payload and can be
changed: new secrets are sealed under the first key, old ones are opened under whichever named key wrapped them. The
key is found by fingerprint, not by the name of its variable, so variables can be renamed."""

from __future__ import annotations

import binascii
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hub_app.ports import Entropy, SecretUnavailable
from hub_app.settings import Kek

VERSION: Final = "v1"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
PLAINTEXT_BYTES_MAX: Final = 64 * 1024
_WRAPPED_BYTES: Final = NONCE_BYTES + KEY_BYTES + TAG_BYTES


class EnvelopeKeyring:
    """`hub_app.ports.Keyring` over the keys of the settings, newest first. Without keys it refuses to seal and open."""

    __slots__ = ("_entropy", "_first", "_keks")

    def __init__(self, keks: Sequence[Kek], entropy: Entropy) -> None:
        self._keks = {fingerprint(kek.key): AESGCM(kek.key) for kek in keks}
        self._first = fingerprint(keks[0].key) if keks else None
        self._entropy = entropy

    def __repr__(self) -> str:
        return f"EnvelopeKeyring({', '.join(self._keks)})"

    def seal(self, plaintext: bytes, *, context: str) -> str:
        if self._first is None:
            raise SecretUnavailable("no key-encryption key: name one in STREAMING_HUB_KEK_REF")
        if len(plaintext) > PLAINTEXT_BYTES_MAX:
            raise ValueError(f"a secret has at most {PLAINTEXT_BYTES_MAX} bytes")
        data_key, wrap_nonce, nonce = (self._entropy.token(n) for n in (KEY_BYTES, NONCE_BYTES, NONCE_BYTES))
        wrapped = wrap_nonce + self._keks[self._first].encrypt(wrap_nonce, data_key, _bound("key", context))
        sealed = nonce + AESGCM(data_key).encrypt(nonce, plaintext, _bound("secret", context))
        return ".".join((VERSION, self._first, _text(wrapped), _text(sealed)))

    def open(self, sealed: str, *, context: str) -> bytes:
        wrapped, ciphertext, kek = self._parts(sealed)
        try:
            data_key = kek.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], _bound("key", context))
            nonce, body = ciphertext[:NONCE_BYTES], ciphertext[NONCE_BYTES:]
            return AESGCM(data_key).decrypt(nonce, body, _bound("secret", context))
        except InvalidTag:
            raise SecretUnavailable("the sealed secret is damaged, or belongs to something else") from None

    def _parts(self, sealed: str) -> tuple[bytes, bytes, AESGCM]:
        parts = sealed.split(".")
        if len(parts) != 4 or parts[0] != VERSION:
            raise SecretUnavailable("not a sealed secret of a known version")
        kek = self._keks.get(parts[1])
        if kek is None:
            name = parts[1] if parts[1].isalnum() and len(parts[1]) <= 32 else "it was sealed under"
            raise SecretUnavailable(f"no key named in STREAMING_HUB_KEK_REF has the fingerprint {name}")
        wrapped, ciphertext = _bytes(parts[2]), _bytes(parts[3])
        if len(wrapped) != _WRAPPED_BYTES or len(ciphertext) < NONCE_BYTES + TAG_BYTES:
            raise SecretUnavailable("the sealed secret is damaged")
        return wrapped, ciphertext, kek


def fingerprint(key: bytes) -> str:
    """Names a key without telling it: 16 hexadecimal digits."""
    return blake2b(key, digest_size=8, person=b"hub-kek-name").hexdigest()


def _bound(what: str, context: str) -> bytes:
    return f"streaming-hub/{VERSION}\x1f{what}\x1f{context}".encode()


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise SecretUnavailable("the sealed secret is damaged") from None
