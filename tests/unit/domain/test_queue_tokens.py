"""Lock tokens: opaque, bound to their delivery and queue, refused when anything of them changes."""

from __future__ import annotations

from base64 import urlsafe_b64encode

import pytest

from hub_app.domain.queue import Row
from hub_app.domain.queue_tokens import Tokens, read

ROW = Row(1 << 41, 0, deliveries=3)
NAMES = {"tenant": "acme", "topic": "orders", "subscription": "sub_a"}
TOKENS = Tokens(b"secret", **NAMES)


def test_a_token_is_read_and_known() -> None:
    text = TOKENS.make(ROW)
    token = read(text)
    assert token is not None and len(text) == 36
    assert (token.seq, token.delivery) == (1 << 41, 3)
    assert TOKENS.made(token, "")
    assert not TOKENS.made(token, "op_1")


@pytest.mark.parametrize("changed", [{"tenant": "b"}, {"topic": "b"}, {"subscription": "b"}])
def test_a_token_of_another_queue_is_foreign(changed: dict[str, str]) -> None:
    token = read(Tokens(b"secret", **(NAMES | changed)).make(ROW))
    assert token is not None and not TOKENS.made(token, "")


def test_another_secret_another_delivery_another_seq() -> None:
    token = read(TOKENS.make(ROW))
    assert token is not None
    assert not Tokens(b"other", **NAMES).made(token, "")
    assert not TOKENS.made(token._replace(delivery=4), "")
    assert not TOKENS.made(token._replace(seq=1), "")


@pytest.mark.parametrize(
    "text",
    ["", "x", None, 5, ["a"], "!" * 36, "A" * 35, "A" * 37, "ä" * 36, "A" * 36, TOKENS.make(ROW) + "\n"],
)
def test_what_cannot_be_a_token(text: object) -> None:
    assert read(text) is None


def test_a_delivery_counts_from_one() -> None:
    assert read(urlsafe_b64encode(b"\x01" + bytes(26)).decode()) is None
