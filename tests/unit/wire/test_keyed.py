"""Keys of compacted topics, and what `hub.meta` says."""

from __future__ import annotations

import pytest

from hub_app.domain.limits import EPOCH_MAX
from hub_app.wire import keyed, meta
from hub_app.wire.record import Unreadable


def test_keys_of_a_tenant_and_an_id() -> None:
    key = keyed.join("ação ", "sub_1")
    assert key == "ação \x1fsub_1".encode()
    assert keyed.split(key, 2) == ("ação ", "sub_1")
    for bad in (None, b"", b"acme", b"\xff\x1fx"):
        assert isinstance(keyed.split(bad, 2), Unreadable)


def test_an_administrator_s_key_has_no_tenant() -> None:
    assert keyed.split(keyed.join("", "k1"), 2) == ("", "k1")


def test_keys_never_meet() -> None:
    with pytest.raises(ValueError, match="separator"):
        keyed.join("a\x1fb", "c")
    assert keyed.split(keyed.join("a", "b\x1fc"), 2) == ("a", "b\x1fc")


def test_the_schema() -> None:
    record = meta.write(meta.Schema(3))
    assert (record.key, record.value) == (b"schema", b'{"version":3}')
    assert meta.read(record.key, record.value) == meta.Schema(3)


def test_epochs() -> None:
    epoch = meta.Epoch(11, 2, "the log ended below 7", 1_767_323_045_678)
    record = meta.write(epoch)
    assert record.key == b"epoch\x1f11"
    assert record.value == b'{"epoch":2,"reason":"the log ended below 7","at":"2026-01-02T03:04:05.678Z"}'
    assert meta.read(record.key, record.value) == epoch


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"schema", None),
        (b"schema", b"{"),
        (b"schema", b"[]"),
        (b"schema", b"{}"),
        (b"schema", b'{"version":"1"}'),
        (b"schema", b'{"version":true}'),
        (b"schema", b'{"version":-1}'),
        (b"schema", b'{"version":1.0}'),
        (b"schema", b"\xff"),
        (b"schema", b"[" * 100_000),
        (b"epoch", b'{"epoch":1}'),
        (b"epoch\x1fx", b'{"epoch":1,"reason":"","at":"2026-01-02T03:04:05Z"}'),
        (b"epoch\x1f1", b'{"epoch":1,"reason":"","at":"yesterday"}'),
        (b"epoch\x1f1", b'{"epoch":1,"reason":"","at":1}'),
        (b"epoch\x1f1", b'{"epoch":%d,"reason":"","at":"2026-01-02T03:04:05Z"}' % (EPOCH_MAX + 1)),
        (b"\xff", b"{}"),
        (b"other", b"{}"),
    ],
)
def test_what_makes_no_sense(key: bytes | None, value: bytes | None) -> None:
    assert isinstance(meta.read(key, value), Unreadable)
