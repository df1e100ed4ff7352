"""The two senders, for tests that hold for both."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from hub_app.adapters.sender_aiohttp import AiohttpSender
from hub_app.adapters.sender_common import SenderLimits
from hub_app.adapters.sender_fast import FastSender
from hub_app.domain.egress import EgressPolicy
from hub_app.ports import Resolver, Sender
from tests.fakes.resolver import FakeResolver

MakeSender = Callable[..., Sender]
KINDS: dict[str, Callable[..., Sender]] = {"fast": FastSender, "aiohttp": AiohttpSender}


@pytest.fixture(params=KINDS)
def sender_kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@pytest_asyncio.fixture
async def make_sender(sender_kind: str) -> AsyncIterator[MakeSender]:
    """`make_sender(policy=, resolver=, tls=, limits=)`; by default private addresses are allowed, and the only names
    are `sink.example` and `other.example`, here. Closed in the end."""
    made: list[Sender] = []

    def make(
        policy: EgressPolicy | None = None,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        **limits: Any,
    ) -> Sender:
        sender = KINDS[sender_kind](
            resolver=resolver or FakeResolver({"sink.example": ("127.0.0.1",), "other.example": ("127.0.0.1",)}),
            policy=policy or EgressPolicy(allow_private=True),
            tls=tls,
            limits=SenderLimits(**limits),
        )
        made.append(sender)
        return sender

    yield make
    for sender in made:
        await sender.close()
