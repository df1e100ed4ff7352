"""The sealed form itself: every byte of it is authenticated, and its errors name no secret."""

from __future__ import annotations

import pytest

from hub_app.adapters.entropy import SystemEntropy
from hub_app.adapters.keyring import EnvelopeKeyring, fingerprint
from hub_app.ports import SecretUnavailable
from hub_app.settings import Kek

KEY = bytes(range(32))
KEK = Kek(name="HUB_KEK", key=KEY)


def keyring() -> EnvelopeKeyring:
    return EnvelopeKeyring((KEK,), SystemEntropy())


def test_the_form_names_version_and_key() -> None:
    version, name, wrapped, sealed = keyring().seal(b"secret", context="c").split(".")
    assert (version, name) == ("v1", fingerprint(KEY))
    assert len(wrapped) == 80  # 12 + 32 + 16 bytes
    assert len(sealed) == 46  # 12 + 6 + 16 bytes, without padding


@pytest.mark.parametrize("part", [2, 3])
def test_every_changed_character_is_noticed(part: int) -> None:
    ring = keyring()
    parts = ring.seal(b"secret!!", context="c").split(".")  # 36 bytes: no spare bits in the last character
    for place, old in enumerate(parts[part]):
        changed = parts[part][:place] + ("A" if old != "A" else "B") + parts[part][place + 1 :]
        with pytest.raises(SecretUnavailable):
            ring.open(".".join((*parts[:part], changed, *parts[part + 1 :])), context="c")


def test_halves_of_two_secrets_do_not_fit() -> None:
    ring = keyring()
    one, two = (ring.seal(text, context="c").split(".") for text in (b"one", b"two"))
    with pytest.raises(SecretUnavailable):
        ring.open(".".join((*one[:3], two[3])), context="c")


def test_a_missing_key_is_named_by_fingerprint() -> None:
    sealed = keyring().seal(b"secret", context="c")
    other = EnvelopeKeyring((Kek(name="OTHER", key=bytes(32)),), SystemEntropy())
    with pytest.raises(SecretUnavailable, match=fingerprint(KEY)):
        other.open(sealed, context="c")


def test_repr_of_a_kek_hides_the_key() -> None:
    assert repr(KEK) == "Kek(name='HUB_KEK')"
    assert KEY.hex() not in repr(keyring())


def test_a_secret_has_a_size() -> None:
    with pytest.raises(ValueError, match="at most"):
        keyring().seal(b"x" * (64 * 1024 + 1), context="c")
