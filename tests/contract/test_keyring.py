"""What every keyring does, fake and real."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hub_app.adapters.entropy import SystemEntropy
from hub_app.adapters.keyring import EnvelopeKeyring
from hub_app.ports import Keyring, SecretUnavailable
from hub_app.settings import Kek
from tests.fakes.keyring import FakeKeyring, Vault

SECRET = b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
CONTEXT = "tenant-a\x1fsub_1\x1fsecret"
Ring = Callable[..., Keyring]


@pytest.fixture(params=["envelope", "fake"])
def ring(request: pytest.FixtureRequest) -> Ring:
    """Makes keyrings of one deployment, each with the keys of the given names, newest first."""
    vault = Vault()

    def make(*names: str) -> Keyring:
        if request.param == "fake":
            return FakeKeyring(*names, vault=vault)
        keks = tuple(Kek(name=name, key=name.encode().ljust(32, b"#")) for name in names)
        return EnvelopeKeyring(keks, SystemEntropy())

    return make


@pytest.mark.parametrize("plaintext", [b"", b"\0", SECRET, b"x" * 64 * 1024])
def test_opens_what_it_sealed(ring: Ring, plaintext: bytes) -> None:
    keyring = ring("K1")
    assert keyring.open(keyring.seal(plaintext, context=CONTEXT), context=CONTEXT) == plaintext


def test_another_worker_with_the_same_key_opens_it(ring: Ring) -> None:
    assert ring("K1").open(ring("K1").seal(SECRET, context=CONTEXT), context=CONTEXT) == SECRET


def test_sealing_twice_gives_two_texts(ring: Ring) -> None:
    keyring = ring("K1")
    assert keyring.seal(SECRET, context=CONTEXT) != keyring.seal(SECRET, context=CONTEXT)


@pytest.mark.parametrize("other", ["tenant-b\x1fsub_1\x1fsecret", "tenant-a\x1fsub_2\x1fsecret", "", CONTEXT + "x"])
def test_does_not_open_in_another_context(ring: Ring, other: str) -> None:
    keyring = ring("K1")
    sealed = keyring.seal(SECRET, context=CONTEXT)
    with pytest.raises(SecretUnavailable):
        keyring.open(sealed, context=other)


def test_rotation_reads_old_and_writes_new(ring: Ring) -> None:
    old = ring("OLD").seal(SECRET, context=CONTEXT)
    rotated = ring("NEW", "OLD")
    assert rotated.open(old, context=CONTEXT) == SECRET
    new = rotated.seal(SECRET, context=CONTEXT)
    assert ring("NEW").open(new, context=CONTEXT) == SECRET
    for sealed, keyring in ((old, ring("NEW")), (new, ring("OLD"))):
        with pytest.raises(SecretUnavailable):
            keyring.open(sealed, context=CONTEXT)


def test_without_a_key_nothing_is_sealed_or_opened(ring: Ring) -> None:
    sealed = ring("K1").seal(SECRET, context=CONTEXT)
    with pytest.raises(SecretUnavailable):
        ring().seal(SECRET, context=CONTEXT)
    with pytest.raises(SecretUnavailable):
        ring().open(sealed, context=CONTEXT)


@pytest.mark.parametrize("sealed", ["", "x", "v1", "v1...", "v2.a.b.c", "v1.é.b.c", "....", "\0", "v1.a.b.c.d"])
def test_garbage_is_unavailable_never_another_error(ring: Ring, sealed: str) -> None:
    with pytest.raises(SecretUnavailable):
        ring("K1").open(sealed, context=CONTEXT)


def test_nothing_shows_the_secret_or_the_key(ring: Ring) -> None:
    keyring = ring("K1-very-secret-key")
    sealed = keyring.seal(SECRET, context=CONTEXT)
    seen = [sealed, repr(keyring), str(keyring)]
    with pytest.raises(SecretUnavailable) as refused:
        keyring.open(sealed, context="other")
    seen.append(repr(refused.value))
    for text in seen:
        assert "very-secret" not in text
        assert SECRET.decode() not in text
