"""A name server in a dict."""

from __future__ import annotations

import ipaddress
from collections import deque
from collections.abc import Mapping


class FakeResolver:
    """`hub_app.ports.Resolver`. Names map to addresses; a name missing from the map does not resolve. `then` makes the
    later lookups of a name answer otherwise (DNS rebinding)."""

    def __init__(self, names: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self._names: dict[str, deque[tuple[str, ...]]] = {name: deque([ips]) for name, ips in (names or {}).items()}
        self.lookups: list[str] = []

    def then(self, host: str, addresses: tuple[str, ...]) -> None:
        self._names.setdefault(host, deque()).append(addresses)

    async def resolve(self, host: str) -> tuple[str, ...]:
        self.lookups.append(host)
        try:
            return (str(ipaddress.ip_address(host)),)
        except ValueError:
            pass
        answers = self._names.get(host)
        if not answers:
            raise OSError(f"{host}: name or service not known")
        return answers.popleft() if len(answers) > 1 else answers[0]
