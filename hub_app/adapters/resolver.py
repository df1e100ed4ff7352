"""Names to addresses, through the system's resolver."""

from __future__ import annotations


class SystemResolver:
    """`hub_app.ports.Resolver` over getaddrinfo: a small bounded cache of good answers, one lookup per name at a time,
    a bounded number of lookups at once. Failures are never cached."""

    def __init__(self, *, ttl_ms: int = 5_000, names_max: int = 1024, lookups_max: int = 32) -> None:
        raise NotImplementedError

    async def resolve(self, host: str) -> tuple[str, ...]:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError
