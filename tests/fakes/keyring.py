"""A keyring without cryptography: seals by putting away. What it gives out tells nothing, and opens only in the same
context and under a key the ring still has."""

from __future__ import annotations

from hub_app.ports import SecretUnavailable


class Vault:
    """What has been put away, shared by the rings of one deployment (a real ring carries it inside the sealed text)."""

    def __init__(self) -> None:
        self.kept: dict[str, tuple[str, str, bytes]] = {}


class FakeKeyring:
    """`hub_app.ports.Keyring`; `names` are the keys it holds, newest first."""

    def __init__(self, *names: str, vault: Vault | None = None) -> None:
        self._names = names
        self._vault = vault if vault is not None else Vault()

    def __repr__(self) -> str:
        return f"FakeKeyring({len(self._names)} keys)"

    def seal(self, plaintext: bytes, *, context: str) -> str:
        if not self._names:
            raise SecretUnavailable("no key")
        ticket = f"fake.{len(self._vault.kept)}"
        self._vault.kept[ticket] = (self._names[0], context, plaintext)
        return ticket

    def open(self, sealed: str, *, context: str) -> bytes:
        name, bound_to, plaintext = self._vault.kept.get(sealed, ("", "", b""))
        if not name or name not in self._names or bound_to != context:
            raise SecretUnavailable("damaged, of another key, or of something else")
        return plaintext
