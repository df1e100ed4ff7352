"""Static headers that look like credentials: sealed where they are kept, clear where they are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from agents.sealing import open_headers, seal_headers, sealed_texts
from hub_app.adapters.keyring import EnvelopeKeyring
from hub_app.domain.subscription import Draft, SealedText, Subscription, WebhookSink, created
from hub_app.domain.subscription_json import from_record, to_public, to_record
from hub_app.ports import SecretUnavailable
from hub_app.settings import Kek
from tests.fakes.entropy import FakeEntropy

CLEAR = (("Authorization", "Bearer CANARY"), ("X-Env", "prod"), ("X-Api-Key", "CANARY2"))


@pytest.fixture
def keyring() -> EnvelopeKeyring:
    return EnvelopeKeyring([Kek(name="K", key=bytes(32))], FakeEntropy())


def subscription(headers: tuple[tuple[str, str], ...], **more: Any) -> Subscription:
    sink = WebhookSink(url="https://crm.example.com/in", headers=headers)
    draft = Draft(name="n", event_types=("*",), origin=(), filters=(), sink=sink, destination=sink.url)
    return replace(created(draft, id="sub_a", tenant="t", secret="v1.x", now_ms=1), **more)


def test_there_and_back(keyring: EnvelopeKeyring) -> None:
    kept = replace(subscription(()), sink=seal_headers(keyring, "t", "sub_a", subscription(CLEAR).sink))
    record = orjson.dumps(to_record(kept))
    assert b"CANARY" not in record
    read = from_record(orjson.loads(record))
    assert read == kept
    assert open_headers(keyring, read) == list(CLEAR)
    assert isinstance(read.sink, WebhookSink)
    assert [value.chars for _, value in read.sink.headers if isinstance(value, SealedText)] == [13, 7]
    assert to_public(read)["sink"]["headers"] == {"Authorization": "***", "X-Env": "prod", "X-Api-Key": "***"}  # type: ignore[index]
    assert "CANARY" not in repr(read)
    assert len(list(sealed_texts(read))) == 3


def test_those_of_before_are_sent_as_they_are(keyring: EnvelopeKeyring) -> None:
    old = from_record(orjson.loads(orjson.dumps(to_record(subscription(CLEAR)))))
    assert open_headers(keyring, old) == list(CLEAR)


def test_the_same_value_keeps_its_seal(keyring: EnvelopeKeyring) -> None:
    first = seal_headers(keyring, "t", "sub_a", subscription(CLEAR).sink)
    assert seal_headers(keyring, "t", "sub_a", subscription(CLEAR).sink, first) == first
    other = (("authorization", "Bearer other"), *CLEAR[1:])
    assert seal_headers(keyring, "t", "sub_a", subscription(other).sink, first) != first


@pytest.mark.parametrize("changes", [{"id": "sub_b"}, {"tenant": "u"}])
def test_a_seal_is_bound_to_its_place(keyring: EnvelopeKeyring, changes: dict[str, Any]) -> None:
    sealed = seal_headers(keyring, "t", "sub_a", subscription(CLEAR).sink)
    with pytest.raises(SecretUnavailable):
        open_headers(keyring, replace(subscription(()), sink=sealed, **changes))
    assert isinstance(sealed, WebhookSink)
    moved = WebhookSink(url=sealed.url, headers=(("X-Api-Key", sealed.headers[0][1]),))
    with pytest.raises(SecretUnavailable):
        open_headers(keyring, replace(subscription(()), sink=moved))
